"""Inputs of metrics: NumPy arrays, torch tensors or lists, checked and converted to NumPy arrays."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openradial.errors import DTypeError, OptionError, ShapeError, TargetError, check_count

Array = NDArray[Any]
UNKNOWN = -1
UNKNOWN_NAME = "unknown"
ROUNDING = 1e-5  # how far above 1 a probability may be; sums and means in float32 get there


def as_array(name: str, values: ArrayLike) -> Array:
    """Return a NumPy array; torch is not imported for it."""
    if hasattr(values, "detach"):
        tensor: Any = values.detach().cpu()
        if tensor.is_floating_point() and tensor.element_size() < 4:  # NumPy has no bfloat16
            tensor = tensor.float()
        return np.asarray(tensor.numpy())
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ShapeError(f"{name} must be an array, got lists of different lengths") from error


def as_numbers(name: str, values: ArrayLike) -> Array:
    """Return real numbers as float32 or float64."""
    array = as_array(name, values)
    if array.dtype.kind not in "iuf":
        raise DTypeError(f"{name} must be real numbers, got {array.dtype}")
    return array.astype(np.promote_types(array.dtype, np.float32), copy=False)


def as_scores(name: str, values: ArrayLike) -> Array:
    """Return scores as float32 or float64, ``(n,)``: at least one, none of them nan; they may be infinite."""
    scores = as_numbers(name, values)
    if scores.ndim != 1 or not len(scores):
        raise ShapeError(f"{name} must be a list of at least one score, got shape {scores.shape}")
    _check_no_nan(name, scores, "index")
    return scores


def as_class_scores(name: str, values: ArrayLike) -> Array:
    """Return one number per example and class, ``(n, k)``, none of them nan."""
    scores = as_numbers(name, values)
    if scores.ndim != 2 or not scores.size:
        raise ShapeError(f"{name} must have the shape (examples, classes) with at least one each, got {scores.shape}")
    _check_no_nan(name, scores, "row")
    return scores


def as_probs(name: str, values: ArrayLike) -> Array:
    """Return probabilities, ``(n, k)``, each from 0 to 1; their sum need not be 1."""
    probs = as_class_scores(name, values)
    if probs.min() < 0 or probs.max() > 1 + ROUNDING:
        row, column = np.argwhere((probs < 0) | (probs > 1 + ROUNDING))[0]
        message = f"{name} must be from 0 to 1, got {probs[row, column]:g} in row {row}"
        raise OptionError(f"{message}; log-probabilities need exp() first, outputs need a head")
    return np.minimum(probs, 1)


def as_flags(name: str, values: ArrayLike, count: int | None = None) -> Array:
    """Return True or False per example, ``(n,)``."""
    flags = as_array(name, values)
    if flags.ndim != 1 or not len(flags):
        raise ShapeError(f"{name} must be a list of at least one True or False, got shape {flags.shape}")
    if flags.dtype != np.bool_:
        raise DTypeError(f"{name} must be True or False, got {flags.dtype}; compare: predictions == labels")
    _check_count(name, flags, count)
    return flags


def as_labels(
    name: str, values: ArrayLike, count: int | None = None, num_classes: int | None = None, *, unknown: bool = True
) -> Array:
    """Return classes as whole numbers, ``(n,)``: from 0, or from -1 where ``unknown`` is allowed."""
    labels = as_array(name, values)
    if labels.ndim != 1 or not len(labels):
        raise ShapeError(f"{name} must be a list of at least one label, got shape {labels.shape}")
    if labels.dtype.kind not in "iu":
        got, way = str(labels.dtype), "convert them with .astype(int) or .long()"
        if is_names(labels):
            indices = f"[classes.index(name) if name in classes else -1 for name in {name}]"
            got, way = "names", f"use their indices: {indices}"
        raise DTypeError(f"{name} must be whole numbers, got {got}; {way}")
    _check_count(name, labels, count)
    labels, least = labels.astype(np.int64), UNKNOWN if unknown else 0
    wrong = (labels < least) | (False if num_classes is None else labels >= num_classes)
    if wrong.any():
        row = int(wrong.argmax())
        most = "" if num_classes is None else f" to {num_classes - 1}"
        meaning = " (-1 is unknown)" if unknown else ", all of them known"
        raise TargetError(f"{name} must be classes from {least}{most}{meaning}, got {labels[row]} in row {row}")
    return labels


def as_label_pair(labels: ArrayLike, predictions: ArrayLike, num_classes: int | None = None) -> tuple[Array, Array]:
    """Return labels and predictions, both whole numbers or both names, as whole numbers, ``(n,), (n,)``."""
    if num_classes is not None:
        check_count("num_classes", num_classes)
    y, predicted = as_array("labels", labels), as_array("predictions", predictions)
    if is_names(y) != is_names(predicted):
        got = " and ".join("names" if is_names(each) else str(each.dtype) for each in (y, predicted))
        raise DTypeError(f"labels and predictions must be both whole numbers or both names, got {got}")
    if is_names(y):
        y, predicted = _indices(y, predicted, num_classes)
    y = as_labels("labels", y, num_classes=num_classes)
    return y, as_labels("predictions", predicted, len(y), num_classes)


def is_names(array: Array) -> bool:
    """Return whether these are strings, also as Python objects as in a column of a data frame."""
    is_objects = array.dtype.kind == "O" and array.size > 0
    return array.dtype.kind in "UT" or (is_objects and all(isinstance(each, str) for each in array.flat))


def _indices(labels: Array, predictions: Array, num_classes: int | None) -> list[Array]:
    """Return the index of each name among all names; "unknown" is -1."""
    names = {*labels.flat, *predictions.flat} - {UNKNOWN_NAME}
    if num_classes is not None and len(names) > num_classes:
        raise TargetError(f"labels and predictions must name at most {num_classes} classes, got {len(names)} names")
    index = {name: k for k, name in enumerate(sorted(names))} | {UNKNOWN_NAME: UNKNOWN}
    return [np.array([index[n] for n in each.flat], np.int64).reshape(each.shape) for each in (labels, predictions)]


def _check_no_nan(name: str, array: Array, axis: str) -> None:
    if np.isnan(array.max()):
        wrong = np.isnan(array).reshape(len(array), -1).any(1)
        raise ShapeError(f"{name} must be numbers, got nan at {axis} {int(wrong.argmax())}")


def _check_count(name: str, array: Array, count: int | None) -> None:
    if count is not None and len(array) != count:
        raise ShapeError(f"{name} must have one entry per example: {count} examples but {len(array)} {name}")
