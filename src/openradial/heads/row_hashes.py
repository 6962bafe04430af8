"""Hashes of rows by class: whether an example was added before can be told without keeping it."""

from typing import Self

import torch
from torch import Tensor

from openradial.errors import OptionError

SEED = 20_260_101
AT_ONCE = 2**20  # numbers that are hashed at a time


class RowHashes:
    """A multiset of 64-bit hashes of float64 rows for each class."""

    def __init__(self, by_class: list[Tensor]) -> None:
        self.by_class = by_class  # (n_k,) int64 each

    @classmethod
    def of(cls, rows: Tensor, y: Tensor, num_classes: int) -> Self:
        """Hash rows ``(n, d)`` with labels ``(n,)``."""
        counts = torch.bincount(y, minlength=num_classes).tolist()
        return cls(list(torch.split(_hashes(rows)[y.argsort(stable=True)], counts)))

    @classmethod
    def empty(cls, num_classes: int) -> Self:
        return cls([torch.empty(0, dtype=torch.int64)] * num_classes)

    def __add__(self, other: "RowHashes") -> "RowHashes":
        pairs = zip(self.by_class, other.by_class, strict=True)
        return RowHashes([torch.cat([mine, theirs]) if len(theirs) else mine for mine, theirs in pairs])

    def __sub__(self, other: "RowHashes") -> "RowHashes":
        """Take rows out; raise if one of them is not there."""
        left, absent = [], 0
        for mine, theirs in zip(self.by_class, other.by_class, strict=True):
            rest, missing = _difference(mine, theirs) if len(theirs) else (mine, 0)
            left.append(rest)
            absent += missing
        other._raise_if(absent)
        return RowHashes(left)

    def check_contains(self, other: "RowHashes") -> None:
        """Raise unless each row of ``other`` is there at least once."""
        pairs = zip(self.by_class, other.by_class, strict=True)
        other._raise_if(sum(int((~torch.isin(theirs, mine)).sum()) for mine, theirs in pairs))

    def _raise_if(self, absent: int) -> None:
        if absent:
            raise OptionError(
                f"all examples must have been added before, but {absent} of {sum(map(len, self.by_class))} were never "
                "added with this label, or are removed already; give the same features and labels as then"
            )


def _hashes(rows: Tensor) -> Tensor:
    """Return a hash of each row, ``(n, d) -> (n,)`` int64; equal numbers have equal hashes in every dtype."""
    generator = torch.Generator().manual_seed(SEED)
    factors = torch.randint(-(2**62), 2**62, (rows.shape[1],), generator=generator).mul_(2).add_(1)
    made = []
    for part in torch.split(rows.detach(), max(1, AT_ONCE // rows.shape[1])):
        bits = (part.double() + 0.0).contiguous().view(torch.int64)  # -0.0 + 0.0 is 0.0
        mixed = (bits ^ (bits >> 32)).mul_(factors)  # the last bits of round numbers are all 0
        made.append((mixed ^ (mixed >> 29)).sum(1))
    return torch.cat(made)


def _difference(mine: Tensor, theirs: Tensor) -> tuple[Tensor, int]:
    """Return a multiset without another one, and how many elements of the other were not in it."""
    values, inverse = torch.unique(torch.cat([mine, theirs]), return_inverse=True)
    have, want = (torch.bincount(part, minlength=len(values)) for part in (inverse[: len(mine)], inverse[len(mine) :]))
    return values.repeat_interleave((have - want).clamp_min(0)), int((want - have).clamp_min(0).sum())
