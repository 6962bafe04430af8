"""Predictions: one small record per input, stored as NumPy arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self, overload

import numpy as np
from numpy.typing import NDArray

UNKNOWN = "unknown"  # name of label -1
TOP = 3  # nearest classes in a prediction

Floats = NDArray[np.floating[Any]]
Labels = NDArray[np.int64]


class ClassProbability(NamedTuple):
    """A class by name with its probability."""

    name: str
    probability: float


class Prediction(NamedTuple):
    """The answer for one input."""

    label: str  # a class name, or "unknown"
    is_unknown: bool
    nearest: str  # the most probable class, also where the input is unknown
    probability: float  # of the nearest class
    distance: float | None  # to the prototype of the nearest class, for heads that have prototypes
    p_value: float | None  # share of known calibration inputs that are at least as unknown
    unknown_score: float
    top: tuple[ClassProbability, ...]  # the most probable classes, in descending order

    def as_dict(self) -> dict[str, Any]:
        """Return the prediction as JSON values: NaN and infinity become None."""
        values = {name: _finite(value) for name, value in self._asdict().items()}
        return values | {"top": [{"class": name, "probability": _finite(p)} for name, p in self.top]}


@dataclass(frozen=True, eq=False)
class Predictions(Sequence[Prediction]):
    """One :class:`Prediction` per input, stored as NumPy arrays; label -1 is unknown."""

    classes: tuple[str, ...]
    labels: Labels  # (b,) -1 where rejected
    nearest: Labels  # (b,)
    probability: Floats  # (b,) of the nearest class
    distance: Floats | None  # (b,)
    unknown_score: Floats  # (b,)
    p_values: Floats | None  # (b,)
    top: Labels  # (b, 3); fewer columns with fewer classes
    top_probability: Floats  # (b, 3)

    @classmethod
    def from_arrays(
        cls,
        classes: Sequence[str],
        labels: Labels,
        nearest: Labels,
        log_probs: Floats,
        distance: Floats | None,
        unknown_score: Floats,
        p_values: Floats | None,
    ) -> Self:
        """Make predictions from what a model or an exported graph returns; ``log_probs`` are ``(b, k)``."""
        order = log_probs.copy()
        np.put_along_axis(order, nearest[:, None], np.inf, 1)  # the first one even where rounding makes others equal
        order = np.nan_to_num(order, nan=-np.inf, posinf=np.inf, neginf=-np.inf)
        top = np.argsort(-order, axis=1, kind="stable")[:, :TOP]
        with np.errstate(over="ignore"):
            probability = np.exp(np.take_along_axis(log_probs, top, 1))  # (b, 3)
        return cls(
            tuple(classes), labels, nearest, probability[:, 0], distance, unknown_score, p_values, top, probability
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Join the predictions of several batches."""
        arrays: dict[str, Any] = {}
        for name in [column.name for column in fields(cls) if column.name != "classes"]:
            columns = [getattr(part, name) for part in parts]
            arrays[name] = None if columns[0] is None else np.concatenate(columns)
        return cls(classes=parts[0].classes, **arrays)

    def __len__(self) -> int:
        return len(self.labels)

    @overload
    def __getitem__(self, index: int) -> Prediction: ...
    @overload
    def __getitem__(self, index: slice) -> list[Prediction]: ...
    def __getitem__(self, index: int | slice) -> Prediction | list[Prediction]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        top = zip(self.top[index].tolist(), self.top_probability[index].tolist(), strict=True)
        label = int(self.labels[index])
        return Prediction(
            label=UNKNOWN if label < 0 else self.classes[label],
            is_unknown=label < 0,
            nearest=self.classes[self.nearest[index]],
            probability=float(self.probability[index]),
            distance=None if self.distance is None else float(self.distance[index]),
            p_value=None if self.p_values is None else float(self.p_values[index]),
            unknown_score=float(self.unknown_score[index]),
            top=tuple(ClassProbability(self.classes[k], p) for k, p in top),
        )

    @property
    def names(self) -> list[str]:
        """The class name of each label; ``"unknown"`` for -1."""
        named = (*self.classes, UNKNOWN)  # -1 is the last
        return [named[label] for label in self.labels.tolist()]


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value
