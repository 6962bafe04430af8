"""What a closed-form head keeps of its examples: sums and hashes by class, which are added and subtracted.

By the hash of a row it can be told whether an example was added before, without keeping it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Self

import torch
from torch import Tensor

from openradial.errors import DataError, OptionError, nearest
from openradial.scorers.statistics import ClassStatistics

BY_CLASS = ("weights", "counts", "means")
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


@dataclass(frozen=True, eq=False)
class ClassSums:
    """Statistics of features, hashes of the examples, and the weight of an example of each class, by class name."""

    classes: tuple[str, ...]
    statistics: ClassStatistics
    hashes: RowHashes
    class_weight: Tensor | None = None  # (k,)

    @classmethod
    def empty(cls, classes: tuple[str, ...], num_features: int, class_weight: Tensor | None = None) -> Self:
        """Return the sums over no examples."""
        k = len(check_names(classes))
        return cls(classes, ClassStatistics.empty(k, num_features), RowHashes.empty(k), class_weight)

    def __add__(self, other: Self) -> Self:
        """Join by name: classes of the same name are added up, others are appended."""
        known = set(self.classes)
        classes = (*self.classes, *(name for name in other.classes if name not in known))
        mine, theirs = self.aligned(classes), other.aligned(classes)
        both = torch.tensor([name in known and name in other.classes for name in classes])
        ones = torch.ones(len(classes), dtype=torch.float64)
        weights = [ones if each.class_weight is None else each.class_weight for each in (mine, theirs)]
        if not torch.equal(weights[0][both], weights[1][both]):
            raise OptionError("heads must give their common classes the same class weights to be merged")
        joined = torch.where(torch.tensor([name in known for name in classes]), weights[0], weights[1])
        has_weights = self.class_weight is not None or other.class_weight is not None
        statistics, hashes = mine.statistics + theirs.statistics, mine.hashes + theirs.hashes
        return type(self)(classes, statistics, hashes, joined if has_weights else None)

    def __sub__(self, other: Self) -> Self:
        """Take examples of the same classes out; raise unless all of them were added."""
        hashes = self.hashes - other.hashes
        return replace(self, statistics=self.statistics - other.statistics, hashes=hashes)

    def aligned(self, classes: tuple[str, ...]) -> Self:
        """Return the same sums for these classes, in their order; a class that is not among them must be empty."""
        index = {name: k for k, name in enumerate(self.classes)}
        pairs = [(new, index[name]) for new, name in enumerate(classes) if name in index]
        to, origin = torch.tensor(pairs, dtype=torch.int64).view(-1, 2).T
        made = self.empty(classes, self.statistics.num_features)
        for name in BY_CLASS:
            getattr(made.statistics, name)[to] = getattr(self.statistics, name)[origin]
        for new, old in pairs:
            made.hashes.by_class[new] = self.hashes.by_class[old]
        weights = None
        if self.class_weight is not None:
            weights = torch.ones(len(classes), dtype=torch.float64)
            weights[to] = self.class_weight[origin]
        return replace(made, statistics=replace(made.statistics, scatter=self.statistics.scatter), class_weight=weights)

    def index(self, name: str) -> int:
        """Return the index of a class."""
        if name not in self.classes:
            raise OptionError(f"there is no class {name!r}{nearest(str(name), self.classes)}")
        return self.classes.index(name)

    def renamed(self, old: str, new: str) -> Self:
        """Return the sums with another name of a class."""
        k = self.index(old)
        return replace(self, classes=check_names((*self.classes[:k], new, *self.classes[k + 1 :])))

    def tensors(self) -> dict[str, Tensor]:
        """Return everything but the names of the classes."""
        upper = torch.triu_indices(*self.statistics.scatter.shape)  # of a symmetric matrix
        made = {name: getattr(self.statistics, name) for name in BY_CLASS}
        made |= {"scatter": self.statistics.scatter[*upper], "hashes": torch.cat(self.hashes.by_class)}
        return made if self.class_weight is None else made | {"class_weight": self.class_weight}

    def restored(self, tensors: Mapping[str, Tensor]) -> Self:
        """Return sums of the same size with the values that :meth:`tensors` returned."""
        k, d = self.statistics.means.shape
        counts = tensors["counts"].long() if "counts" in tensors else torch.empty(0)
        shapes = {"counts": (k,), "weights": (k,), "means": (k, d), "scatter": (d * (d + 1) // 2,)}
        shapes |= {"hashes": (int(counts.clamp_min(0).sum()),)}
        shapes |= {"class_weight": (k,)} if "class_weight" in tensors else {}
        check_tensors("the sums of a closed-form head", shapes, tensors)
        if (counts < 0).any():
            raise DataError("the sums of a closed-form head must have no negative counts; use another copy of the file")
        scatter, upper = torch.zeros(d, d, dtype=torch.float64), torch.triu_indices(d, d)
        scatter[*upper] = scatter.T[*upper] = tensors["scatter"].double()
        statistics = ClassStatistics(scatter=scatter, **{name: tensors[name] for name in BY_CLASS})
        hashes = RowHashes(list(torch.split(tensors["hashes"], counts.tolist())))
        return type(self)(self.classes, statistics, hashes, tensors.get("class_weight"))


def check_tensors(what: str, shapes: Mapping[str, tuple[int, ...]], tensors: Mapping[str, Tensor]) -> None:
    """Raise unless there is a tensor of each name and shape, and all are finite."""
    for name, shape in shapes.items():
        given = tuple(tensors[name].shape) if name in tensors else "none"
        if given != shape:
            raise DataError(f"{what} must have a tensor {name!r} of the shape {shape}, got {given}")
        if not tensors[name].isfinite().all():
            raise DataError(f"the numbers of {what} in {name!r} must be finite; use another copy of the file")


def class_names(classes: int | Sequence[str]) -> tuple[str, ...]:
    """Return the names of classes that are given by name, or by their number."""
    if isinstance(classes, (str, bool)) or not isinstance(classes, (Integral, Iterable)):
        raise OptionError(f"classes must be a number or a list of names, got {classes!r}")
    names = tuple(classes) if isinstance(classes, Iterable) else tuple(map(str, range(classes)))
    if not names:
        raise OptionError(f"there must be at least one class, got {classes!r}")
    return check_names(names)


def check_names(classes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of classes; raise unless each is a string of its own."""
    wrong = [name for name in classes if not isinstance(name, str)]
    if wrong:
        raise OptionError(f"class names must be strings, got {wrong[0]!r}; convert them with str")
    if len(set(classes)) < len(classes):
        twice = next(name for name in classes if classes.count(name) > 1)
        raise OptionError(f"class names must differ, got {twice!r} twice")
    return classes


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
