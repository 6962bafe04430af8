"""The base of the rejector and the prediction sets: a rate, a calibration, and how both are saved."""

import json
from abc import ABC
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from openradial.conformal.calibration import Calibration, OrderStatistics
from openradial.conformal.inputs import Labels, check_rate
from openradial.errors import DataError, HeadError, OptionError

FORMAT = 1
DAMAGE = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)  # what bad contents may raise


class Calibrated(ABC):
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
        return self._calibration.groups[0].threshold(self._rate(rate))

    def thresholds(self, rate: float | None = None) -> dict[int | str, float]:
        """Return the largest score that is accepted in each class."""
        if self.classes is None:
            raise OptionError("there is one threshold for all classes: use threshold() where per_class=False")
        asked = self._rate(rate)
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
            raise DataError(
                f"a {kind} must be of format {FORMAT}, got {record.get('format')!r}; "
                "read it with the version of openradial that wrote it, and fit again"
            )
        if (got := record.get("kind")) != kind:
            raise DataError(f"a {kind} must be read from a {kind}, got {got!r}; use the class of that name")
        with _damage_named(kind):
            groups = tuple(_group(group["scores"], group["ranks"], group["examples"]) for group in record["groups"])
            calibration = _restored_calibration(groups, record["classes"], record["width"])
            settings = dict(record["settings"])
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

    def _calibrate(
        self, scores: Tensor, labels: Labels | None, classes: Labels | None, width: int | None = None
    ) -> Self:
        calibration = Calibration.of(scores, labels, classes, width)
        calibration.check(self._default_rate)
        self._fitted = calibration
        return self

    def _takes(self, calibration: Calibration) -> bool:
        return self.per_class != (calibration.classes is None)

    @property
    def _calibration(self) -> Calibration:
        if self._fitted is None:
            raise HeadError(
                f"{type(self).__name__} must be fitted first: call {self.fit_call} with held-out known data"
            )
        return self._fitted

    def _rate(self, asked: float | None) -> float:
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


def _restored_calibration(groups: tuple[OrderStatistics, ...], classes: Any, width: Any) -> Calibration:
    if classes is None:
        fits, names = len(groups) == 1, None
    else:
        names = np.asarray(classes)
        fits = {type(name) for name in classes} in ({int}, {str}) and names.shape == (len(groups),)
        fits = fits and bool((names[1:] > names[:-1]).all())
    if not fits or not (width is None or isinstance(width, int)):
        raise ValueError("its classes do not fit its scores")
    return Calibration(groups, names, width)


@contextmanager
def _damage_named(kind: str) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise DataError(f"this {kind} is incomplete or damaged: {reason}; use another copy, or fit again") from error
