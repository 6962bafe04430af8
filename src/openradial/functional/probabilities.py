"""Probabilities that need not sum to one."""

import math
from typing import Literal

import torch
from torch import Tensor

from openradial.errors import OptionError, check_count, check_cutoff, check_positive
from openradial.functional import eager
from openradial.functional.distances import as_rows, from_rows
from openradial.functional.geometry import Axes, Geometry, PrototypesLike, Simplex, make_geometry
from openradial.functional.norms import DistanceMetric, MetricName, make_metric

Cutoff = float | Literal["disjoint"] | None


def radial_log_probs(
    o: Tensor,
    *,
    beta: float = 1.0,
    scale: float = 1.0,
    prototypes: PrototypesLike | None = None,
    metric: MetricName = "euclidean",
    axis_scale: Tensor | None = None,
) -> Tensor:
    r"""Return the logarithms of the radial probabilities, ``(..., outputs) -> (..., classes)``.

    .. math:: \log p(y=k \mid x) = -\beta\, d_k

    Finite for every finite ``o``. ``nn.NLLLoss`` on it is the paper's loss; :func:`radial_loss` is the same, faster.
    The other arguments are those of :func:`radial_distances`.

    >>> radial_log_probs(torch.tensor([[1.0, 0.0]]), beta=2.0)
    tensor([[-0.0000, -2.8284]])
    """
    check_positive("beta", beta)
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
    metric: MetricName = "euclidean",
    axis_scale: Tensor | None = None,
) -> Tensor:
    r"""Return the probability of each class, ``(..., outputs) -> (..., classes)``: 1 on a prototype.

    .. math:: p(y=k \mid x) = e^{-\beta d_k} \text{ where } d_k < \text{cutoff, else } 0

    What a row lacks to 1 is the probability of "none of these". Without a cut-off a row can exceed 1, see
    :func:`safe_beta`.

    Args:
        o: outputs of the last affine layer, classes on the last axis.
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
    check_positive("beta", beta)
    rows = as_rows(o)
    geometry, measure = make_geometry(prototypes, scale, rows.shape[1]), make_metric(metric, axis_scale)
    check_cutoff(cutoff)
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
    if isinstance(geometry, Simplex) and not geometry.is_equidistant(metric):
        return probs
    if radius > geometry.half_separation(metric):
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
    check_count("num_classes", num_classes, least=2)
    check_positive("scale", scale)
    check_positive("excess", excess)
    if excess >= num_classes - 1:
        raise OptionError(
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
        at_u, at_v, at_0 = (
            torch.exp(-beta * (norm + 1 - 2 * c).clamp_min(0).sqrt()) for c in (u, v, torch.zeros_like(v))
        )
        total = at_u + q * at_v + (num_classes - 1 - q) * at_0
        best = max(best, float(total.max()))
        at = total.argmax(1, keepdim=True)
        low, high = v.gather(1, (at - 1).clamp_min(0)), v.gather(1, (at + 1).clamp_max(64))
    return best
