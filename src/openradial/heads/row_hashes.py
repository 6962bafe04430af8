"""Hashes of rows by class: whether an example was added before can be told without keeping it."""

from typing import Self

import torch
from torch import Tensor

from openradial.errors import OptionError

SEED = 20_260_101
FACTOR = 0x9E3779B97F4A7C1  # odd: spreads the classes over all keys
AT_ONCE = 2**17  # numbers at a time: 1 MB, which stays in the cache


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
        gone, absent = _find(self._keys(), other._keys())
        other._raise_if(absent)
        keep = torch.ones(len(self), dtype=torch.bool)
        keep[gone] = False
        parts = zip(self.by_class, torch.split(keep, list(map(len, self.by_class))), strict=True)
        return RowHashes([mine[kept] for mine, kept in parts])

    def __len__(self) -> int:
        return sum(map(len, self.by_class))

    def _keys(self) -> Tensor:
        """Return the hashes of all classes, which also differ between classes."""
        lengths = torch.tensor(list(map(len, self.by_class)))
        return torch.cat(self.by_class) + torch.arange(len(lengths)).mul_(FACTOR).repeat_interleave(lengths)

    def check_contains(self, other: "RowHashes") -> None:
        """Raise unless each row of ``other`` is there at least once."""
        pairs = zip(self.by_class, other.by_class, strict=True)
        other._raise_if(sum(int((~torch.isin(theirs, mine)).sum()) for mine, theirs in pairs))

    def _raise_if(self, absent: int) -> None:
        if absent:
            raise OptionError(
                f"all examples must have been added before, but {absent} of {len(self)} were never "
                "added with this label, or are removed already; give the same features and labels as then"
            )


def _hashes(rows: Tensor) -> Tensor:
    """Return a hash of each row, ``(n, d) -> (n,)`` int64; equal numbers have equal hashes in every dtype."""
    generator = torch.Generator().manual_seed(SEED)
    factors = torch.randint(-(2**62), 2**62, (rows.shape[1],), generator=generator).mul_(2).add_(1)
    hashes = []
    for part in torch.split(rows, max(1, AT_ONCE // rows.shape[1])):
        bits = (part.double() + 0.0).contiguous().view(torch.int64)  # -0.0 + 0.0 is 0.0
        mixed = (bits ^ (bits >> 32)) * factors  # the last bits of round numbers are all 0
        hashes.append((mixed ^ (mixed >> 29)).sum(1))
    return torch.cat(hashes)


def _find(keys: Tensor, wanted: Tensor) -> tuple[Tensor, int]:
    """Return the index of each of the wanted keys, no index twice, and how many keys are missing."""
    keys, order = keys.sort(stable=True)
    wanted = wanted.sort().values
    first = torch.searchsorted(wanted, wanted)  # equal keys take one index after the other
    at = torch.searchsorted(keys, wanted) + torch.arange(len(wanted)) - first
    matches = at < len(keys)
    matches[matches.clone()] = keys[at[matches]] == wanted[matches]
    return order[at[matches]], int((~matches).sum())
