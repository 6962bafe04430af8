"""Calibration scores of all known data or of each class, kept so that any rate can be asked for later."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor

from openradial.conformal.conformal import OrderStatistics
from openradial.conformal.inputs import Labels, is_unknown
from openradial.errors import DTypeError, OptionError, TargetError, listed

KEEP = 100_000  # scores in all
KEEP_PER_CLASS = 1_000  # of every class, however many classes there are


@dataclass(frozen=True, eq=False)
class Calibration:
    """One group of scores, or one for each of ``classes``."""

    groups: tuple[OrderStatistics, ...]
    classes: Labels | None = None  # rising
    width: int | None = None  # columns of the distances, where these are what is calibrated

    @classmethod
    def of(cls, scores: Tensor, width: int | None = None) -> Self:
        return cls((OrderStatistics.of(scores, KEEP),), None, width)

    @classmethod
    def per_class(cls, scores: Tensor, labels: Labels, classes: Labels, width: int | None = None) -> Self:
        group = np.searchsorted(classes, labels)
        counts = np.bincount(group, minlength=len(classes)).tolist()
        by_class = torch.split(scores[torch.from_numpy(np.argsort(group, kind="stable"))], counts)
        keep = max(KEEP_PER_CLASS, KEEP // len(classes))
        return cls(tuple(OrderStatistics.of(own, keep) for own in by_class), classes, width)

    @cached_property
    def fewest(self) -> int:
        """Examples in the smallest group."""
        return min(group.total for group in self.groups)

    def check(self, rate: float) -> None:
        """Raise unless every group is large enough to reject something at this rate."""
        needed = examples_needed(rate)
        if self.fewest >= needed:
            return
        asked, came, ways = "calibration scores", str(self.fewest), ["give more"]
        if self.fewest:
            ways.append(f"ask for a rate of at least 1/{self.fewest + 1}")
        if self.classes is not None:
            short = [place for place, group in enumerate(self.groups) if group.total < needed]
            found = [f"{self.groups[place].total} for class {self.classes[place].item()!r}" for place in short]
            asked, came = f"{asked} in each class", listed(found, 5)
            ways.append("use per_class=False")
        raise OptionError(
            f"a rate of {rate:g} needs at least {needed} {asked}, got {came}: fewer can reject nothing at that rate; "
            + " or ".join(ways)
        )

    def places(self, labels: Labels) -> Tensor:
        """The group of each label, ``(b,)``; -1 where it says "unknown"."""
        if self.classes is None or not len(labels):
            return torch.zeros(len(labels), dtype=torch.int64)
        if labels.dtype.kind != self.classes.dtype.kind:
            kinds = ("names", "whole numbers") if self.classes.dtype.kind == "U" else ("whole numbers", "names")
            raise DTypeError(f"labels must be {kinds[0]} as they were in fit, got {kinds[1]}")
        place = np.searchsorted(self.classes, labels).clip(max=len(self.classes) - 1)
        place[is_unknown(labels)] = -1
        strange = (place >= 0) & (self.classes[place] != labels)
        if strange.any():
            names = [repr(label) for label in np.unique(labels[strange]).tolist()]
            raise TargetError(
                f"labels must be classes that were calibrated, got {listed(names, 5)}; "
                "fit with examples of every class, or use per_class=False"
            )
        return torch.from_numpy(place)

    def thresholds(self, rate: float, places: Tensor) -> Tensor:
        """The score above which each example is rejected, ``(b,)``; minus infinity at place -1."""
        table = torch.full((len(self.groups) + 1,), -math.inf, dtype=torch.float64)  # the last is that of place -1
        for place in set(places.tolist()):
            if place >= 0:
                table[place] = self.groups[place].threshold(rate)
        return table[places]

    def p_values(self, scores: Tensor, places: Tensor) -> Tensor:
        """The p-value of each score in its own group, ``(b,)``; 0 at place -1."""
        p = torch.zeros(len(scores), dtype=torch.float64)
        counts = torch.bincount(places + 1, minlength=len(self.groups) + 1).tolist()  # the first is that of place -1
        _, *rows = torch.split(places.argsort(stable=True), counts)
        for group, own in zip(self.groups, rows, strict=True):
            if len(own):
                p[own] = group.p_values(scores[own])
        return p


def examples_needed(rate: float) -> int:
    """The smallest n for which 1 / (n + 1), the smallest p-value there is, reaches ``rate``.

    >>> examples_needed(0.05), examples_needed(0.01)
    (19, 99)
    """
    needed = math.ceil(1 / rate)
    while needed and 1 / needed <= rate:
        needed -= 1
    while 1 / (needed + 1) > rate:
        needed += 1
    return needed
