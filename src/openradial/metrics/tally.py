"""How many are accepted at each threshold: what all metrics of scores are read from."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from openradial.metrics.inputs import Array


@dataclass(frozen=True)
class Tally:
    """Counts of accepted examples for every threshold; accepted is what has a score of at most the threshold.

    The thresholds are the distinct scores: equal scores are accepted together, whatever their order. Each row of
    ``accepted`` counts one part of the examples, such as the known ones, and begins with 0, before the first threshold.
    ``groups`` names the rows that are one sample and so are resampled together.
    """

    thresholds: Array  # (m,)
    accepted: Array  # (parts, m + 1), each row rises from 0 to the size of the part
    groups: Sequence[Sequence[int]]

    @classmethod
    def of(cls, *parts: Array, groups: Sequence[Sequence[int]]) -> Self:
        """Count the scores of each part; they are sorted here, once."""
        # Most of the time goes into touching new memory: hence in place, and small integers.
        scores, sizes = np.concatenate(parts), [len(part) for part in parts]
        for run in np.split(scores, np.cumsum(sizes)[:-1]):
            run.sort()
        order = np.argsort(scores, kind="stable")  # merges sorted runs in linear time
        origin = np.repeat(np.arange(len(parts), dtype=np.int8), sizes)[order]
        del order
        scores.sort(kind="stable")
        is_last = np.append(scores[1:] != scores[:-1], True)  # of equal scores
        thresholds = scores[is_last]
        accepted = np.zeros((len(parts), len(thresholds) + 1), np.int32 if len(scores) < 2**30 else np.int64)
        for part in range(len(parts)):
            accepted[part, 1:] = np.cumsum(origin == part, dtype=accepted.dtype)[is_last]
        return cls(thresholds, accepted, groups)

    @property
    def sizes(self) -> Array:
        """How many examples each part has."""
        return self.accepted[:, -1]

    @property
    def curve_thresholds(self) -> Array:
        """The thresholds after -inf, which accepts nothing, ``(m + 1,)``."""
        return np.append(-np.inf, self.thresholds)

    def resample(self, random: np.random.Generator) -> "Tally":
        """Draw each group anew with replacement: the thresholds stay, nothing is sorted."""
        accepted = np.zeros_like(self.accepted)
        for rows, cells in zip(self.groups, self._cells, strict=True):
            drawn = cells[random.integers(len(cells), size=len(cells))]
            counts = np.bincount(drawn, minlength=len(rows) * len(self.thresholds))
            accepted[list(rows), 1:] = np.cumsum(counts.reshape(len(rows), -1), axis=1)
        return Tally(self.thresholds, accepted, self.groups)

    @cached_property
    def _cells(self) -> list[Array]:
        """For each group, the cell (part, threshold) that each of its examples counts in."""
        counts = [np.diff(self.accepted[list(rows)]).ravel() for rows in self.groups]
        return [np.repeat(np.arange(len(count)), count) for count in counts]


def area(x: Array, y: Array) -> float:
    """Area under the line through the points of two rows of counts, as a number of pairs; equal scores count half."""
    return float(np.einsum("i,i", np.diff(x), y[1:] + y[:-1], dtype=np.int64)) / 2
