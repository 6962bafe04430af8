"""What is said of inputs: a class or "unknown", and why. NumPy arrays, one entry per input."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

UNKNOWN_NAME = "unknown"
TOP = 3  # nearest classes that are named

Floats = NDArray[np.floating[Any]]
Places = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Predictions:
    """One entry per input. Classes are places in ``classes``; label -1 is unknown.

    ``distance`` is there where log-probabilities are distances, ``p_values`` where there is a rejector.
    """

    classes: tuple[str, ...]
    labels: Places  # (b,) -1 where rejected
    nearest: Places  # (b,) the most probable class, whatever the rejector says
    probability: Floats  # (b,) of the nearest class
    distance: Floats | None  # (b,) to the nearest class
    unknown_score: Floats  # (b,)
    p_values: Floats | None  # (b,)
    top: Places  # (b, 3) the nearest classes in their order; fewer columns where there are fewer classes
    top_probability: Floats  # (b, 3)

    @classmethod
    def of(
        cls,
        classes: Sequence[str],
        *,
        labels: Places,
        nearest: Places,
        log_probs: Floats,
        distance: Floats | None,
        unknown_score: Floats,
        p_values: Floats | None,
    ) -> Self:
        """Predictions from what a network or an exported graph gives; ``log_probs`` are ``(b, k)``."""
        top = _top(log_probs, nearest)
        with np.errstate(over="ignore"):
            probability = np.exp(np.take_along_axis(log_probs, top, 1))  # (b, 3)
        return cls(
            classes=tuple(classes),
            labels=labels,
            nearest=nearest,
            probability=probability[:, 0],
            distance=distance,
            unknown_score=unknown_score,
            p_values=p_values,
            top=top,
            top_probability=probability,
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The predictions of several batches, one after the other."""
        arrays: dict[str, Any] = {}
        for name in [column.name for column in fields(cls) if column.name != "classes"]:
            columns = [getattr(part, name) for part in parts]
            arrays[name] = None if columns[0] is None else np.concatenate(columns)
        return cls(classes=parts[0].classes, **arrays)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def names(self) -> list[str]:
        """The name of each label; ``"unknown"`` where it is -1."""
        named = (*self.classes, UNKNOWN_NAME)  # -1 is the last
        return [named[label] for label in self.labels.tolist()]

    def rows(self) -> list[dict[str, Any]]:
        """One record per input, as JSON can hold it: nan and infinity are None."""
        return [self._row(place) for place in range(len(self))]

    def _row(self, place: int) -> dict[str, Any]:
        pairs = zip(self.top[place].tolist(), self.top_probability[place].tolist(), strict=True)
        label = int(self.labels[place])
        return {
            "label": UNKNOWN_NAME if label < 0 else self.classes[label],
            "is_unknown": label < 0,
            "nearest": self.classes[self.nearest[place]],
            "probability": _number(self.probability, place),
            "distance": _number(self.distance, place),
            "p_value": _number(self.p_values, place),
            "unknown_score": _number(self.unknown_score, place),
            "top": [{"class": self.classes[k], "probability": _finite(p)} for k, p in pairs],
        }


def _top(log_probs: Floats, nearest: Places) -> Places:
    """The most probable classes in their order, the nearest one first even where rounding makes others equal."""
    order = log_probs.copy()
    np.put_along_axis(order, nearest[:, None], np.inf, 1)
    order = np.nan_to_num(order, nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    found: Places = np.argsort(-order, axis=1, kind="stable")[:, :TOP]
    return found


def _number(values: Floats | None, place: int) -> float | None:
    return None if values is None else _finite(float(values[place]))


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
