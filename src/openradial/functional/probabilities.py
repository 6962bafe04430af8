"""Distances between outputs and prototypes, and probabilities that need not sum to one."""

import math
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from openradial import errors
from openradial.functional import eager
from openradial.functional.geometry import Axes, Geometry, PrototypesLike, Simplex, make_geometry
from openradial.functional.norms import DistanceMetric, make_metric

Cutoff = float | Literal["disjoint"] | None
KIND = "_openradial_kind"  # attribute of a tensor that holds distances or probabilities instead of outputs


def radial_distances(
    o: Tensor,
    *,
    scale: float = 1.0,
    prototypes: PrototypesLike | None = None,
    metric: errors.MetricName = "euclidean",
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
    metric: errors.MetricName = "euclidean",
    axis_scale: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return distances and classes of the ``k`` nearest prototypes, nearest first, each of shape ``(..., k)``.

    With axis prototypes the order of the distances is the order of the outputs, so only ``k`` distances are computed:
    two passes over ``o`` for ``k=1``, where softmax with its maximum needs four. The distances are differentiable.

    >>> distances, classes = radial_nearest(torch.tensor([[0.1, 0.9, 0.2]]))
    >>> distances, classes
    (tensor([[0.2449]]), tensor([[1]]))
    """
    errors.check_count("k", k)
    rows = as_rows(o)
    geometry, measure = make_geometry(prototypes, scale, rows.shape[1]), make_metric(metric, axis_scale)
    classes = geometry.num_classes(rows.shape[1])
    if k > classes:
        raise errors.OptionError(f"k must lie in 1..{classes}, the number of classes, got {k!r}")
    if isinstance(geometry, Axes) and measure.axis_scale is None:
        nearest = eager.largest(rows).unsqueeze(-1) if k == 1 else rows.topk(k, -1).indices
        distances = torch.stack([geometry.distances_to(rows, nearest[..., i], measure) for i in range(k)], -1)
    else:  # sorted by distance, because topk(largest=False) leaves NaN last and would hide it
        distances = geometry.distances(rows, measure)
        nearest = (-distances).topk(k, -1).indices
        distances = distances.gather(-1, nearest)
    return from_rows(distances, o, "distances"), from_rows(nearest, o, "classes")


def as_rows(o: Tensor) -> Tensor:
    """Return outputs as a matrix ``(n, outputs)`` in at least float32, checked."""
    if not isinstance(o, Tensor):
        raise errors.DTypeError(
            f"outputs must be a torch.Tensor, got {type(o).__name__}; for NumPy use openradial.reference"
        )
    check_kind(o)
    errors.check_outputs(tuple(o.shape), o.dtype, o.is_floating_point())
    if o.dtype in (torch.float16, torch.bfloat16):
        o = o.float()
    return o if o.ndim == 2 else o.reshape(-1, o.shape[-1])


def check_kind(o: Tensor) -> None:
    """Raise if ``o`` has a note that it was computed from outputs."""
    if kind := getattr(o, KIND, None):
        raise errors.DTypeError(
            f"expected the outputs of a network, got the {kind} computed from them; pass the outputs"
        )


def from_rows(result: Tensor, o: Tensor, kind: str) -> Tensor:
    """Return the result of rows, ``(n, width)``, with the leading axes of ``o`` and a note of its kind."""
    return note_kind(result if o.ndim == 2 else result.reshape(*o.shape[:-1], result.shape[-1]), kind)


def note_kind(result: Tensor, kind: str) -> Tensor:
    """Note on a result what it is; functions of outputs refuse a tensor with such a note.

    A loss of log-probabilities would train, but silently wrong. Compiled code does not write the note.
    """
    if not torch.compiler.is_compiling():
        setattr(result, KIND, kind)
    return result


def radial_log_probs(
    o: Tensor,
    *,
    beta: float = 1.0,
    scale: float = 1.0,
    prototypes: PrototypesLike | None = None,
    metric: errors.MetricName = "euclidean",
    axis_scale: Tensor | None = None,
) -> Tensor:
    r"""Return the logarithms of the radial probabilities, ``(..., outputs) -> (..., classes)``.

    .. math:: \log p(y=k \mid x) = -\beta\, d_k

    Finite for every finite ``o``. ``nn.NLLLoss`` on it is the paper's loss; :func:`radial_loss` is the same, faster.
    The other arguments are those of :func:`radial_distances`.

    >>> radial_log_probs(torch.tensor([[1.0, 0.0]]), beta=2.0)
    tensor([[-0.0000, -2.8284]])
    """
    errors.check_positive("beta", beta)
    rows = as_rows(o)
    geometry, measure = make_geometry(prototypes, scale, rows.shape[1]), make_metric(metric, axis_scale)
    return from_rows(_log_probs(rows, float(beta), geometry, measure), o, "log-probabilities")


def _log_probs(rows: Tensor, beta: float, geometry: Geometry, metric: DistanceMetric) -> Tensor:
    if isinstance(geometry, Axes) and metric.is_plain_euclidean:
        return eager.all_distances(rows, geometry.scale, -beta)
    return eager.scaled(geometry.distances(rows, metric), -beta)


def radial_probs(
    o: Tensor,
    *,
    beta: float = 1.0,
    scale: float = 1.0,
    cutoff: Cutoff = None,
    prototypes: PrototypesLike | None = None,
    metric: errors.MetricName = "euclidean",
    axis_scale: Tensor | None = None,
) -> Tensor:
    r"""Return the probability of each class, ``(..., outputs) -> (..., classes)``: 1 on a prototype.

    .. math:: p(y=k \mid x) = e^{-\beta d_k} \text{ where } d_k < \text{cutoff, else } 0

    What a row lacks to 1 is the probability of "none of these". Without a cut-off a row can exceed 1, see
    :func:`safe_beta`.

    Args:
        beta: how fast the probability falls.
        cutoff: None, a radius, or ``"disjoint"``: half the distance between prototypes (``scale / sqrt(2)`` on the
            axes), for which rows sum to at most 1 for every input and every beta. For prediction, not for training:
            beyond it the gradient is zero.

    The other arguments are those of :func:`radial_distances`.

    >>> radial_probs(torch.tensor([[1.0, 0.0], [0.5, 0.5], [9.0, 9.0]]), beta=2.0, cutoff="disjoint")
    tensor([[1., 0.],
            [0., 0.],
            [0., 0.]])
    """
    errors.check_positive("beta", beta)
    rows = as_rows(o)
    geometry, measure = make_geometry(prototypes, scale, rows.shape[1]), make_metric(metric, axis_scale)
    errors.check_cutoff(cutoff)
    if cutoff is None:
        probs = _log_probs(rows, float(beta), geometry, measure).exp()
    else:
        radius = geometry.half_separation(measure) if cutoff == "disjoint" else float(cutoff)
        distances = geometry.distances(rows, measure)
        probs = _cut(eager.scaled(distances, -float(beta)).exp(), distances, radius, geometry, measure)
    return from_rows(probs, o, "probabilities")


def _cut(probs: Tensor, distances: Tensor, radius: float, geometry: Geometry, metric: DistanceMetric) -> Tensor:
    # ~(d >= radius) and not (d < radius): NaN must stay NaN
    probs = torch.where(distances >= radius, 0.0, probs)
    has_one_radius = not isinstance(geometry, Simplex) or geometry.is_equidistant(metric)
    if not has_one_radius or radius > geometry.half_separation(metric):
        return probs
    # Midway between two prototypes rounding may put a point inside both balls: only the nearest counts.
    nearest = distances.argmin(-1, keepdim=True)
    return torch.zeros_like(probs).scatter(-1, nearest, probs.gather(-1, nearest))


def safe_beta(num_classes: int, scale: float = 1.0, excess: float = 0.01) -> float:
    r"""Return the smallest beta for which probabilities sum to at most ``1 + excess`` at every output.

    That is :math:`\sum_k e^{-\beta d_k} \le 1 + \text{excess}` without a cut-off. At a prototype the sum is
    :math:`1 + (K-1) e^{-\beta\sqrt 2\,\text{scale}}`, which decides for small K; for many classes (from about 70,000 at
    the default excess) the centroid of all prototypes does. For the euclidean metric, and for axis or simplex
    prototypes.

    >>> round(safe_beta(10), 4)
    4.81
    """
    errors.check_count("num_classes", num_classes, least=2)
    errors.check_positive("scale", scale)
    errors.check_positive("excess", excess)
    if excess >= num_classes - 1:
        raise errors.OptionError(
            f"excess must be below num_classes - 1 = {num_classes - 1}, got {excess!r}: "
            "no sum of probabilities exceeds num_classes, so every beta is safe"
        )
    limit = 1 + excess
    low = max(
        math.log((num_classes - 1) / excess) / math.sqrt(2),  # at a prototype
        math.log(num_classes / limit) / math.sqrt(1 - 1 / num_classes),  # at the centroid
    )
    if _largest_sum(num_classes, low) <= limit * (1 + 1e-10):  # rounding of the sum
        return low / scale
    high = 2 * low + 1
    while _largest_sum(num_classes, high) > limit:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _largest_sum(num_classes, middle) > limit else (low, middle)
    return high / scale


@lru_cache
def _largest_sum(num_classes: int, beta: float) -> float:
    r"""Supremum over all outputs of :math:`\sum_k e^{-\beta d_k}` for scale 1.

    Projecting an output onto the convex hull of the prototypes brings it nearer to each of them, so the supremum lies
    there: :math:`o = \sum_k \lambda_k e_k`. For a given :math:`\lVert\lambda\rVert` the terms are
    :math:`\psi(\lambda_k)` with :math:`\psi'` convex, so stationary points have at most two different positive
    coordinates, and a maximum at most one coordinate at the larger value: one at u, q at v, the others at 0.
    """
    counts = set(range(min(num_classes, 65)))
    counts |= {min(num_classes - 1, round(1.05**i)) for i in range(math.ceil(math.log(num_classes, 1.05)) + 1)}
    q = torch.tensor(sorted(counts), dtype=torch.float64).unsqueeze(1)  # (candidates, 1)
    low, high = torch.zeros_like(q), 1 / (q + 1)
    best = 1.0
    for _ in range(6):  # each round narrows v to the two cells around its best grid point
        grid = torch.linspace(0, 1, 65, dtype=torch.float64)
        v = low + (high - low) * grid  # (candidates, 65)
        u = 1 - q * v
        norm = u.square() + q * v.square()
        at_u, at_v, at_0 = (torch.exp(-beta * (norm + 1 - 2 * c).clamp_min(0).sqrt()) for c in (u, v, 0 * v))
        total = at_u + q * at_v + (num_classes - 1 - q) * at_0
        best = max(best, float(total.max()))
        at = total.argmax(1, keepdim=True)
        low, high = v.gather(1, (at - 1).clamp_min(0)), v.gather(1, (at + 1).clamp_max(64))
    return best
