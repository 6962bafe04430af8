"""How wide the Gaussians of a Parzen window should be, found from known data."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from openradial.errors import OptionError
from openradial.scorers.density import squared_distances
from openradial.scorers.neighbour_search import Rows

PAIRS = 2**21  # pairs of a row and a centre that decide: those of 1,448 rows with each other
ROWS = 4096  # rows that decide by their neighbours
FEWEST = 128  # rows that decide at least
TRIES, STEPS = 16, 16
GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Kernels:
    """The centres, how many rows each stands for, and of which one each row is a part, -1 for none."""

    points: Tensor  # (m, d)
    counts: Tensor  # (m,)
    owner: Tensor  # (n,)


def neighbour_bandwidth(rows: Tensor, k: int, seed: int) -> float:
    """The mean distance of a row to its k nearest others, averaged over the rows."""
    if k >= len(rows):
        raise OptionError(
            f"k must be below the number of rows to find the bandwidth, got k={k} but {len(rows)} rows; take a smaller "
            "k or give the bandwidth"
        )
    sample = _sample(rows, ROWS, seed)
    return _checked(float(Rows(rows).nearest(rows[sample], k, sample).mean()))


def likelihood_bandwidth(rows: Tensor, kernels: Kernels, seed: int) -> float:
    r"""The h that maximises the mean over rows of :math:`\log p(z_i)`, where row i is taken out of its centre.

    The derivative vanishes where h² is the mean squared distance per dimension, averaged with the shares that the
    centres have in a row's density. These shares prefer near centres, so h lies between the root mean square distance
    to the nearest centre and that to all.
    """
    sample = _sample(rows, max(FEWEST, PAIRS // len(kernels.points)), seed)
    squares, log_weights = _without_itself(rows[sample], kernels, kernels.owner[sample])
    some = log_weights.isfinite().any(1)
    squares, log_weights = squares[some], log_weights[some]
    if not len(squares):
        return _checked(0.0)
    nearest = squares.where(log_weights.isfinite(), torch.inf).amin(1).mean()
    average = (log_weights.softmax(1) * squares).sum(1).mean()
    low, high = (0.5 * math.log(_checked(float(mean)) / rows.shape[1]) for mean in (nearest, average))

    def likelihood(log_h: float) -> float:
        exponents = log_weights - squares * (0.5 * math.exp(-2 * log_h))
        return float(exponents.logsumexp(1).mean()) - rows.shape[1] * log_h

    return math.exp(_maximum(likelihood, low, high))


def _sample(rows: Tensor, most: int, seed: int) -> Tensor:
    if len(rows) <= most:
        return torch.arange(len(rows), device=rows.device)
    return torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:most].to(rows.device)


def _without_itself(z: Tensor, kernels: Kernels, owner: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distances and log weights of the centres when each row is taken out of its own; ``(b, m), (b, m)``.

    Without a row x, the mean c of n rows lies n/(n-1) times as far from x, and stands for n-1 rows.
    """
    squares = squared_distances(z, kernels.points)
    is_copy = squares <= _rounding(z, kernels.points)
    counts = kernels.counts.repeat(len(z), 1)
    inside = (owner >= 0).nonzero().squeeze(1)
    at = inside, owner[inside]
    left = counts[at] - 1
    squares[at] *= (counts[at] / left.clamp_min(1)).square()
    counts[at] = left
    log_weights = counts.log() - counts.sum(1, keepdim=True).log()
    return squares, log_weights.masked_fill(is_copy, -torch.inf)


def _rounding(z: Tensor, points: Tensor) -> Tensor:
    """What :func:`squared_distances` may give for equal rows, ``(b, m)``."""
    centre = points.mean(0)
    lengths = (z - centre).square().sum(1, keepdim=True) + (points - centre).square().sum(1)
    return 4 * (z.shape[1] + 8) * torch.finfo(z.dtype).eps * lengths


def _maximum(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function is largest: the best of a row of tries, then the golden section around it."""
    step = (high - low) / (TRIES - 1)
    best = max((low + step * i for i in range(TRIES)), key=function)
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
        raise OptionError(
            "the bandwidth cannot be found from rows that are all the same, or from one alone; give the bandwidth"
        )
    return value
