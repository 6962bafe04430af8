"""Conformal p-values: what share of known examples looks at least as unknown as this one."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from openradial.errors import ShapeError


def conformal_p_values(calibration: Tensor, scores: Tensor) -> Tensor:
    r"""Share of known examples that look at least as unknown as each score, ``(n,), (*b,) -> (*b,)`` in float64.

    .. math:: p(s) = \frac{1 + \#\{i : c_i \ge s\}}{n + 1}

    c are the unknown-scores of known data that was not trained on. A larger score has a smaller p. For a score that
    comes from known data too, p is at most r in at most a share r of all cases, whatever r is: the score's rank among
    n + 1 alike is any rank with the same chance. A score of nan counts as infinite: its p is the smallest, 1 / (n + 1).

    >>> conformal_p_values(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 2.0, 9.0]))
    tensor([1.0000, 0.7500, 0.2500], dtype=torch.float64)
    """
    if calibration.ndim != 1 or not len(calibration):
        raise ShapeError(
            f"calibration must have the shape (n,) with at least one score, got {tuple(calibration.shape)}; "
            "give the unknown-scores of held-out known data"
        )
    if calibration.isnan().any():
        raise ShapeError(f"calibration must not hold nan, got {int(calibration.isnan().sum())}; take those rows out")
    return OrderStatistics.of(calibration.detach().to(scores.device)).p_values(scores)


@dataclass(frozen=True, eq=False)
class OrderStatistics:
    """The scores of ``total`` known examples in rising order, all of them or the most telling ones.

    ``below[i]`` is the number of examples up to and with the i-th kept score, and ``below[0]`` is 0. Between two kept
    scores p is rounded up, so that thinning never rejects more than all scores would.
    """

    values: Tensor  # (kept,) float64, rising
    below: Tensor  # (kept + 1,) int64, from 0 to total

    @classmethod
    def of(cls, scores: Tensor, keep: int | None = None) -> Self:
        """Sort scores and keep all, or about ``keep`` of them where there are more."""
        ordered = scores.to(torch.float64).sort().values
        if keep is None or len(ordered) <= keep:
            return cls(ordered, torch.arange(len(ordered) + 1, device=scores.device))
        ranks = _telling_ranks(len(ordered), keep).to(scores.device)
        return cls(ordered[ranks - 1], torch.cat([ranks.new_zeros(1), ranks]))

    @cached_property
    def total(self) -> int:
        return int(self.below[-1])

    @property
    def is_whole(self) -> bool:
        return len(self.values) == self.total

    def p_values(self, scores: Tensor) -> Tensor:
        """See :func:`conformal_p_values`."""
        exact = scores.detach().to(torch.float64)
        exact = exact.masked_fill(exact.isnan(), torch.inf).contiguous()
        below = self.below[torch.searchsorted(self.values, exact)]  # (*b,) examples that are surely below the score
        return (1 + self.total - below).to(torch.float64) / (1 + self.total)

    def threshold(self, rate: float) -> float:
        """The score above which p is at most ``rate``; infinite where the examples are too few for it."""
        count = 1 + self.total
        above = int(rate * count) + 1
        while above / count > rate:  # the same division as in p_values, so both decide alike
            above -= 1
        place = int(torch.searchsorted(self.below, count - above))
        return float(self.values[place - 1]) if above else math.inf


def _telling_ranks(total: int, keep: int) -> Tensor:
    """Half for the largest scores, one by one; half for the others at a growing step, so that p stays exact to a share.

    For a million scores and 100,000 kept, p is too large by less than 0.01 % of itself.
    """
    each = keep // 2
    growing = torch.linspace(math.log(each), math.log(total), keep - each, dtype=torch.float64).exp().round().long()
    from_above = set(range(1, each + 1)) | set(growing.clamp(1, total).tolist())
    return total + 1 - torch.tensor(sorted(from_above, reverse=True))
