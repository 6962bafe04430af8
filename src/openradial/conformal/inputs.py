"""Inputs of decisions, checked and converted; and results of the same kind as the inputs: tensors, or NumPy arrays."""

from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from openradial.errors import DTypeError, OptionError, ShapeError, TargetError
from openradial.metrics.inputs import UNKNOWN, UNKNOWN_NAME, as_array, as_numbers, is_names
from openradial.metrics.inputs import as_labels as as_class_indices

TensorOrArray = Tensor | ArrayLike
LabelsLike = NDArray[Any]  # int64 or str


def check_rate(name: str, value: float) -> float:
    """Return ``value`` as a float; raise unless it is a number between 0 and 1."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 < value < 1:
        came = repr(value) if isinstance(value, Real | str | None) else type(value).__name__
        example = "0.95 means 95 %" if name == "confidence" else "0.05 means 5 %"
        raise OptionError(f"{name} must be a number above 0 and below 1, got {came}; {example}")
    return float(value)


def as_scores(name: str, values: TensorOrArray) -> Tensor:
    """Return scores of shape (b,) in float64 on the CPU."""
    scores = _as_tensor(name, values)
    if scores.ndim != 1:
        raise ShapeError(f"{name} must have the shape (b,), one per example, got {tuple(scores.shape)}")
    return scores


def as_distances(name: str, values: TensorOrArray, num_classes: int | None = None) -> Tensor:
    """Return distances of shape (b, k) in float64 on the CPU."""
    distances = _as_tensor(name, values)
    width = "k" if num_classes is None else num_classes
    if distances.ndim != 2 or distances.shape[1] != (num_classes or distances.shape[1]) or not distances.shape[1]:
        raise ShapeError(f"{name} must have the shape (b, {width}), one per class, got {tuple(distances.shape)}")
    negative = ((distances < 0) & distances.isfinite()).any(1)
    if negative.any():
        row = int(negative.int().argmax())
        message = f"{name} must not be negative, got {float(distances[row].min()):g} in row {row}"
        raise ShapeError(f"{message}; use the distances of a head, not log-probabilities or outputs")
    return distances


def check_calibration(name: str, scores: Tensor) -> None:
    """Raise unless there is at least one score, and all are finite."""
    if not len(scores):
        raise ShapeError(f"{name} must hold at least one example to calibrate with, got none")
    bad = ~scores.isfinite()
    if bad.any():
        rows = f"{int(bad.sum())} rows, the first is row {int(bad.int().argmax())}"
        message = f"{name} must be finite to calibrate with, got nan or infinity in {rows}"
        raise ShapeError(f"{message}; use a score without a cut-off, such as the distance")


def as_labels(values: TensorOrArray, count: int, *, known: bool = False) -> LabelsLike:
    """Return one label per example: int64, or str where labels are names; ``known`` allows no "unknown"."""
    labels = as_array("labels", values)
    if labels.shape != (count,):
        raise ShapeError(f"labels must have the shape ({count},), one per score, got {labels.shape}")
    is_text = is_names(labels)
    if not is_text and labels.dtype.kind not in "iu" and count:
        way = "class 3 is 3 and not 3.0" if labels.dtype.kind == "f" else "convert them with .astype(int)"
        raise DTypeError(f"labels must be whole numbers or strings, got {labels.dtype}; {way}")
    labels = labels.astype(np.str_ if is_text else np.int64)
    if known and is_unknown(labels).any():
        row = int(is_unknown(labels).argmax())
        message = f"labels must be known classes to calibrate with, got {labels[row].item()!r} in row {row}"
        raise TargetError(f"{message}: the rate is guaranteed for known data, so remove the unknown rows")
    return labels


def is_unknown(labels: LabelsLike) -> NDArray[np.bool_]:
    """Return where a label is already "unknown"."""
    unknown: NDArray[np.bool_] = labels == (UNKNOWN_NAME if labels.dtype.kind == "U" else UNKNOWN)
    return unknown


def as_targets(values: TensorOrArray, count: int, num_classes: int) -> Tensor:
    """Return the true class of each row of distances, int64 from 0 to k - 1."""
    return torch.from_numpy(as_class_indices("labels", values, count, num_classes, unknown=False))


def in_kind_of(given: TensorOrArray, result: Tensor) -> Any:
    """Return a tensor on the device of the given one, or a NumPy array where that is not a tensor."""
    return result.to(given.device) if isinstance(given, Tensor) else result.numpy()


def _as_tensor(name: str, values: TensorOrArray) -> Tensor:
    return torch.from_numpy(as_numbers(name, values).astype(np.float64))
