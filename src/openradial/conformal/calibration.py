"""Calibration scores of known data: p-values and thresholds for any rate, of all classes or of each; their files."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from openradial.conformal.inputs import LabelsLike, check_rate, is_unknown
from openradial.errors import DataError, DTypeError, HeadError, OptionError, ShapeError, TargetError, first_line, listed

FORMAT = 1
DAMAGE = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)  # what bad contents may raise
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
        message = f"calibration must have the shape (n,) with at least one score, got {tuple(calibration.shape)}"
        raise ShapeError(f"{message}; give the unknown scores of held-out known data")
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
        # half for the largest scores, half for the others at growing steps, so that p keeps its relative precision: of
        # a million scores and 100,000 kept, p is too large by less than 0.01 % of itself
        total, each = len(ordered), keep // 2
        growing = torch.linspace(math.log(each), math.log(total), keep - each, dtype=torch.float64).exp().round().long()
        from_above = set(range(1, each + 1)) | set(growing.clamp(1, total).tolist())
        ranks = total + 1 - torch.tensor(sorted(from_above, reverse=True), device=scores.device)
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


@dataclass(frozen=True, eq=False)
class Calibration:
    """One group of scores, or one for each of ``classes``."""

    groups: tuple[OrderStatistics, ...]
    classes: LabelsLike | None = None  # ascending
    width: int | None = None  # columns of the distances, where distances are calibrated

    @classmethod
    def of(
        cls, scores: Tensor, labels: LabelsLike | None, classes: LabelsLike | None, width: int | None = None
    ) -> Self:
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
        needed, fewest = examples_needed(rate), self.fewest
        if fewest >= needed:
            return
        least = f"at least {needed}" if needed < MOST_EXAMPLES else f"more than {MOST_EXAMPLES:.0e}"
        asked, came, ways = "calibration scores", str(fewest), ["give more"]
        if fewest:
            ways.append(f"ask for a rate of at least 1/{fewest + 1}")
        if self.classes is not None:
            short = [i for i, group in enumerate(self.groups) if group.total < needed]
            counts = [f"{self.groups[i].total} for class {self.classes[i].item()!r}" for i in short]
            asked, came = f"{asked} in each class", listed(counts, 5)
            ways.append("use per_class=False")
        message = f"a rate of {rate:g} needs {least} {asked}, got {came}: fewer can reject nothing at that rate"
        raise OptionError(f"{message}; {' or '.join(ways)}")

    def indices(self, labels: LabelsLike) -> Tensor:
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
            message = f"labels must be classes that were calibrated, got {listed(names, 5)}"
            raise TargetError(f"{message}; fit with examples of every class, or use per_class=False")
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


class Calibrated:
    """A decision that was calibrated on known data. Each call may use another rate."""

    rate_name: ClassVar[str]
    fit_call: ClassVar[str]

    def __init__(self, rate: float, per_class: bool) -> None:
        if not isinstance(per_class, bool):
            raise OptionError(f"per_class must be True or False, got {per_class!r}")
        self.per_class = per_class
        self._default_rate = check_rate(self.rate_name, rate)
        self._fitted: Calibration | None = None

    @property
    def is_fitted(self) -> bool:
        return self._fitted is not None

    @property
    def classes(self) -> tuple[int | str, ...] | None:
        """The calibrated classes, or None where all classes were calibrated together."""
        classes = self._calibration.classes
        return None if classes is None else tuple(classes.tolist())

    def threshold(self, rate: float | None = None) -> float:
        """Return the largest score that is accepted at a rate, by default at the rate of the constructor."""
        if self.per_class:
            raise OptionError("there is one threshold for each class: use thresholds() where per_class=True")
        return self._calibration.groups[0].threshold(self.checked_rate(rate))

    def thresholds(self, rate: float | None = None) -> dict[int | str, float]:
        """Return the largest score that is accepted in each class."""
        if self.classes is None:
            raise OptionError("there is one threshold for all classes: use threshold() where per_class=False")
        asked = self.checked_rate(rate)
        limits = [group.threshold(asked) for group in self._calibration.groups]
        return dict(zip(self.classes, limits, strict=True))

    def settings(self) -> dict[str, Any]:
        """Return the arguments of the constructor as JSON can hold them."""
        return {self.rate_name: self._default_rate, "per_class": self.per_class}

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it; :meth:`from_dict` gives the same decision, bit for bit."""
        # Python's JSON writes a float so that the same float is read
        tensors = [(group.total, group.values, group.below[1:]) for group in self._calibration.groups]
        groups = [{"examples": n, "scores": scores.tolist(), "ranks": ranks.tolist()} for n, scores, ranks in tensors]
        return self._facts() | {"groups": groups}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Return the decision that :meth:`to_dict` wrote."""
        kind = cls.__name__
        if not isinstance(record, Mapping):
            raise DataError(f"a {kind} must be read from a dict, got {type(record).__name__}")
        if record.get("format") != FORMAT:
            message = f"a {kind} must be of format {FORMAT}, got {record.get('format')!r}"
            raise DataError(f"{message}; read it with the version of openradial that wrote it, and fit again")
        if (got := record.get("kind")) != kind:
            raise DataError(f"a {kind} must be read from a {kind}, got {got!r}; use the class of that name")
        with _damage_named(kind):
            groups = tuple(_group(group["scores"], group["ranks"], group["examples"]) for group in record["groups"])
            classes, width, settings = record["classes"], record["width"], dict(record["settings"])
            names = None if classes is None else np.asarray(classes)
            fits = len(groups) == 1 if names is None else names.shape == (len(groups),)
            if names is not None:
                fits = fits and {type(name) for name in classes} in ({int}, {str})
                fits = fits and bool((names[1:] > names[:-1]).all())
            if not fits or not (width is None or isinstance(width, int)):
                raise ValueError("its classes do not fit its scores")
            calibration = Calibration(groups, names, width)
        try:
            made = cls(**settings)
        except TypeError as error:
            raise DataError(f"the settings of a {kind} do not fit this version ({error}); fit again") from error
        if not made._takes(calibration):
            raise DataError(f"this {kind} is damaged: its classes do not fit its settings; fit again")
        made._fitted = calibration
        return made

    def tensors(self) -> dict[str, Tensor]:
        """Return everything as tensors for a safetensors file; :meth:`from_tensors` gives the same, bit for bit."""
        groups = self._calibration.groups
        return {
            "facts": torch.tensor(list(json.dumps(self._facts()).encode()), dtype=torch.uint8),  # bytes of JSON
            "scores": torch.cat([group.values for group in groups]),
            "ranks": torch.cat([group.below[1:] for group in groups]),
            "kept": torch.tensor([len(group.values) for group in groups]),
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Return the decision that :meth:`tensors` wrote."""
        with _damage_named(cls.__name__):
            facts = json.loads(bytes(tensors["facts"].tolist()))
            if tensors["scores"].dtype != torch.float64:
                raise TypeError(f"its scores must be float64 as they were written, and are {tensors['scores'].dtype}")
            kept = tensors["kept"].tolist()
            pairs = zip(*(torch.split(tensors[name].cpu(), kept) for name in ("scores", "ranks")), strict=True)
            groups = [{"examples": int(ranks[-1]), "scores": scores, "ranks": ranks} for scores, ranks in pairs]
            record = facts | {"groups": groups}
        return cls.from_dict(record)

    def _facts(self) -> dict[str, Any]:
        """Return what is saved apart from the scores."""
        facts = {"format": FORMAT, "kind": type(self).__name__, "settings": self.settings()}
        classes = self.classes
        return facts | {"classes": None if classes is None else list(classes), "width": self._calibration.width}

    def _calibrate(self, calibration: Calibration) -> Self:
        calibration.check(self._default_rate)
        self._fitted = calibration
        return self

    def _takes(self, calibration: Calibration) -> bool:
        return self.per_class != (calibration.classes is None)

    @property
    def _calibration(self) -> Calibration:
        if self._fitted is None:
            kind = type(self).__name__
            raise HeadError(f"{kind} must be fitted first: call {self.fit_call} with held-out known data")
        return self._fitted

    def checked_rate(self, asked: float | None) -> float:
        """Return the rate to decide at; raise where the calibration is too small for it."""
        rate = self._default_rate if asked is None else check_rate(self.rate_name, asked)
        self._calibration.check(rate)
        return rate

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.settings().items())})"


def _group(scores: Any, ranks: Any, total: int) -> OrderStatistics:
    values = torch.as_tensor(scores, dtype=torch.float64)
    counted = torch.as_tensor(ranks, dtype=torch.int64)
    if values.ndim != 1 or not len(values) or counted.shape != values.shape or counted[-1] != total:
        raise ValueError("the number of its scores is not the one it states")
    below = torch.cat([counted.new_zeros(1), counted])
    if not values.isfinite().all() or (values.diff() < 0).any() or (below.diff() <= 0).any():
        raise ValueError("its scores are not finite and in ascending order")
    return OrderStatistics(values, below)


@contextmanager
def _damage_named(kind: str) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        damage = f"incomplete or damaged: {first_line(error)}"
        raise DataError(f"this {kind} is {damage}; use another copy, or fit again") from error
