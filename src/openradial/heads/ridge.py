r"""Ridge regression from features to prototypes, from statistics of the data alone.

With the scatter S of the features around their mean :math:`\mu` and the prototypes :math:`a e_k`, the solution is
:math:`W = B (S + \alpha I)^{-1}`, where row k of B is :math:`a w_k (\mu_k - \mu)`, :math:`w_k` the weight and
:math:`\mu_k` the mean of class k.
"""

import math
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple, Self

import torch
from torch import Tensor

from openradial.errors import OptionError
from openradial.scorers.base import limited_threads
from openradial.scorers.statistics import ClassStatistics

GRID = tuple(10 ** (power / 2) for power in range(-14, 5))  # alphas to choose from, in mean eigenvalues of the scatter
LARGE = 1_000  # features from which an eigendecomposition is slower than a few Cholesky factorisations
SMALLEST = 1e-12  # of 1 - leverage: an example that determines its own output completely
Casts = dict[tuple[torch.dtype, torch.device], "Affine"]  # a map by dtype and device


class Affine(NamedTuple):
    """The map from features to outputs: ``z @ weight.T + bias``."""

    weight: Tensor  # (k, d)
    bias: Tensor  # (k,)

    def to(self, like: Tensor, casts: Casts) -> "Affine":
        """Return the map in the dtype and on the device of a tensor, from ``casts`` if it is there."""
        made = casts.get((like.dtype, like.device))
        if made is None:
            with torch.inference_mode(False):  # a tensor made in that mode takes no part in gradients later
                made = Affine(*(part.to(like.device, like.dtype) for part in self))
            if not torch.compiler.is_compiling():
                casts[like.dtype, like.device] = made
        return made


@torch.inference_mode(False)  # a tensor made in that mode takes no part in gradients later
@torch.no_grad()
def solve(statistics: ClassStatistics, alpha: float, scale: float = 1.0) -> Affine:
    """Return the ridge solution for prototypes ``scale * e_k``, by one Cholesky factorisation."""
    weight = torch.cholesky_solve(covariances(statistics, scale).T, _factor(statistics, alpha)).T
    return Affine(weight, target_mean(statistics, scale) - weight @ statistics.mean)


def _factor(statistics: ClassStatistics, alpha: float) -> Tensor:
    """Return the Cholesky factor of the scatter with the penalty."""
    matrix = statistics.scatter.clone()
    matrix.diagonal().add_(alpha)
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if int(failed):
        raise OptionError(f"the features are linearly dependent, and alpha={alpha:g} is too small; choose a larger one")
    return factor


def alphas(statistics: ClassStatistics) -> list[float]:
    """Return the penalties to choose from; they grow with the scatter of the features."""
    unit = float(statistics.scatter.diagonal().mean()) or 1.0  # the mean eigenvalue, 0 if all features are constant
    return [unit * each for each in GRID]


def covariances(statistics: ClassStatistics, scale: float) -> Tensor:
    """Return the sums of target times centred features, ``(k, d)``."""
    return scale * statistics.weights.unsqueeze(1) * (statistics.means - statistics.mean)


def target_mean(statistics: ClassStatistics, scale: float) -> Tensor:
    """Return the mean of the prototypes of all examples, ``(k,)``."""
    return scale * statistics.weights / statistics.total


@dataclass(frozen=True, eq=False)
class RidgePath:
    """The leave-one-out outputs and errors for every alpha, from one eigendecomposition; for prototypes ``e_k``."""

    statistics: ClassStatistics
    values: Tensor  # (r,) eigenvalues of the scatter
    vectors: Tensor  # (d, r)
    targets: Tensor  # (r, k) covariances with the targets along the eigenvectors

    @classmethod
    @limited_threads(1)  # several would wait for each other a thousand times, on busy cores for minutes
    def of(cls, statistics: ClassStatistics, rows: Tensor | None = None) -> Self:
        """Decompose the scatter; ``rows``, all centred features ``(n, d)``, are faster if they are fewer than d."""
        if rows is not None and len(rows) < rows.shape[1]:
            values, left = torch.linalg.eigh(rows @ rows.T)
            keep = values > values[-1:] * torch.finfo(values.dtype).eps * len(values)
            values, vectors = values[keep], rows.T @ (left[:, keep] / values[keep].sqrt())
        else:
            values, vectors = torch.linalg.eigh(statistics.scatter)
        return cls(statistics, values.clamp_min(0), vectors, vectors.T @ covariances(statistics, 1.0).T)

    def project(self, z: Tensor) -> Tensor:
        """Return the coordinates of features along the eigenvectors, ``(n, d) -> (n, r)``."""
        return (z - self.statistics.mean) @ self.vectors

    def leave_one_out(self, projected: Tensor, y: Tensor, alpha: float, weights: Tensor | None = None) -> Tensor:
        """Return the output of each example under the solution without it, ``(n, k)``, in closed form.

        The examples, given by :meth:`project`, must be in the statistics; ``weights``, ``(n,)``, are theirs.
        """
        values = (self.values + alpha).unsqueeze(1)
        inverse = torch.where(values > 0, 1 / values, 0.0)  # (r, 1)
        outputs = torch.addmm(target_mean(self.statistics, 1.0), projected, self.targets * inverse)
        leverage = projected.square() @ inverse + 1 / self.statistics.total  # (n, 1)
        return _without_itself(outputs, leverage, y, weights)

    def generalised_cross_validation(self, alpha: float) -> float:
        """Return the leave-one-out squared error with the mean leverage for every example: needs no examples."""
        n, weights = self.statistics.total, self.statistics.weights
        kept = self.values > self.values[-1:] * torch.finfo(self.values.dtype).eps * len(self.values)
        values = self.values[kept]
        explained = self.targets[kept].square().sum(1) / values  # of the targets, along each eigenvector
        shrinkage = alpha / (values + alpha)
        free = int(self.statistics.counts.sum()) - 1 - len(values)  # degrees of freedom without a penalty
        spread = n - float(weights.square().sum()) / n  # of the targets around their mean
        unexplained = max(spread - float(explained.sum()), 0.0) if free > 0 else 0.0
        error = unexplained + float(explained @ shrinkage.square())
        rest = (max(free, 0) + float(shrinkage.sum())) / int(self.statistics.counts.sum())  # 1 - mean leverage
        return error / n / max(rest, SMALLEST) ** 2


def leave_one_out(
    statistics: ClassStatistics, z: Tensor, y: Tensor, alpha: float, weights: Tensor | None = None
) -> Tensor:
    """Return what :meth:`RidgePath.leave_one_out` does for features ``(n, d)``, by one Cholesky factorisation."""
    factor = _factor(statistics, alpha)
    sides = torch.cat([(z - statistics.mean).T, covariances(statistics, 1.0).T], dim=1)
    solved = torch.linalg.solve_triangular(factor, sides, upper=False)
    white, targets = solved.split([len(z), statistics.num_classes], 1)
    outputs = torch.addmm(target_mean(statistics, 1.0), white.T, targets)
    return _without_itself(outputs, white.square().sum(0).unsqueeze(1) + 1 / statistics.total, y, weights)


def _without_itself(outputs: Tensor, leverage: Tensor, y: Tensor, weights: Tensor | None) -> Tensor:
    """Turn outputs, in place, into those under the solution without each example."""
    if weights is not None:
        leverage = leverage * weights.unsqueeze(1)
    rest = (1 - leverage).clamp_min(SMALLEST)
    # target - (target - output) / rest, where the target is 1 at the label and 0 elsewhere
    outputs.div_(rest)
    outputs[torch.arange(len(y)), y] += (1 - 1 / rest).squeeze(1)
    return outputs


def squared_errors(outputs: Tensor, y: Tensor) -> Tensor:
    """Return the squared distance of each output to its prototype at distance 1, ``(n, k), (n,) -> (n,)``."""
    return outputs.square().sum(1) - 2 * outputs.gather(1, y.unsqueeze(1)).squeeze(1) + 1


def best_alpha(
    statistics: ClassStatistics,
    z: Tensor,
    y: Tensor,
    weights: Tensor | None = None,
    *,
    is_all: bool = False,
    near: float | None = None,
) -> tuple[float, float]:
    """Return the smallest leave-one-out error of some examples ``(n, d)``, and its alpha.

    The search goes downhill from the best of every third alpha. With many features it starts ``near`` a given alpha
    instead: a few Cholesky factorisations are faster than the eigendecomposition. ``is_all`` says that the statistics
    are those of these examples.
    """
    grid = alphas(statistics)
    if near is None or z.shape[1] < LARGE or is_all:
        path = RidgePath.of(statistics, z - statistics.mean if is_all and weights is None else None)
        outputs, starts = partial(path.leave_one_out, path.project(z), y, weights=weights), [*range(0, len(grid), 3)]
    else:
        starts = [min(range(len(grid)), key=lambda i: abs(math.log(grid[i] / near)))]
        outputs = partial(leave_one_out, statistics, z, y, weights=weights)

    @cache
    def error(at: int) -> float:
        errors = squared_errors(outputs(alpha=grid[at]), y)
        return float(errors.mean() if weights is None else errors @ weights / weights.sum())

    at, best = -1, min(starts, key=error)
    while best != at:
        at = best
        best = min((i for i in (at, at - 1, at + 1) if 0 <= i < len(grid)), key=error)
    return error(at), grid[at]
