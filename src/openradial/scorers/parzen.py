"""Parzen windows: a density of radial basis functions (Bishop 1994, on novelty detection)."""

import math
from collections.abc import Callable
from typing import ClassVar, Self

import torch
from torch import Tensor

from openradial.errors import OptionError, check_count, check_positive
from openradial.scorers.base import FeatureScorer, check_features, draw_rows, squared_distances

PAIRS = 2**21  # pairs of a row and a centre that determine h: those of 1,448 rows with each other
FEWEST = 128  # fewest rows that determine h
GRID, STEPS = 16, 16
GOLDEN = (math.sqrt(5) - 1) / 2


class ParzenScorer(FeatureScorer):
    r"""Minus the log of a density that is a mean of Gaussians around known examples.

    :math:`p(z) = \frac{1}{m} \sum_j \mathcal N(z; c_j, h^2 I)`. The centres are all known rows, or with ``centres=m``
    m of them, drawn at random with ``seed``.

    The bandwidth h is given, or the one under which each row is most likely given the others: leave-one-out likelihood,
    in which exact copies of a row are left out with it. For large sets a random sample of the rows is used.

    >>> known = torch.tensor([[-1.0], [1.0]])
    >>> ParzenScorer(bandwidth=1.0).fit(known).unknown_score(torch.tensor([[0.0], [9.0]]))
    tensor([ 1.4189, 33.6121])
    """

    fitted: ClassVar[tuple[str, ...]] = ("means", "fitted_bandwidth")
    fitted_bandwidth: Tensor

    def __init__(self, bandwidth: float | None = None, *, centres: int | None = None, seed: int = 0) -> None:
        super().__init__()
        if bandwidth is not None:
            check_positive("bandwidth", bandwidth)
        if centres is not None:
            check_count("centres", centres)
        check_count("seed", seed, least=0)
        self.bandwidth, self.centres, self.seed = bandwidth, centres, int(seed)

    def fit(self, z: Tensor, y: Tensor | None = None) -> Self:
        """Set the centres and the bandwidth; labels are not used."""
        check_features(z)
        rows = z.detach().double()
        selected = draw_rows(len(rows), len(rows) if self.centres is None else self.centres, self.seed).sort().values
        self.means = rows[selected.to(rows.device)]
        bandwidth = likelihood_bandwidth(rows, selected, self.seed) if self.bandwidth is None else self.bandwidth
        self.fitted_bandwidth = rows.new_tensor(bandwidth)
        return self

    def _score(self, z: Tensor) -> Tensor:
        count, width = self.means.shape
        squared = self.fitted_bandwidth.double().square()
        exponents = -squared_distances(z, self.means.double()) / (2 * squared)  # (b, m)
        return width / 2 * (2 * math.pi * squared).log() + math.log(count) - exponents.logsumexp(1)


def likelihood_bandwidth(rows: Tensor, selected: Tensor, seed: int) -> float:
    r"""Return the h that maximises the mean over rows of :math:`\log p(z_i)`, where row i is no centre.

    The derivative vanishes where h² is the mean squared distance per dimension, averaged with the shares that the
    centres have in a row's density. These shares prefer near centres, so h lies between the root mean square distance
    to the nearest centre and that to all.
    """
    sample = draw_rows(len(rows), max(FEWEST, PAIRS // len(selected)), seed)
    z, centres = rows[sample.to(rows.device)], rows[selected.to(rows.device)]
    squares, centre = squared_distances(z, centres), centres.mean(0)
    lengths = (z - centre).square().sum(1, keepdim=True) + (centres - centre).square().sum(1)
    others = squares > 4 * (z.shape[1] + 8) * torch.finfo(z.dtype).eps * lengths  # not equal up to rounding, (b, m)
    others &= (sample[:, None] != selected).to(rows.device)
    squares = squares.where(others, torch.inf)[others.any(1)]
    if not len(squares):
        return _checked(0.0)
    nearest, finite = squares.amin(1).mean(), squares.isfinite()
    average = (squares.where(finite, 0.0).sum(1) / finite.sum(1)).mean()
    low, high = (0.5 * math.log(_checked(float(mean)) / rows.shape[1]) for mean in (nearest, average))
    counts = finite.sum(1).double().log()

    def likelihood(log_h: float) -> float:
        exponents = (squares * (-0.5 * math.exp(-2 * log_h))).logsumexp(1) - counts
        return float(exponents.mean()) - rows.shape[1] * log_h

    return math.exp(_maximum(likelihood, low, high))


def _maximum(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function is largest: the best point of a grid, then golden-section search around it."""
    step = (high - low) / (GRID - 1)
    best = max((low + step * i for i in range(GRID)), key=function)
    low, high = max(low, best - step), min(high, best + step)
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(STEPS):
        if at_left >= at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = function(right)
    return (low + high) / 2


def _checked(value: float) -> float:
    if value <= 0:
        raise OptionError("the bandwidth cannot be determined from one row or from identical rows; give the bandwidth")
    return value
