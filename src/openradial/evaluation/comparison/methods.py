"""The rows of a comparison: which network, which score, and how scores are merged."""

from collections.abc import Callable
from typing import NamedTuple

from openradial.heads import CACHead, DOCHead, OpenMaxHead, RadialHead, SoftmaxHead
from openradial.scorers import MahalanobisScorer, MixtureScorer, NeighbourScorer, ParzenScorer, Scorer

CENTRES = 5_000  # of the Parzen window: all of MNIST's 55,000 give the same picture at ten times the cost


class Part(NamedTuple):
    """A score: what it looks at (the outputs or a hidden layer), and how it is made for k classes."""

    label: str
    place: str
    make: Callable[[int], Scorer]


class Method(NamedTuple):
    """A row of the table. ``merge`` is a method of :class:`openradial.scorers.Combination`, for several parts."""

    name: str
    network: str
    parts: tuple[Part, ...]
    merge: str | None = None

    @property
    def is_ours(self) -> bool:
        return self.network == RECIPE


RECIPE = "radial, squared, outliers"
FULLY, CONVOLUTION, LAST = "fully connected", "convolution", "last hidden"

PROBABILITY = Part("msp", "outputs", SoftmaxHead)
LOGIT = Part("max_logit", "outputs", lambda k: SoftmaxHead(k, score="max_logit"))
ENERGY = Part("energy", "outputs", lambda k: SoftmaxHead(k, score="energy"))
OPENMAX = Part("OpenMax", "outputs", OpenMaxHead)
DOC = Part("DOC", "outputs", DOCHead)
CAC = Part("CAC's score", "outputs", CACHead)
ANCHOR = Part("distance", "outputs", lambda k: CACHead(k, score="distance"))
DISTANCE = Part("distance", "outputs", RadialHead)
MAHALANOBIS = Part("Mahalanobis", FULLY, lambda _: MahalanobisScorer())
PARZEN = Part("radial basis functions", FULLY, lambda _: ParzenScorer(centres=CENTRES))
MIXTURE = Part("Gaussian mixture", FULLY, lambda _: MixtureScorer(covariance="diag"))
NEAR = Part("nearest neighbour", FULLY, lambda _: NeighbourScorer(k=1))
NEAR_CONVOLUTION = Part("nearest neighbour, convolution", CONVOLUTION, lambda _: NeighbourScorer(k=1))
DIRECTION = Part("nearest direction", FULLY, lambda _: NeighbourScorer(k=1, normalise=True))
DIRECTION_CONVOLUTION = Part(
    "nearest direction, convolution", CONVOLUTION, lambda _: NeighbourScorer(k=1, normalise=True)
)

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
