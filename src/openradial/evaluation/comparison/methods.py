"""The methods of a comparison: which network, which scores, and how scores are combined."""

from collections.abc import Callable
from typing import NamedTuple

from openradial.heads import CACHead, DOCHead, OpenMaxHead, RadialHead, SoftmaxHead
from openradial.scorers import MahalanobisScorer, MixtureScorer, NeighbourScorer, ParzenScorer, Scorer

CENTRES = 5_000  # of the Parzen window: all 55,000 of MNIST give the same result at ten times the cost


class Score(NamedTuple):
    """A score: the layer that it reads (outputs or a hidden layer), and how it is made for k classes."""

    label: str
    layer: str
    make: Callable[[int], Scorer]


class Method(NamedTuple):
    """A row of the table; several scores have a ``combination``, see :class:`openradial.scorers.Combination`."""

    name: str
    network: str
    scores: tuple[Score, ...]
    combination: str | None = None

    @property
    def is_ours(self) -> bool:
        return self.network == RECIPE


RECIPE = "radial, squared, outliers"
FULLY, CONVOLUTION, LAST = "fully connected", "convolution", "last hidden"

PROBABILITY = Score("msp", "outputs", SoftmaxHead)
LOGIT = Score("max_logit", "outputs", lambda k: SoftmaxHead(k, score="max_logit"))
ENERGY = Score("energy", "outputs", lambda k: SoftmaxHead(k, score="energy"))
OPENMAX = Score("OpenMax", "outputs", OpenMaxHead)
DOC = Score("DOC", "outputs", DOCHead)
CAC = Score("CAC's score", "outputs", CACHead)
ANCHOR = Score("distance", "outputs", lambda k: CACHead(k, score="distance"))
DISTANCE = Score("distance", "outputs", RadialHead)
MAHALANOBIS = Score("Mahalanobis", FULLY, lambda _: MahalanobisScorer())
PARZEN = Score("radial basis functions", FULLY, lambda _: ParzenScorer(centres=CENTRES))
MIXTURE = Score("Gaussian mixture", FULLY, lambda _: MixtureScorer(covariance="diag"))
NEAR = Score("nearest neighbour", FULLY, lambda _: NeighbourScorer(k=1))
NEAR_CONVOLUTION = Score("nearest neighbour, convolution", CONVOLUTION, lambda _: NeighbourScorer(k=1))
DIRECTION = Score("nearest direction", FULLY, lambda _: NeighbourScorer(k=1, normalise=True))
DIRECTION_CONVOLUTION = Score(
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
