"""Distances between outputs and prototypes."""

import torch
from torch import Tensor

from openradial.errors import DTypeError, OptionError, check_count, check_outputs
from openradial.functional import eager
from openradial.functional.geometry import Axes, Geometry, PrototypesLike, make_geometry
from openradial.functional.norms import DistanceMetric, MetricName, make_metric

KIND = "_openradial_kind"  # attribute of a tensor that holds distances or probabilities instead of outputs


def radial_distances(
    o: Tensor,
    *,
    scale: float = 1.0,
    prototypes: PrototypesLike | None = None,
    metric: MetricName = "euclidean",
    axis_scale: Tensor | None = None,
) -> Tensor:
    r"""Return the distance of each output to each class prototype, ``(..., outputs) -> (..., classes)``.

    .. math:: d_k = \lVert o - \text{scale} \cdot e_k \rVert

    Smaller is closer. ``o`` of half precision is computed and returned in float32.

    Args:
        o: outputs of the last affine layer, classes on the last axis.
        scale: distance of the axis prototypes to the origin, the paper's ``a``.
        prototypes: None for axis prototypes, a ``(classes, outputs)`` matrix, or a module of
            :mod:`openradial.nn.prototypes`.
        metric: ``"euclidean"``, ``"squared_euclidean"``, ``"manhattan"`` or ``"chebyshev"``.
        axis_scale: divides the differences axis by axis before they are measured (a diagonal Mahalanobis metric),
            shape ``(outputs,)``.

    >>> radial_distances(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    tensor([[0.0000, 1.4142],
            [1.0000, 1.0000]])
    """
    rows = as_rows(o)
    geometry, measure = make_geometry(prototypes, scale, rows.shape[1]), make_metric(metric, axis_scale)
    return from_rows(geometry.distances(rows, measure), o, "distances")


def radial_nearest(
    o: Tensor,
    k: int = 1,
    *,
    scale: float = 1.0,
    prototypes: PrototypesLike | None = None,
    metric: MetricName = "euclidean",
    axis_scale: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return distances and classes of the ``k`` nearest prototypes, nearest first, each of shape ``(..., k)``.

    With axis prototypes the order of the distances is the order of the outputs, so only ``k`` distances are computed:
    two passes over ``o`` for ``k=1``, where softmax with its maximum needs four. The distances are differentiable.

    >>> distances, classes = radial_nearest(torch.tensor([[0.1, 0.9, 0.2]]))
    >>> distances, classes
    (tensor([[0.2449]]), tensor([[1]]))
    """
    check_count("k", k)
    rows = as_rows(o)
    geometry, measure = make_geometry(prototypes, scale, rows.shape[1]), make_metric(metric, axis_scale)
    classes = geometry.num_classes(rows.shape[1])
    if k > classes:
        raise OptionError(f"k must lie in 1..{classes}, the number of classes, got {k!r}")
    distances, nearest = _nearest(rows, k, geometry, measure)
    return from_rows(distances, o, "distances"), from_rows(nearest, o, "classes")


def _nearest(rows: Tensor, k: int, geometry: Geometry, metric: DistanceMetric) -> tuple[Tensor, Tensor]:
    if not isinstance(geometry, Axes) or metric.axis_scale is not None:
        # sorted by distance, because topk(largest=False) leaves NaN last and would hide it
        distances = geometry.distances(rows, metric)
        nearest = (-distances).topk(k, -1).indices
        return distances.gather(-1, nearest), nearest
    if k == 1:
        classes = eager.largest(rows)
        return geometry.distances_to(rows, classes, metric).unsqueeze(-1), classes.unsqueeze(-1)
    nearest = rows.topk(k, -1).indices
    return torch.stack([geometry.distances_to(rows, nearest[..., i], metric) for i in range(k)], -1), nearest


def as_rows(o: Tensor) -> Tensor:
    """Return outputs as a matrix ``(n, outputs)`` in at least float32, checked."""
    if not isinstance(o, Tensor):
        raise DTypeError(f"outputs must be a torch.Tensor, got {type(o).__name__}; for NumPy use openradial.reference")
    if kind := getattr(o, KIND, None):
        raise DTypeError(f"expected the outputs of a network, got the {kind} computed from them; pass the outputs")
    check_outputs(tuple(o.shape), o.dtype, o.is_floating_point())
    if o.dtype in (torch.float16, torch.bfloat16):
        o = o.float()
    return o if o.ndim == 2 else o.reshape(-1, o.shape[-1])


def from_rows(result: Tensor, o: Tensor, kind: str) -> Tensor:
    """Return the result for the rows of ``o``, ``(n, width)``, with the leading axes of ``o`` and a note of its kind.

    Functions of outputs refuse a tensor with such a note: a loss of log-probabilities would train, but silently wrong.
    """
    result = result if o.ndim == 2 else result.reshape(*o.shape[:-1], result.shape[-1])
    if not torch.compiler.is_compiling():
        setattr(result, KIND, kind)
    return result
