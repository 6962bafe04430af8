"""Parzen windows: a density of radial basis functions (Bishop 1994, on novelty detection)."""

import math
from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor

from openradial.errors import OptionError, check_choice, check_count, check_positive, require
from openradial.scorers.base import FeatureScorer, check_features, draw_rows, squared_distances
from openradial.scorers.neighbours import NeighbourSearch

PAIRS = 2**21  # pairs of a row and a centre that determine h: those of 1,448 rows with each other
ROWS = 4096  # most rows whose neighbours determine h
FEWEST = 128  # fewest rows that determine h
GRID, STEPS = 16, 16
GOLDEN = (math.sqrt(5) - 1) / 2


class Kernels(NamedTuple):
    """The centres, the number of rows of each, and the centre that each row belongs to, -1 for none."""

    points: Tensor  # (m, d)
    counts: Tensor  # (m,)
    owner: Tensor  # (n,)


class ParzenScorer(FeatureScorer):
    r"""Minus the log of a density that is a sum of Gaussians around known examples.

    :math:`p(z) = \sum_j w_j \, \mathcal N(z; c_j, h^2 I)`. The centres are all known rows, each with the weight 1/n.
    With ``centres=m`` they are m of them, drawn at random with ``seed`` (``choose="subset"``), or the means of m
    clusters weighted by their sizes (``"kmeans"``, which needs scikit-learn).

    The bandwidth h is given, or determined by a ``rule``. ``"likelihood"`` takes the h under which each row is most
    likely given the others: leave-one-out likelihood, in which exact copies of a row are left out with it.
    ``"neighbours"`` takes the mean distance of a row to its k nearest others, averaged over the rows, a rule that
    goes back to Bishop; in many dimensions it is far wider. For large sets a random sample of the rows is used.

    >>> known = torch.tensor([[-1.0], [1.0]])
    >>> ParzenScorer(bandwidth=1.0).fit(known).unknown_score(torch.tensor([[0.0], [9.0]]))
    tensor([ 1.4189, 33.6121])
    """

    fitted: ClassVar[tuple[str, ...]] = ("means", "log_weights", "fitted_bandwidth")
    log_weights: Tensor
    fitted_bandwidth: Tensor

    def __init__(
        self,
        bandwidth: float | None = None,
        *,
        rule: Literal["likelihood", "neighbours"] = "likelihood",
        k: int = 10,
        centres: int | None = None,
        choose: Literal["subset", "kmeans"] = "subset",
        seed: int = 0,
    ) -> None:
        super().__init__()
        if bandwidth is not None:
            check_positive("bandwidth", bandwidth)
        if centres is not None:
            check_count("centres", centres)
        check_choice("rule", rule, ("likelihood", "neighbours"))
        check_choice("choose", choose, ("subset", "kmeans"))
        check_count("k", k)
        check_count("seed", seed, least=0)
        self.bandwidth, self.rule, self.k = bandwidth, rule, int(k)
        self.centres, self.choose, self.seed = centres, choose, int(seed)

    def fit(self, z: Tensor, y: Tensor | None = None) -> Self:
        """Set the centres and the bandwidth; labels are not used."""
        check_features(z)
        rows = z.detach().double()
        kernels = self._kernels(rows)
        bandwidth = self.bandwidth
        if bandwidth is None and self.rule == "likelihood":
            bandwidth = likelihood_bandwidth(rows, kernels, self.seed)
        elif bandwidth is None:
            bandwidth = neighbour_bandwidth(rows, self.k, self.seed)
        self.means, self.log_weights = kernels.points, kernels.counts.log() - kernels.counts.sum().log()
        self.fitted_bandwidth = rows.new_tensor(bandwidth)
        return self

    def _kernels(self, rows: Tensor) -> Kernels:
        count = len(rows)
        if self.centres is None or self.centres >= count:
            return Kernels(rows.clone(), rows.new_ones(count), torch.arange(count, device=rows.device))
        if self.choose == "kmeans":
            return _clusters(rows, self.centres, self.seed)
        subset = draw_rows(count, self.centres, self.seed).sort().values
        owner = torch.full((count,), -1).index_copy(0, subset, torch.arange(len(subset)))
        return Kernels(rows[subset.to(rows.device)], rows.new_ones(len(subset)), owner.to(rows.device))

    def _score(self, z: Tensor) -> Tensor:
        squared = self.fitted_bandwidth.double().square()
        exponents = self.log_weights - squared_distances(z, self.means.double()) / (2 * squared)  # (b, m)
        return self.means.shape[1] / 2 * (2 * math.pi * squared).log() - exponents.logsumexp(1)


def _clusters(rows: Tensor, count: int, seed: int) -> Kernels:
    cluster = require("sklearn.cluster", "sklearn", "choose='kmeans'")
    assigned = cluster.KMeans(count, n_init=1, random_state=seed).fit_predict(rows.cpu().numpy())
    labels = torch.unique(torch.as_tensor(assigned, device=rows.device).long(), return_inverse=True)[1]
    counts = labels.bincount().to(rows)
    sums = rows.new_zeros(len(counts), rows.shape[1]).index_add(0, labels, rows)
    return Kernels(sums / counts.unsqueeze(1), counts, labels)


def neighbour_bandwidth(rows: Tensor, k: int, seed: int) -> float:
    """Return the mean distance of a row to its k nearest others, averaged over the rows."""
    if k >= len(rows):
        raise OptionError(
            f"k must be below the number of rows to find the bandwidth, got k={k} but {len(rows)} rows; use a smaller "
            "k or give the bandwidth"
        )
    sample = draw_rows(len(rows), ROWS, seed).to(rows.device)
    return _checked(float(NeighbourSearch(rows).nearest(rows[sample], k, sample).mean()))


def likelihood_bandwidth(rows: Tensor, kernels: Kernels, seed: int) -> float:
    r"""Return the h that maximises the mean over rows of :math:`\log p(z_i)`, where row i is removed from its centre.

    The derivative vanishes where h² is the mean squared distance per dimension, averaged with the shares that the
    centres have in a row's density. These shares prefer near centres, so h lies between the root mean square distance
    to the nearest centre and that to all.
    """
    sample = draw_rows(len(rows), max(FEWEST, PAIRS // len(kernels.points)), seed).to(rows.device)
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


def _without_itself(z: Tensor, kernels: Kernels, owner: Tensor) -> tuple[Tensor, Tensor]:
    """Return squared distances and log weights of the centres, each row removed from its centre; ``(b, m)`` twice.

    Without a row x, the mean c of n rows lies n/(n-1) times as far from x, and stands for n-1 rows.
    """
    squares = squared_distances(z, kernels.points)
    centre = kernels.points.mean(0)
    lengths = (z - centre).square().sum(1, keepdim=True) + (kernels.points - centre).square().sum(1)
    is_copy = squares <= 4 * (z.shape[1] + 8) * torch.finfo(z.dtype).eps * lengths  # rounding of equal rows, (b, m)
    counts = kernels.counts.repeat(len(z), 1)
    inside = (owner >= 0).nonzero().squeeze(1)
    at = inside, owner[inside]
    left = counts[at] - 1
    squares[at] *= (counts[at] / left.clamp_min(1)).square()
    counts[at] = left
    log_weights = counts.log() - counts.sum(1, keepdim=True).log()
    return squares, log_weights.masked_fill(is_copy, -torch.inf)


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
