"""What is compared: networks by recipe, and methods, which combine scores of the layers of a network."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from openradial.heads import CACHead, DOCHead, OpenMaxHead, RadialHead, SoftmaxHead
from openradial.recipe import LAYERS, Recipe
from openradial.scorers import MahalanobisScorer, MixtureScorer, NeighbourScorer, ParzenScorer, Scorer
from openradial.training import Settings
from openradial.training.outliers import DEFAULTS

CENTRES = 5_000  # of the Parzen window: all 55,000 of MNIST give the same result at ten times the cost
RECIPE = "radial, squared, outliers"
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
PARZEN = LayerScore("radial basis functions", FULLY, lambda _: ParzenScorer(centres=CENTRES))
MIXTURE = LayerScore("Gaussian mixture", FULLY, lambda _: MixtureScorer(covariance="diag"))
NEAR = LayerScore("nearest neighbour", FULLY, lambda _: NeighbourScorer(k=1))
NEAR_CONVOLUTION = NEAR._replace(label="nearest neighbour, convolution", layer=CONVOLUTION)
DIRECTION = LayerScore("nearest direction", FULLY, lambda _: NeighbourScorer(k=1, normalise=True))
DIRECTION_CONVOLUTION = DIRECTION._replace(label="nearest direction, convolution", layer=CONVOLUTION)

METHODS = (
    *(Method(f"softmax: {p.label}", "softmax", (p,)) for p in (PROBABILITY, LOGIT, ENERGY, OPENMAX)),
    *(Method(f"softmax: {p.label}", "softmax", (p,)) for p in (MAHALANOBIS, PARZEN, MIXTURE, NEAR, NEAR_CONVOLUTION)),
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
