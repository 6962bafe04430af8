"""The radial prediction layer in NumPy, float64, with gradients: imports no torch.

For NumPy users it is the layer; for the tests it is the oracle. Every function follows the paper's definition,
difference by difference, without the closed forms of :mod:`openradial.functional`. Memory is O(n*k); time is O(n*k*d)
for all classes and O(n*(k+d)) for the loss of class targets.

>>> import numpy as np
>>> o = np.array([[1.0, 0.0], [0.5, 0.5]])
>>> radial_probs(o, beta=2.0).round(3)
array([[1.   , 0.059],
       [0.243, 0.243]])
>>> radial_loss(o, np.array([0, 1]))
0.3535533905932738
"""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openradial import errors

__all__ = ["axis_prototypes", "radial_distances", "radial_log_probs", "radial_loss", "radial_loss_grad"]
__all__ += ["radial_nearest", "radial_probs", "simplex_prototypes"]

Doubles = NDArray[np.float64]


def axis_prototypes(num_classes: int, scale: float = 1.0) -> Doubles:
    """Return ``scale * e_k`` as rows, ``(k, k)``."""
    errors.check_count("num_classes", num_classes)
    errors.check_positive("scale", scale)
    return scale * np.eye(num_classes)


def simplex_prototypes(num_classes: int, scale: float = 1.0) -> Doubles:
    """Return ``num_classes`` points in one dimension less, each two ``sqrt(2) * scale`` apart, ``(k, k-1)``."""
    errors.check_count("num_classes", num_classes, least=2)
    errors.check_positive("scale", scale)
    d = num_classes - 1
    return scale * np.vstack([np.eye(d), np.full((1, d), (1 - math.sqrt(1 + d)) / d)])


def radial_distances(
    o: ArrayLike,
    *,
    scale: float = 1.0,
    prototypes: ArrayLike | None = None,
    metric: errors.MetricName = "euclidean",
    axis_scale: ArrayLike | None = None,
) -> Doubles:
    """Return the distance of each output to each prototype, ``(..., d) -> (..., k)``."""
    errors.check_choice("metric", metric, errors.METRIC_NAMES)
    rows = _outputs(o)
    points, unit = _prototypes(rows.shape[-1], scale, prototypes), _axis_scale(axis_scale, rows.shape[-1])
    return np.stack([_length((rows - point) / unit, metric) for point in points], axis=-1)


def radial_log_probs(
    o: ArrayLike,
    *,
    beta: float = 1.0,
    scale: float = 1.0,
    prototypes: ArrayLike | None = None,
    metric: errors.MetricName = "euclidean",
    axis_scale: ArrayLike | None = None,
) -> Doubles:
    """Return ``-beta * d_k``, ``(..., d) -> (..., k)``."""
    errors.check_positive("beta", beta)
    d = radial_distances(o, scale=scale, prototypes=prototypes, metric=metric, axis_scale=axis_scale)
    return _scaled(d, -beta)


def radial_probs(
    o: ArrayLike,
    *,
    beta: float = 1.0,
    scale: float = 1.0,
    cutoff: float | Literal["disjoint"] | None = None,
    prototypes: ArrayLike | None = None,
    metric: errors.MetricName = "euclidean",
    axis_scale: ArrayLike | None = None,
) -> Doubles:
    """Return ``exp(-beta * d_k)``, zero where ``d_k`` is not below the cut-off."""
    errors.check_positive("beta", beta)
    errors.check_cutoff(cutoff)
    d = radial_distances(o, scale=scale, prototypes=prototypes, metric=metric, axis_scale=axis_scale)
    probs = np.exp(_scaled(d, -beta))
    if cutoff is None:
        return probs
    points = _prototypes(np.shape(o)[-1], scale, prototypes)
    disjoint = _half_separation(points, metric, axis_scale, is_axis=prototypes is None)
    radius = disjoint if isinstance(cutoff, str) else cutoff
    probs = np.where(d >= radius, 0.0, probs)
    if radius > disjoint:
        return probs
    # Midway between two prototypes rounding may put a point inside both balls: only the nearest counts.
    return np.where(np.arange(d.shape[-1]) == d.argmin(-1)[..., None], probs, 0.0)


def radial_nearest(
    o: ArrayLike,
    k: int = 1,
    *,
    scale: float = 1.0,
    prototypes: ArrayLike | None = None,
    metric: errors.MetricName = "euclidean",
    axis_scale: ArrayLike | None = None,
) -> tuple[Doubles, NDArray[np.int64]]:
    """Return distances and classes of the ``k`` nearest prototypes, nearest first."""
    d = radial_distances(o, scale=scale, prototypes=prototypes, metric=metric, axis_scale=axis_scale)
    if not (isinstance(k, (int, np.integer)) and 1 <= k <= d.shape[-1]):
        raise errors.OptionError(f"k must lie in 1..{d.shape[-1]}, the number of classes, got {k!r}")
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
    label_smoothing: float = 0.0,
    prototypes: ArrayLike | None = None,
    metric: errors.MetricName = "euclidean",
    axis_scale: ArrayLike | None = None,
    target_weight: float = 1.0,
) -> Doubles | float:
    """Return ``beta`` times the distance to the target's prototype, or the expected one under a target distribution.

    Outputs are ``(d,)``, ``(n, d)`` or ``(n, d, d1, ...)``. Targets are classes, ``()``, ``(n,)`` or ``(n, d1, ...)``,
    or distributions of floating point, ``(k,)``, ``(n, k)`` or ``(n, k, d1, ...)``.
    """
    errors.check_choice("reduction", reduction, ("mean", "sum", "none"))
    options = beta, scale, weight, ignore_index, label_smoothing, prototypes, metric, axis_scale, target_weight
    rows, t, used, share, differences = _targets(o, target, *options)
    loss = np.zeros(len(rows))
    for k, at in enumerate(used.T):
        loss[at] += t[at, k] * _scaled(_length(differences(rows[at], k)[0], metric), beta)
    if reduction == "none":
        return loss.reshape(errors.batch_shape(np.shape(o)))
    with np.errstate(invalid="ignore"):  # nothing to average is NaN, as in PyTorch
        return float(loss.sum() / share if reduction == "mean" else loss.sum())


def radial_loss_grad(
    o: ArrayLike,
    target: ArrayLike,
    *,
    beta: float = 1.0,
    scale: float = 1.0,
    weight: ArrayLike | None = None,
    ignore_index: int = -100,
    reduction: Literal["mean", "sum"] = "mean",
    label_smoothing: float = 0.0,
    prototypes: ArrayLike | None = None,
    metric: errors.MetricName = "euclidean",
    axis_scale: ArrayLike | None = None,
    target_weight: float = 1.0,
) -> Doubles:
    """Return the gradient of :func:`radial_loss` with respect to ``o``; zero on the prototype."""
    errors.check_choice("reduction", reduction, ("mean", "sum"))
    options = beta, scale, weight, ignore_index, label_smoothing, prototypes, metric, axis_scale, target_weight
    rows, t, used, share, differences = _targets(o, target, *options)
    grad = np.zeros_like(rows)
    for k, at in enumerate(used.T):
        e, unit = differences(rows[at], k)
        grad[at] += beta * t[at, k, None] * _length_grad(e, metric) / unit / (share if reduction == "mean" else 1.0)
    return np.moveaxis(grad.reshape(*errors.batch_shape(np.shape(o)), rows.shape[1]), -1, min(1, np.ndim(o) - 1))


def _targets(
    o: ArrayLike,
    target: ArrayLike,
    beta: float,
    scale: float,
    weight: ArrayLike | None,
    ignore_index: int,
    label_smoothing: float,
    prototypes: ArrayLike | None,
    metric: errors.MetricName,
    axis_scale: ArrayLike | None,
    target_weight: float,
) -> tuple[Doubles, Doubles, NDArray[np.bool_], np.float64, Callable[[Doubles, int], tuple[Doubles, Doubles]]]:
    """Return outputs, the factor of each distance, which ones count (n, k), the divisor of "mean", and ``o - p_k``."""
    errors.check_positive("beta", beta)
    errors.check_positive("scale", scale)
    errors.check_choice("metric", metric, errors.METRIC_NAMES)
    errors.check_target_weight(target_weight, metric, prototypes is None)
    rows = _outputs(np.moveaxis(np.asarray(o), 1, -1) if np.ndim(o) > 2 else o)
    d = rows.shape[-1]
    rows, unit = rows.reshape(-1, d), _axis_scale(axis_scale, d)
    matrix = None if prototypes is None else _prototypes(d, scale, prototypes)
    classes = d if matrix is None else len(matrix)

    def differences(o: Doubles, k: int) -> tuple[Doubles, Doubles]:
        point = np.where(np.arange(d) == k, scale, 0.0) if matrix is None else matrix[k]
        u = unit / np.where(np.arange(d) == k, math.sqrt(target_weight), 1.0)
        return (o - point) / u, u

    factors = np.ones(classes) if weight is None else np.asarray(weight, dtype=np.float64)
    y = np.asarray(target)
    is_distribution = np.issubdtype(y.dtype, np.floating)
    if not (is_distribution or np.issubdtype(y.dtype, np.integer)):
        message = f"targets must be classes of an integer dtype or distributions of floating point, got {y.dtype}"
        raise errors.DTypeError(f"{message}; call .astype(int) on classes")
    to_int = ".astype(int)" if is_distribution else None
    errors.check_targets(y.shape, np.shape(o), classes, factors.shape, ignore_index, label_smoothing, to_int)
    if is_distribution:
        t = (np.moveaxis(y, 1, -1) if y.ndim > 2 else y).reshape(-1, classes).astype(np.float64)
        kept, share = np.True_, np.float64(len(rows))
    else:
        y = y.reshape(-1, 1)
        wrong = y[(y != ignore_index) & ((y < 0) | (y >= classes))]
        if wrong.size:
            raise errors.target_error(int(wrong[0]), classes, ignore_index)
        t, kept = 1.0 * (y == np.arange(classes)), y != ignore_index
        share = (t * kept * factors).sum()
    t = (1 - label_smoothing) * t + label_smoothing / classes
    return rows, t * factors, (t != 0) & kept, share, differences


def _length(e: Doubles, metric: str) -> Doubles:
    size, largest = np.abs(e), np.abs(e).max(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        if metric == "euclidean":
            # in units of a power of two, which changes no digit, so that squares neither overflow nor vanish
            unit = np.ldexp(1.0, np.frexp(largest)[1] - 1)
            length = np.sqrt(np.square(e / unit[..., None]).sum(-1)) * unit
        elif metric == "squared_euclidean":
            length = np.square(e).sum(-1)
        else:
            length = size.sum(-1) if metric == "manhattan" else largest
    return np.where(np.isinf(length) & np.isfinite(largest), np.finfo(np.float64).max, length)


def _scaled(d: Doubles, factor: float) -> Doubles:
    """Return ``factor * d``, finite where ``d`` is finite."""
    limit = np.finfo(np.float64).max
    with np.errstate(over="ignore"):
        return np.where(np.isinf(d), d * factor, np.clip(d * factor, -limit, limit))


def _half_separation(points: Doubles, metric: errors.MetricName, axis_scale: ArrayLike | None, is_axis: bool) -> float:
    """Return the largest radius for which the balls around the prototypes are disjoint."""
    if is_axis:  # nearest are the two with the widest axes; a single one is paired with itself
        widest = np.sort(_axis_scale(axis_scale, len(points)))[-2:]
        points, axis_scale = points[0, 0] * np.eye(2), np.resize(widest, 2)
    apart = radial_distances(points, prototypes=points, metric=metric, axis_scale=axis_scale)
    np.fill_diagonal(apart, np.inf)
    # A ball of squared radius r has radius sqrt(r): half the distance is a quarter of its square.
    return float(apart.min()) / (4 if metric == "squared_euclidean" else 2)


def _length_grad(e: Doubles, metric: str) -> Doubles:
    if metric == "squared_euclidean":
        return 2 * e
    if metric == "manhattan":
        return np.sign(e)
    length = _length(e, metric)[..., None]
    with np.errstate(invalid="ignore"):  # NaN and inf lead to NaN
        if metric == "euclidean":
            return np.asarray(e / np.where(length == 0, 1.0, length))
        largest = np.abs(e) == length
        return np.asarray(np.sign(e) * largest / largest.sum(-1, keepdims=True))


def _outputs(o: ArrayLike) -> Doubles:
    array = np.asarray(o)
    errors.check_outputs(array.shape, array.dtype, np.issubdtype(array.dtype, np.floating))
    return array.astype(np.float64)


def _prototypes(outputs: int, scale: float, prototypes: ArrayLike | None) -> Doubles:
    if prototypes is None:
        return axis_prototypes(outputs, scale)
    points = np.asarray(prototypes, dtype=np.float64)
    errors.check_unscaled(scale)
    if points.ndim != 2 or points.shape[1] != outputs or len(points) == 0:
        message = f"prototypes must be a (classes, {outputs}) matrix for {outputs} outputs, got shape {points.shape}"
        raise errors.ShapeError(f"{message}; pass one row per class")
    return points


def _axis_scale(axis_scale: ArrayLike | None, outputs: int) -> Doubles:
    if axis_scale is None:
        return np.ones(outputs)
    unit = np.asarray(axis_scale, dtype=np.float64)
    if unit.shape != (outputs,):
        message = f"axis_scale must hold one number per output axis: expected shape ({outputs},), got {unit.shape}"
        raise errors.ShapeError(f"{message}; use 1.0 for an axis left as it is")
    if not ((unit > 0) & np.isfinite(unit)).all():
        raise errors.OptionError(
            "axis_scale must be finite and above 0 on every axis; use 1.0 for an axis left as it is"
        )
    return unit
