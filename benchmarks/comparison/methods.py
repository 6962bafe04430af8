"""What is compared: networks by recipe, and methods, which combine scores of layers; and how methods are measured."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from openradial import metrics
from openradial.conformal import Rejector, fit_beta
from openradial.errors import HeadError, ShapeError
from openradial.heads import CACHead, DOCHead, Head, OpenMaxHead, RadialHead, SoftmaxHead
from openradial.recipe import LAYERS, Recipe
from openradial.scorers import Combination, MahalanobisScorer, MixtureScorer, NeighbourScorer, ParzenScorer, Scorer
from openradial.training import Settings
from openradial.training.outliers import DEFAULTS

CENTRES = 5_000  # of the Parzen window: all 55,000 of MNIST give the same result at ten times the cost
RECIPE = "radial, squared, outliers"
FALSE_REJECT_RATE = 0.05
FULLY, CONVOLUTION, LAST = "fully connected", "convolution", "last hidden"


class LayerScore(NamedTuple):
    """A score: the layer that it reads (outputs or a hidden layer), and how it is made for k classes."""

    label: str
    layer: str
    make: Callable[[int], Scorer]


class Method(NamedTuple):
    """A row of the table; several scores have a ``combination``, see :class:`openradial.scorers.Combination`."""

    name: str
    network: str
    scores: tuple[LayerScore, ...]
    combination: str | None = None

    @property
    def is_ours(self) -> bool:
        return self.network == RECIPE


@dataclass(frozen=True)
class NetworkSettings:
    """The architecture and the training settings that all networks of a comparison share."""

    model: str
    options: Mapping[str, Any]
    settings: Settings

    @property
    def layers(self) -> dict[str, str]:
        """Return the layers that scorers may read, by the name that methods use."""
        prefix = next((start for start in LAYERS if self.model.startswith(start)), None)
        names = [f"{layer}:input" for layer in LAYERS[prefix]] if prefix else []
        return dict(zip((FULLY, CONVOLUTION), names, strict=False)) | {LAST: "classifier:input"}


@dataclass(frozen=True)
class Contender:
    """A way to train a network: a recipe, and settings that differ from the shared ones."""

    recipe: Recipe
    settings: Mapping[str, Any] = field(default_factory=dict)


NETWORKS = {
    "softmax": Contender(Recipe("softmax")),
    "DOC": Contender(Recipe("doc")),
    "CAC": Contender(Recipe("cac")),
    "radial": Contender(Recipe(loss="distance", beta=1.0)),
    "radial, squared": Contender(Recipe(beta=1.0)),
    RECIPE: Contender(Recipe(beta=1.0, outliers=DEFAULTS["images"])),
}

PROBABILITY = LayerScore("msp", "outputs", SoftmaxHead)
LOGIT = LayerScore("max_logit", "outputs", lambda k: SoftmaxHead(k, score="max_logit"))
ENERGY = LayerScore("energy", "outputs", lambda k: SoftmaxHead(k, score="energy"))
OPENMAX = LayerScore("OpenMax", "outputs", OpenMaxHead)
DOC = LayerScore("DOC", "outputs", DOCHead)
CAC = LayerScore("CAC's score", "outputs", CACHead)
ANCHOR = LayerScore("distance", "outputs", lambda k: CACHead(k, score="distance"))
DISTANCE = LayerScore("distance", "outputs", RadialHead)
MAHALANOBIS = LayerScore("Mahalanobis", FULLY, lambda _: MahalanobisScorer())
MAHALANOBIS_PP = LayerScore("Mahalanobis++", FULLY, lambda _: MahalanobisScorer(normalise=True))
RELATIVE_PP = LayerScore("relative Mahalanobis++", FULLY, lambda _: MahalanobisScorer(normalise=True, relative=True))
PARZEN = LayerScore("radial basis functions", FULLY, lambda _: ParzenScorer(centres=CENTRES))
MIXTURE = LayerScore("Gaussian mixture", FULLY, lambda _: MixtureScorer(covariance="diag"))
NEAR = LayerScore("nearest neighbour", FULLY, lambda _: NeighbourScorer(k=1))
NEAR_CONVOLUTION = NEAR._replace(label="nearest neighbour, convolution", layer=CONVOLUTION)
DIRECTION = LayerScore("nearest direction", FULLY, lambda _: NeighbourScorer(k=1, normalise=True))
DIRECTION_CONVOLUTION = DIRECTION._replace(label="nearest direction, convolution", layer=CONVOLUTION)

METHODS = (
    *(Method(f"softmax: {p.label}", "softmax", (p,)) for p in (PROBABILITY, LOGIT, ENERGY, OPENMAX)),
    *(Method(f"softmax: {p.label}", "softmax", (p,)) for p in (MAHALANOBIS, MAHALANOBIS_PP, RELATIVE_PP)),
    *(Method(f"softmax: {p.label}", "softmax", (p,)) for p in (PARZEN, MIXTURE, NEAR, NEAR_CONVOLUTION)),
    Method("softmax: both neighbours", "softmax", (NEAR, NEAR_CONVOLUTION), "standardised"),
    Method("softmax: both directions", "softmax", (DIRECTION, DIRECTION_CONVOLUTION), "fisher"),
    Method("DOC", "DOC", (DOC,)),
    Method("CAC: authors' score", "CAC", (CAC,)),
    Method("CAC: distance", "CAC", (ANCHOR,)),
    *(Method(f"radial: {p.label}", "radial", (p,)) for p in (DISTANCE, NEAR, NEAR_CONVOLUTION)),
    Method("radial, squared: distance", "radial, squared", (DISTANCE,)),
    Method("ours: distance", RECIPE, (DISTANCE,)),
    Method("ours: distance + neighbour", RECIPE, (DISTANCE, NEAR), "standardised"),
    Method("ours: distance + both neighbours", RECIPE, (DISTANCE, NEAR, NEAR_CONVOLUTION), "standardised"),
    Method("ours: distance + both directions", RECIPE, (DISTANCE, DIRECTION, DIRECTION_CONVOLUTION), "fisher"),
)


class Scores:
    """The unknown scores of one network on every set, each fitted and computed once.

    ``sets`` holds the layers of ``train``, of two halves of the held-out known data, ``fit`` and ``calibration``, of
    ``test`` and of each novel set. Scorers are fitted on ``train``, combinations on ``fit``, rejectors on
    ``calibration``: none of them sees a novel input.
    """

    def __init__(
        self, sets: Mapping[str, Mapping[str, Tensor]], labels: Mapping[str, Tensor], num_classes: int
    ) -> None:
        self.sets, self.labels, self.num_classes = sets, labels, num_classes
        self._kept: dict[tuple[str, str], dict[str, Tensor]] = {}

    @torch.no_grad()
    def of(self, score: LayerScore) -> dict[str, Tensor]:
        """Return one score on every set but ``train``."""
        key = (score.label, score.layer)
        if key not in self._kept:
            scorer = score.make(self.num_classes).fit(self.sets["train"][score.layer], self.labels["train"])
            layers = {name: each[score.layer] for name, each in self.sets.items() if name != "train"}
            self._kept[key] = {name: scorer.unknown_score(z) for name, z in layers.items()}
        return self._kept[key]

    def merged(self, method: Method) -> dict[str, Tensor]:
        """Return the score of a method on every set but ``train``."""
        columns = [self.of(score) for score in method.scores]
        if method.combination is None:
            return columns[0]
        stacked = {name: torch.stack([column[name] for column in columns], 1) for name in columns[0]}
        merge = Combination(method.combination).fit(stacked["fit"])  # type: ignore[arg-type]
        return {name: merge.unknown_score(rows) for name, rows in stacked.items()}


def measured(methods: Iterable[Method], head: Head, scores: Scores, novel: Iterable[str]) -> list[dict[str, Any]]:
    """Return a row of numbers for each method of a network that was trained with the head."""
    head, novel = _calibrated(head, scores), list(novel)
    o, y = scores.sets["test"]["outputs"], scores.labels["test"].numpy()
    labels = head.predict(o).numpy()
    known = {"accuracy": float((labels == y).mean()), "ece": metrics.ece(head.probs(o).double().numpy(), y, labels)}
    return [_row(method, scores.merged(method), labels == y, known, novel) for method in methods]


def _calibrated(head: Head, scores: Scores) -> Head:
    """Return the head with its temperature or beta fitted to held-out known data, so that its ECE is fair.

    Without a misclassified example there is nothing to fit, and the head stays as it is.
    """
    held_out, y = scores.sets["fit"]["outputs"], scores.labels["fit"]
    try:
        if isinstance(head, SoftmaxHead):
            return SoftmaxHead(head.num_classes, temperature="fit").fit(held_out, y)
        if isinstance(head, RadialHead):
            return RadialHead(head.num_classes, beta=fit_beta(head.layer.distances(held_out), y).beta)
    except (HeadError, ShapeError):
        return head
    return head.fit(scores.sets["train"]["outputs"], scores.labels["train"])


def _row(
    method: Method, scores: Mapping[str, Tensor], correct: Any, known: Mapping[str, float], novel: list[str]
) -> dict[str, Any]:
    rejector = Rejector(FALSE_REJECT_RATE).fit(scores["calibration"])
    rejected = {name: float(rejector.rejects(scores[name]).double().mean()) for name in ("test", *novel)}
    row: dict[str, Any] = {"method": method.name, "network": method.network, **known}
    row |= {"false_reject_rate": rejected["test"], "novel": {}}
    for name in novel:
        values = metrics.summary(scores["test"].numpy(), scores[name].numpy(), correct)
        numbers = {"auroc": values["auroc"], "fpr95": values["fpr_at_tpr"], "oscr": values["oscr"]}
        row["novel"][name] = numbers | {"detected": rejected[name]}
    return row
