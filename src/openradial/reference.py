"""The radial prediction layer in NumPy, float64, with gradients: imports no torch.

For NumPy users it is the layer; for the tests it is the oracle. Every function follows the paper's definition, difference
by difference, without the closed forms of :mod:`openradial.functional`. Memory is O(n*k); time is O(n*k*d) for all
classes and O(n*d) for the loss.

>>> import numpy as np
>>> o = np.array([[1.0, 0.0], [0.5, 0.5]])
>>> radial_probs(o, beta=2.0).round(3)
array([[1.   , 0.059],
       [0.243, 0.243]])
>>> radial_loss(o, np.array([0, 1]))
0.3535533905932738
"""

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openradial.errors import (
    DTypeError,
    OptionError,
    ShapeError,
    TargetError,
    check_choice,
    check_count,
    check_positive,
)

__all__ = [
    "axis_prototypes",
    "radial_distances",
    "radial_distances_grad",
    "radial_log_probs",
    "radial_loss",
    "radial_loss_grad",
    "radial_nearest",
    "radial_probs",
    "simplex_prototypes",
]

Array = NDArray[np.float64]
MetricName = Literal["euclidean", "squared_euclidean", "manhattan", "chebyshev"]
METRICS = ("euclidean", "squared_euclidean", "manhattan", "chebyshev")


def axis_prototypes(num_classes: int, scale: float = 1.0) -> Array:
    """``scale * e_k`` as rows, ``(k, k)``."""
    check_count("num_classes", num_classes)
    check_positive("scale", scale)
    return scale * np.eye(num_classes)


def simplex_prototypes(num_classes: int, scale: float = 1.0) -> Array:
    """``num_classes`` points in one dimension less, each two ``sqrt(2) * scale`` apart, ``(k, k-1)``."""
    check_count("num_classes", num_classes, least=2)
    check_positive("scale", scale)
    d = num_classes - 1
    return scale * np.vstack([np.eye(d), np.full((1, d), (1 - math.sqrt(1 + d)) / d)])


def radial_distances(
    o: ArrayLike,
    *,
    scale: float = 1.0,
    prototypes: ArrayLike | None = None,
    metric: MetricName = "euclidean",
    axis_scale: ArrayLike | None = None,
) -> Array:
    """Distance of each output to each prototype, ``(..., d) -> (..., k)``."""
    check_choice("metric", metric, METRICS)
    rows = _outputs(o)
    points = _prototypes(rows.shape[-1], scale, prototypes)
    columns = [_length((rows - point) / _axis_scale(axis_scale), metric) for point in points]
    return np.stack(columns, axis=-1)


def radial_distances_grad(
    o: ArrayLike,
    upstream: ArrayLike,
    *,
    scale: float = 1.0,
    prototypes: ArrayLike | None = None,
    metric: MetricName = "euclidean",
    axis_scale: ArrayLike | None = None,
) -> Array:
    """Gradient with respect to ``o`` of ``sum(upstream * radial_distances(o))``; zero on a prototype.

    For log-probabilities pass ``-beta`` times their upstream gradient.
    """
    check_choice("metric", metric, METRICS)
    rows = _outputs(o)
    points = _prototypes(rows.shape[-1], scale, prototypes)
    weights = np.asarray(upstream, dtype=np.float64)
    unit = _axis_scale(axis_scale)
    grad = np.zeros_like(rows)
    for k, point in enumerate(points):
        grad += weights[..., k, None] * _length_grad((rows - point) / unit, metric) / unit
    return grad


def radial_log_probs(
    o: ArrayLike,
    *,
    beta: float = 1.0,
    scale: float = 1.0,
    prototypes: ArrayLike | None = None,
    metric: MetricName = "euclidean",
    axis_scale: ArrayLike | None = None,
) -> Array:
    """``-beta * d_k``, ``(..., d) -> (..., k)``."""
    check_positive("beta", beta)
    return -beta * radial_distances(o, scale=scale, prototypes=prototypes, metric=metric, axis_scale=axis_scale)


def radial_probs(
    o: ArrayLike,
    *,
    beta: float = 1.0,
    scale: float = 1.0,
    cutoff: float | Literal["disjoint"] | None = None,
    prototypes: ArrayLike | None = None,
    metric: MetricName = "euclidean",
    axis_scale: ArrayLike | None = None,
) -> Array:
    """``exp(-beta * d_k)``, zero where ``d_k`` is not below the cut-off."""
    check_positive("beta", beta)
    d = radial_distances(o, scale=scale, prototypes=prototypes, metric=metric, axis_scale=axis_scale)
    probs = np.exp(-beta * d)
    if cutoff is None:
        return probs
    if cutoff == "disjoint":
        points = _prototypes(np.shape(o)[-1], scale, prototypes)
        apart = radial_distances(points, prototypes=points, metric=metric, axis_scale=axis_scale)
        np.fill_diagonal(apart, np.inf)
        cutoff = float(apart.min()) / (4 if metric == "squared_euclidean" else 2)
    elif isinstance(cutoff, str):
        raise OptionError(f"cutoff must be None, a radius above 0 or 'disjoint', got {cutoff!r}")
    check_positive("cutoff", cutoff)
    return np.where(d >= cutoff, 0.0, probs)


def radial_nearest(
    o: ArrayLike,
    k: int = 1,
    *,
    scale: float = 1.0,
    prototypes: ArrayLike | None = None,
    metric: MetricName = "euclidean",
    axis_scale: ArrayLike | None = None,
) -> tuple[Array, NDArray[np.int64]]:
    """Distances and classes of the ``k`` nearest prototypes, nearest first."""
    d = radial_distances(o, scale=scale, prototypes=prototypes, metric=metric, axis_scale=axis_scale)
    if not 1 <= k <= d.shape[-1]:
        raise OptionError(f"k must lie in 1..{d.shape[-1]}, the number of classes, got {k!r}")
    nearest = np.argsort(d, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(d, nearest, -1), nearest


def radial_loss(
    o: ArrayLike,
    target: ArrayLike,
    *,
    beta: float = 1.0,
    scale: float = 1.0,
    weight: ArrayLike | None = None,
    ignore_index: int = -100,
    reduction: Literal["mean", "sum", "none"] = "mean",
    prototypes: ArrayLike | None = None,
    metric: MetricName = "euclidean",
    axis_scale: ArrayLike | None = None,
) -> Array | float:
    """``beta`` times the distance to the target's prototype, for outputs ``(n, d)`` and targets ``(n,)``."""
    check_positive("beta", beta)
    check_choice("metric", metric, METRICS)
    check_choice("reduction", reduction, ("mean", "sum", "none"))
    e, share = _target_differences(o, target, scale, weight, ignore_index, prototypes)
    loss = np.where(share != 0, beta * _length(e / _axis_scale(axis_scale), metric) * share, 0.0)
    if reduction == "none":
        return loss
    return float(loss.sum() / share.sum()) if reduction == "mean" else float(loss.sum())


def radial_loss_grad(
    o: ArrayLike,
    target: ArrayLike,
    *,
    beta: float = 1.0,
    scale: float = 1.0,
    weight: ArrayLike | None = None,
    ignore_index: int = -100,
    reduction: Literal["mean", "sum"] = "mean",
    prototypes: ArrayLike | None = None,
    metric: MetricName = "euclidean",
    axis_scale: ArrayLike | None = None,
) -> Array:
    """Gradient of :func:`radial_loss` with respect to ``o``; zero on the prototype."""
    check_positive("beta", beta)
    check_choice("metric", metric, METRICS)
    check_choice("reduction", reduction, ("mean", "sum"))
    e, share = _target_differences(o, target, scale, weight, ignore_index, prototypes)
    unit = _axis_scale(axis_scale)
    per_row = beta * share / (share.sum() if reduction == "mean" else 1.0)
    return per_row[:, None] * _length_grad(e / unit, metric) / unit


def _target_differences(
    o: ArrayLike, target: ArrayLike, scale: float, weight: ArrayLike | None, ignore_index: int, prototypes: ArrayLike | None
) -> tuple[Array, Array]:
    """``o - p_y`` for each example, and how much the example counts."""
    rows, y = _outputs(o), np.asarray(target)
    if rows.ndim != 2 or y.shape != rows.shape[:1]:
        raise ShapeError(f"expected outputs (n, d) and targets (n,), got {rows.shape} and {y.shape}; flatten them first")
    if not np.issubdtype(y.dtype, np.integer):
        raise DTypeError(f"targets must be class indices of an integer dtype, got {y.dtype}; call .astype(int) on them")
    classes = rows.shape[1] if prototypes is None else len(np.asarray(prototypes))
    kept = y != ignore_index
    wrong = y[kept & ((y < 0) | (y >= classes))]
    if wrong.size:
        raise TargetError(
            f"targets must lie in 0..{classes - 1} or be ignore_index={ignore_index}, got {int(wrong[0])}; "
            "map your labels to 0..classes-1 or widen the last layer"
        )
    y = np.where(kept, y, 0)
    e = rows.copy()
    if prototypes is None:
        check_positive("scale", scale)
        e[np.arange(len(y)), y] -= scale
    else:
        e -= _prototypes(rows.shape[1], scale, prototypes)[y]
    share = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)[y]
    return e, share * kept


def _length(e: Array, metric: str) -> Array:
    if metric == "euclidean":
        return np.sqrt(np.square(e).sum(-1))
    if metric == "squared_euclidean":
        return np.asarray(np.square(e).sum(-1))
    return np.asarray(np.abs(e).sum(-1) if metric == "manhattan" else np.abs(e).max(-1))


def _length_grad(e: Array, metric: str) -> Array:
    if metric == "squared_euclidean":
        return 2 * e
    if metric == "manhattan":
        return np.sign(e)
    length = _length(e, metric)[..., None]
    if metric == "euclidean":
        return np.divide(e, length, out=np.zeros_like(e), where=length > 0)
    largest = np.abs(e) == length
    return np.sign(e) * largest / largest.sum(-1, keepdims=True)


def _outputs(o: ArrayLike) -> Array:
    array = np.asarray(o)
    if not np.issubdtype(array.dtype, np.floating):
        raise DTypeError(f"outputs must be floating point, got {array.dtype}; pass the last affine layer's result as it is")
    if array.ndim == 0 or array.shape[-1] == 0:
        raise ShapeError(
            f"outputs must have at least one number per input on their last axis, got shape {array.shape}; "
            "expected (..., outputs)"
        )
    return array.astype(np.float64)


def _prototypes(outputs: int, scale: float, prototypes: ArrayLike | None) -> Array:
    if prototypes is None:
        return axis_prototypes(outputs, scale)
    points = np.asarray(prototypes, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != outputs:
        raise ShapeError(
            f"prototypes must be a (classes, {outputs}) matrix for {outputs} outputs, got shape {points.shape}; "
            "pass one row per class"
        )
    return points


def _axis_scale(axis_scale: ArrayLike | None) -> Array | float:
    return 1.0 if axis_scale is None else np.asarray(axis_scale, dtype=np.float64)
