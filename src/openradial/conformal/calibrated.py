"""What the rejector and the prediction sets share: a rate, a calibration, and their way into files."""

from abc import ABC
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from torch import Tensor

from openradial.conformal.calibration import Calibration
from openradial.conformal.inputs import check_rate
from openradial.conformal.records import from_record, from_tensors, to_record, to_tensors
from openradial.errors import DataError, HeadError, OptionError


class Calibrated(ABC):
    """A decision that was calibrated on known data. The rate may be another one at each call."""

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
        """The classes that were calibrated, or None where all were calibrated together."""
        classes = self._calibration.classes
        return None if classes is None else tuple(classes.tolist())

    def threshold(self, rate: float | None = None) -> float:
        """The largest score that is accepted at a rate, by default at the rate of the constructor."""
        if self.per_class:
            raise OptionError("there is one threshold for each class: use thresholds() where per_class=True")
        return self._calibration.groups[0].threshold(self._rate(rate))

    def thresholds(self, rate: float | None = None) -> dict[int | str, float]:
        """The largest score that is accepted in each class."""
        if self.classes is None:
            raise OptionError("there is one threshold for all classes: use threshold() where per_class=False")
        asked = self._rate(rate)
        limits = [group.threshold(asked) for group in self._calibration.groups]
        return dict(zip(self.classes, limits, strict=True))

    def settings(self) -> dict[str, Any]:
        """The arguments that make this decision again, as JSON can hold them."""
        return {self.rate_name: self._default_rate, "per_class": self.per_class}

    def to_dict(self) -> dict[str, Any]:
        """All there is, as JSON can hold it; :meth:`from_dict` gives the same decision, bit for bit."""
        return to_record(type(self).__name__, self.settings(), self._calibration)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """The decision that :meth:`to_dict` wrote."""
        return cls._restored(*from_record(cls.__name__, record))

    def tensors(self) -> dict[str, Tensor]:
        """All there is, as tensors for a safetensors file; :meth:`from_tensors` gives the same, bit for bit."""
        return to_tensors(type(self).__name__, self.settings(), self._calibration)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        """The decision that :meth:`tensors` wrote."""
        return cls._restored(*from_tensors(cls.__name__, tensors))

    @classmethod
    def _restored(cls, settings: dict[str, Any], calibration: Calibration) -> Self:
        try:
            made = cls(**settings)
        except TypeError as error:
            raise DataError(f"the settings of a {cls.__name__} do not fit this version ({error}); fit again") from error
        if not made._takes(calibration):
            raise DataError(f"this is not a whole {cls.__name__}: its classes do not fit its settings; fit again")
        made._fitted = calibration
        return made

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
        """The rate to decide at, if the calibration is large enough for it."""
        rate = self._default_rate if asked is None else check_rate(self.rate_name, asked)
        self._calibration.check(rate)
        return rate

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.settings().items())})"
