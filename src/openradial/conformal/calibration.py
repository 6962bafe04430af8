"""Calibration scores of known data: conformal p-values, and thresholds for any rate, for all classes or for each."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor

from openradial.conformal.inputs import Labels, is_unknown
from openradial.errors import DTypeError, OptionError, ShapeError, TargetError, listed

KEEP = 100_000  # scores in all
KEEP_PER_CLASS = 1_000  # of every class, however many classes there are
MOST_EXAMPLES = 2**63 - 1


def conformal_p_values(calibration: Tensor, scores: Tensor) -> Tensor:
    r"""Return the share of known examples that look at least as unknown as each score, ``(n,), (*b,) -> (*b,)``.

    .. math:: p(s) = \frac{1 + \#\{i : c_i \ge s\}}{n + 1}

    c are the unknown scores of known data that was not trained on. A larger score has a smaller p. For a score that
    comes from known data too, p is at most r in at most a share r of all cases, whatever r is: the rank of the score
    among n + 1 exchangeable ones is uniform. A score of nan counts as infinite: its p is the smallest, 1 / (n + 1).
    The result is float64.

    >>> conformal_p_values(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 2.0, 9.0]))
    tensor([1.0000, 0.7500, 0.2500], dtype=torch.float64)
    """
    if calibration.ndim != 1 or not len(calibration):
        raise ShapeError(
            f"calibration must have the shape (n,) with at least one score, got {tuple(calibration.shape)}; "
            "give the unknown scores of held-out known data"
        )
    if calibration.isnan().any():
        raise ShapeError(f"calibration must not hold nan, got {int(calibration.isnan().sum())}; remove those rows")
    return OrderStatistics.of(calibration.detach().to(scores.device)).p_values(scores)


def examples_needed(rate: float) -> int:
    """Return the smallest n for which 1 / (n + 1), the smallest p-value possible, is at most ``rate``.

    >>> examples_needed(0.05), examples_needed(0.01)
    (19, 99)
    """
    numerator, denominator = float(rate).as_integer_ratio()
    count = -(-denominator // numerator)  # the exact 1 / rate, rounded up; the float division may overflow
    # p-values are rounded to floats: 1/3 as a float is below 1/3, and 2 examples reach it
    if count > 1 and 1 / (count - 1) <= rate:
        count -= 1
    return min(count - 1, MOST_EXAMPLES)


@dataclass(frozen=True, eq=False)
class OrderStatistics:
    """The scores of ``total`` known examples in ascending order, all of them or the most informative ones.

    ``below[i]`` is the number of examples up to and including the i-th kept score, and ``below[0]`` is 0. Between two
    kept scores p is rounded up, so that thinning never rejects more than all scores would.
    """

    values: Tensor  # (kept,) float64, ascending
    below: Tensor  # (kept + 1,) int64, from 0 to total

    @classmethod
    def of(cls, scores: Tensor, keep: int | None = None) -> Self:
        """Sort scores and keep all, or about ``keep`` of them where there are more."""
        ordered = scores.to(torch.float64).sort().values
        if keep is None or len(ordered) <= keep:
            return cls(ordered, torch.arange(len(ordered) + 1, device=scores.device))
        ranks = _informative_ranks(len(ordered), keep).to(scores.device)
        return cls(ordered[ranks - 1], torch.cat([ranks.new_zeros(1), ranks]))

    @cached_property
    def total(self) -> int:
        return int(self.below[-1])

    def p_values(self, scores: Tensor) -> Tensor:
        """See :func:`conformal_p_values`."""
        exact = scores.detach().to(torch.float64)
        exact = exact.masked_fill(exact.isnan(), torch.inf).contiguous()
        below = self.below[torch.searchsorted(self.values, exact)]  # (*b,) examples certainly below the score
        return (1 + self.total - below).to(torch.float64) / (1 + self.total)

    def threshold(self, rate: float) -> float:
        """Return the score above which p is at most ``rate``; infinite where the examples are too few for it."""
        count = 1 + self.total
        near = int(rate * count)
        # the same division as in p_values, so that both decide alike
        above = max(each for each in (near - 1, near, near + 1) if each / count <= rate)
        index = int(torch.searchsorted(self.below, count - above))
        return float(self.values[index - 1]) if above > 0 else math.inf


def _informative_ranks(total: int, keep: int) -> Tensor:
    """Return ranks: half for the largest scores, half for the others at growing steps; p keeps its relative precision.

    For a million scores and 100,000 kept, p is too large by less than 0.01 % of itself.
    """
    each = keep // 2
    growing = torch.linspace(math.log(each), math.log(total), keep - each, dtype=torch.float64).exp().round().long()
    from_above = set(range(1, each + 1)) | set(growing.clamp(1, total).tolist())
    return total + 1 - torch.tensor(sorted(from_above, reverse=True))


@dataclass(frozen=True, eq=False)
class Calibration:
    """One group of scores, or one for each of ``classes``."""

    groups: tuple[OrderStatistics, ...]
    classes: Labels | None = None  # ascending
    width: int | None = None  # columns of the distances, where distances are calibrated

    @classmethod
    def of(cls, scores: Tensor, labels: Labels | None, classes: Labels | None, width: int | None = None) -> Self:
        """Sort the scores, separately for each of ``classes`` if given."""
        if classes is None or labels is None:
            return cls((OrderStatistics.of(scores, KEEP),), None, width)
        group = np.searchsorted(classes, labels)
        counts = np.bincount(group, minlength=len(classes)).tolist()
        by_class = torch.split(scores[torch.from_numpy(np.argsort(group, kind="stable"))], counts)
        keep = max(KEEP_PER_CLASS, KEEP // len(classes))
        return cls(tuple(OrderStatistics.of(each, keep) for each in by_class), classes, width)

    @cached_property
    def fewest(self) -> int:
        """Number of examples in the smallest group."""
        return min(group.total for group in self.groups)

    def check(self, rate: float) -> None:
        """Raise unless every group is large enough to reject something at this rate."""
        needed = examples_needed(rate)
        if self.fewest >= needed:
            return
        least = f"at least {needed}" if needed < MOST_EXAMPLES else f"more than {MOST_EXAMPLES:.0e}"
        asked, came, ways = "calibration scores", str(self.fewest), ["give more"]
        if self.fewest:
            ways.append(f"ask for a rate of at least 1/{self.fewest + 1}")
        if self.classes is not None:
            short = [i for i, group in enumerate(self.groups) if group.total < needed]
            counts = [f"{self.groups[i].total} for class {self.classes[i].item()!r}" for i in short]
            asked, came = f"{asked} in each class", listed(counts, 5)
            ways.append("use per_class=False")
        raise OptionError(
            f"a rate of {rate:g} needs {least} {asked}, got {came}: fewer can reject nothing at that rate; "
            + " or ".join(ways)
        )

    def indices(self, labels: Labels) -> Tensor:
        """Return the group of each label, ``(b,)``; -1 for "unknown"."""
        if self.classes is None or not len(labels):
            return torch.zeros(len(labels), dtype=torch.int64)
        if labels.dtype.kind != self.classes.dtype.kind:
            kinds = ("names", "whole numbers") if self.classes.dtype.kind == "U" else ("whole numbers", "names")
            raise DTypeError(f"labels must be {kinds[0]} as they were in fit, got {kinds[1]}")
        index = np.searchsorted(self.classes, labels).clip(max=len(self.classes) - 1)
        index[is_unknown(labels)] = -1
        absent = (index >= 0) & (self.classes[index] != labels)
        if absent.any():
            names = [repr(label) for label in np.unique(labels[absent]).tolist()]
            raise TargetError(
                f"labels must be classes that were calibrated, got {listed(names, 5)}; "
                "fit with examples of every class, or use per_class=False"
            )
        return torch.from_numpy(index)

    def thresholds(self, rate: float, indices: Tensor) -> Tensor:
        """Return the score above which each example is rejected, ``(b,)``; minus infinity for the group -1."""
        table = torch.full((len(self.groups) + 1,), -math.inf, dtype=torch.float64)  # the last is that of group -1
        for index in set(indices.tolist()) - {-1}:
            table[index] = self.groups[index].threshold(rate)
        return table[indices]

    def p_values(self, scores: Tensor, indices: Tensor) -> Tensor:
        """Return the p-value of each score in its group, ``(b,)``; 0 for the group -1."""
        p = torch.zeros(len(scores), dtype=torch.float64)
        counts = torch.bincount(indices + 1, minlength=len(self.groups) + 1).tolist()  # the first is that of group -1
        _, *rows = torch.split(indices.argsort(stable=True), counts)
        for group, members in zip(self.groups, rows, strict=True):
            if len(members):
                p[members] = group.p_values(scores[members])
        return p
