"""How a classifier is trained and scored, as plain data: the one definition for fit, estimator, comparison and page.

Every constant here was chosen on known data alone; docs/recipe.md has the measurements.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any, Literal

from torch import Tensor, nn

from openradial.errors import OptionError, check_choice, check_count, check_label_smoothing, check_positive
from openradial.functional import safe_beta
from openradial.heads import CACHead, ClosedFormRadialHead, DOCHead, Head, RadialHead, SoftmaxHead
from openradial.nn import RadialLoss
from openradial.nn.objective import MixupObjective
from openradial.scorers import Combination, MahalanobisScorer, NeighbourScorer, Scorer
from openradial.scorers.mahalanobis import Shrinkage
from openradial.training import Objective
from openradial.training.outliers import DEFAULTS, OutlierObjective, check_kinds

__all__ = ["Recipe", "closed_form_recipe", "default_recipe", "hidden_layer_names"]

HeadName = Literal["radial", "softmax", "doc", "cac"]
RadialScoreName = Literal["distance", "projection"]
LossName = Literal["squared", "distance", "rescaled"]
MethodName = Literal["gradient", "closed-form"]
ClassWeightName = Literal["balanced", "sqrt", "auto"]
CombinationName = Literal["standardised", "fisher"]

HEADS: dict[str, Callable[[int], Head]] = {"softmax": SoftmaxHead, "doc": DOCHead, "cac": CACHead}
OUTPUTS, LAST = "outputs", "classifier"
# layers that find inputs of another kind; so shrunk, an image with four fifths of the pixels is not of another kind
FAR_LAYERS: dict[str, Shrinkage] = {"middle": "oas", "bands": 0.02}
FEW_CLASSES = 10  # of photographs: with fewer, the Mahalanobis distance counts as much as the outputs
METRICS = {"distance": "euclidean", "squared": "squared_euclidean", "rescaled": "squared_euclidean"}
LAYERS = {"mnist": ("fc2", "fc1"), "mlp": ("hidden.fc2",), "spiral": ("hidden.fc2",)}  # by the start of the name
REFERENCES = 10_000  # training examples among which neighbours are searched
MIN_COMBINATION = 20  # held-out examples that a combination of scores needs
RANDOM_FEATURES = {  # up to so many examples, so many random features
    "table": ((1_000, 500), (10_000, 1_000)),
    "texts": ((1_000, 500), (2_500, 1_000)),
}
MOST_RANDOM_FEATURES = 2_000  # for more examples
EMBEDDING = 64  # numbers from which rows that are no table are compared by direction


@dataclass(frozen=True)
class Recipe:
    """Loss, outliers, scorers, combination and beta of a classifier.

    Args:
        head: ``"radial"``, ``"softmax"``, ``"doc"`` or ``"cac"``; the other settings are for the radial head.
        loss: ``"squared"``, ``"distance"`` (the paper's) or ``"rescaled"``, see :class:`openradial.heads.RadialHead`.
        score: of the outputs, see :class:`openradial.heads.RadialHead`; in closed form chosen like ``weights``.
        scale: distance of the prototypes from the origin.
        beta: a number; ``"safe"``, see :func:`openradial.functional.safe_beta`; or ``"fit"``, fitted to held-out data.
        outliers: kinds of outliers to make from each batch while training, see ``openradial.training.make_outliers``.
        outlier_weight: weight of their loss; 0 for none.
        label_smoothing: moves the target from its prototype to the centre of all, by this share.
        mixup: train on weighted means of two examples, with weights from Beta(mixup, mixup); 0 for none.
        layers: hidden layers to compare with the training data, as :func:`openradial.nn.hidden_layers` names them.
        neighbours: the distance to this nearest training example counts.
        relative: divide that distance by the usual one in the example's class, see
            :class:`openradial.scorers.NeighbourScorer`.
        cosine: compare the directions of activations instead of their positions.
        combination: how the scores of the outputs and of the layers become one.
        far_axis: give the outputs one more axis, so that no class is probable far from the training data, see
            :class:`openradial.scorers.NormScorer`; not for texts and sequences, nor for features of an encoder.
        method: ``"gradient"``, or ``"closed-form"``, which solves the radial head on features that are not trained, see
            :class:`openradial.heads.ClosedFormRadialHead`; and so ``random_features`` and ``squares``.
        weights: in closed form, those of the radial distance, the Mahalanobis distance and the nearest neighbour; 0
            leaves a score out. With six classes or more, :func:`openradial.fit` chooses others if they are clearly
            better for known classes that are left out.
        class_weight: None, ``"balanced"``, its root ``"sqrt"``, or in closed form ``"auto"``, by the leave-one-out
            macro error, or a weight per class.
    """

    head: HeadName = "radial"
    loss: LossName = "squared"
    score: RadialScoreName = "distance"
    scale: float = 1.0
    beta: float | Literal["safe", "fit"] = "fit"
    outliers: tuple[str, ...] = ()
    outlier_weight: float = 0.3
    label_smoothing: float = 0.0
    mixup: float = 0.0
    layers: tuple[str, ...] = ()
    neighbours: int = 1
    relative: bool = False
    cosine: bool = False
    combination: CombinationName = "standardised"
    far_axis: bool = True
    method: MethodName = "gradient"
    random_features: int = 0
    squares: bool = False
    weights: tuple[float, float, float] = (1.0, 0.0, 1.0)
    class_weight: ClassWeightName | tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        check_choice("method", self.method, ("gradient", "closed-form"))
        check_count("random_features", self.random_features, least=0, most=2**15)  # the square of it is allocated
        if len(self.weights) != 3 or min(self.weights) < 0 or not 0 < self.weights[0] < float("inf"):
            raise OptionError(f"weights must be three numbers of at least 0, the first above 0, got {self.weights!r}")
        if isinstance(self.class_weight, str):
            check_choice("class_weight", self.class_weight, ("balanced", "sqrt", "auto"))
        self._check_method()
        check_choice("head", self.head, ("radial", *HEADS))
        check_choice("loss", self.loss, METRICS)
        check_choice("score", self.score, ("distance", "projection"))
        check_positive("scale", self.scale)
        if self.scale > 1e15:  # squares of larger distances are not finite in float32
            raise OptionError(f"scale must be at most 1e+15, got {self.scale:g}")
        if isinstance(self.beta, str):
            check_choice("beta", self.beta, ("safe", "fit"))
        else:
            check_positive("beta", self.beta)
        weight = self.outlier_weight
        if isinstance(weight, bool) or not isinstance(weight, Real) or not 0 <= weight < float("inf"):
            raise OptionError(f"outliers must have a finite weight of at least 0, got {weight!r}; 0 makes none")
        if self.outliers:
            check_kinds(self.outliers)
        check_label_smoothing(self.label_smoothing)
        if self.label_smoothing and self.head not in ("radial", "softmax"):
            raise OptionError(f"label_smoothing is for the heads radial and softmax, got {self.head!r}; leave it out")
        if self.mixup:
            check_positive("mixup", self.mixup)
            if self.outliers and weight:
                raise OptionError("mixup gives means of examples a class, and outliers none; set outliers=0")
        check_count("neighbours", self.neighbours)

    def make_head(self, num_classes: int) -> Head:
        """Return the head, not yet fitted."""
        if self.head != "radial":
            return HEADS[self.head](num_classes)
        beta = safe_beta(num_classes, self.scale) if isinstance(self.beta, str) else self.beta
        return RadialHead(num_classes, beta, self.scale, score=self.score, loss=self.loss)

    def make_closed_form_head(self, classes: Sequence[str], num_features: int, seed: int = 0) -> ClosedFormRadialHead:
        """Return the head that is solved on features, not yet fitted."""
        beta = safe_beta(len(classes), self.scale) if isinstance(self.beta, str) else self.beta
        options: dict[str, Any] = {"class_weight": self.class_weight, "random_features": self.random_features}
        options["squares"] = self.squares
        return ClosedFormRadialHead(classes, num_features, beta, self.scale, seed=seed, **options)

    def make_objective(self, head: Head, class_weight: Tensor | None = None) -> Objective | OutlierObjective:
        """Return what training minimises: the loss of the head, and that of outliers if there are any."""
        loss: Any = head.loss
        options: dict[str, Any] = {"weight": class_weight, "label_smoothing": self.label_smoothing}
        if self.head == "softmax":
            loss = nn.CrossEntropyLoss(**options)
        elif self.head == "radial":  # without beta, which only scales the loss and may be fitted after training
            options |= {"metric": METRICS[self.loss], "target_weight": head.target_weight}
            loss = RadialLoss(scale=self.scale, **options)
        if self.mixup:
            return MixupObjective(loss, alpha=self.mixup)
        has_outliers = self.outliers and self.outlier_weight
        return OutlierObjective(loss, self.outliers, self.outlier_weight) if has_outliers else Objective(loss)

    def make_scorers(self, head: Head, weights: Sequence[float] | None = None) -> list[tuple[str, Scorer]]:
        """Return the scorers with their layers: the score of the head, and others of the hidden layers.

        In closed form they are those with a weight above 0: in ``weights``, or in those of the recipe.
        """
        others: list[tuple[str, Scorer]] = []
        _, mahalanobis, near = (0.0, 0.0, 1.0) if self.method == "gradient" else weights or self.weights
        for layer in self.layers:
            if layer in FAR_LAYERS:
                others.append((layer, MahalanobisScorer(shrinkage=FAR_LAYERS[layer])))
                continue
            if mahalanobis:
                others.append((layer, MahalanobisScorer(normalise=self.cosine, shrinkage="oas")))
            if near:
                others.append((layer, NeighbourScorer(self.neighbours, normalise=self.cosine, relative=self.relative)))
        return [(OUTPUTS, head), *others] if others else []

    def make_combination(self, weights: Sequence[float] | None = None) -> Combination:
        """Return how the scores become one, not yet fitted; ``weights`` as in :meth:`make_scorers`."""
        if self.method == "gradient":
            return Combination(self.combination)
        used = [weight for weight in weights or self.weights if weight]
        return Combination("standardised", weights=used, tail=sum(layer in FAR_LAYERS for layer in self.layers))

    def _check_method(self) -> None:
        if self.method == "gradient":
            if self.random_features:
                raise OptionError("random_features is for method='closed-form', got method='gradient'; leave it out")
            if self.class_weight not in (None, "balanced", "sqrt"):
                raise OptionError(
                    f"class_weight={self.class_weight!r} is for method='closed-form'; use 'balanced', 'sqrt' or None"
                )
        elif self.head != "radial" or self.loss != "squared":
            raise OptionError(
                "method='closed-form' solves the radial head with the squared loss, got "
                f"head={self.head!r} and loss={self.loss!r}; use method='gradient'"
            )

    def as_dict(self) -> dict[str, Any]:
        """Return the recipe as JSON values."""
        return asdict(self) | {name: list(getattr(self, name)) for name in ("outliers", "layers", "weights")}


def default_recipe(net: nn.Module, network: str, kind: str, **options: Any) -> Recipe:
    """Return the recipe for a network (its module and its name) and a kind of data, with single values replaced.

    A network with convolutions compares directions and combines p-values: better behind convolutions. A head other than
    the radial one is trained with its own loss and scored by its own score.
    """
    if (head := options.get("head", "radial")) != "radial":
        defaults: dict[str, Any] = {"label_smoothing": 0.2} if head == "softmax" and network == "fast_cnn" else {}
        return Recipe(**defaults | options)
    has_convolutions = any(isinstance(layer, nn.Conv2d) for layer in net.modules())
    defaults = {"outliers": DEFAULTS[kind], "layers": hidden_layer_names(net, network)}
    defaults["class_weight"] = "sqrt" if kind == "texts" else None  # topics are of unequal size: see docs/recipe.md
    if has_convolutions:
        defaults |= {"cosine": True, "combination": "fisher"}
    if options.get("mixup"):
        defaults["outlier_weight"] = 0.0
    if network == "fast_cnn":  # outliers double the work, which longer training uses better
        defaults |= {"outlier_weight": 0.0, "score": "projection", "relative": True}
    return Recipe(**defaults | options)


def closed_form_recipe(kind: str, examples: int, classes: int = FEW_CLASSES, **options: Any) -> Recipe:
    """Return the recipe for features that are not trained, of a kind of data and a number of examples and classes.

    Columns of a table get random features and Euclidean distances; other features, such as embeddings, are compared by
    direction. Texts get random features, photographs the Mahalanobis distance: each hurts the other kind. Both are
    encoded as bounded features, in which nothing is far away, so they have no far axis.
    """
    defaults: dict[str, Any] = {"outliers": DEFAULTS["table"], "layers": (OUTPUTS,)}
    if kind in RANDOM_FEATURES:
        few = (count for most, count in RANDOM_FEATURES[kind] if examples <= most)
        defaults["random_features"] = next(few, MOST_RANDOM_FEATURES)
    if kind != "table":
        defaults |= {"cosine": True, "weights": (1.0, 0.0, 2.0) if kind == "texts" else (2.0, 1.0, 0.0)}
        defaults["far_axis"] = kind == "points"
    if kind == "images":
        defaults |= {"score": "projection", "weights": (2.0, 2.0 if classes < FEW_CLASSES else 1.0, 0.0)}
    return Recipe(**defaults | {"method": "closed-form"} | options)


def hidden_layer_names(net: nn.Module, network: str) -> tuple[str, ...]:
    """Return the layers to look at: those of the table above, else the input of the last affine layer, if any."""
    modules = dict(net.named_modules())
    wanted = next((names for start, names in LAYERS.items() if network.startswith(start)), (LAST,))
    names = [name for name in wanted if name in modules]
    if not names and isinstance(modules.get(LAST), nn.Linear):
        names = [LAST]
    return tuple(f"{name}:input" for name in names)
