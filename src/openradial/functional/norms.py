"""Lengths of difference vectors, and their closed forms for axis prototypes.

Everything here is plain differentiable PyTorch without a branch on values: it is what runs under ``torch.compile``,
``torch.export``, ``torch.func``, in double backward and on every device. :mod:`.eager` holds the faster first-order
version of the default metric.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from openradial.errors import METRIC_NAMES, MetricName, ShapeError, check_choice


@dataclass(frozen=True)
class DistanceMetric:
    """The length of a difference ``e = o - p``; ``axis_scale`` divides each axis first (diagonal Mahalanobis)."""

    name: MetricName = "euclidean"
    axis_scale: Tensor | None = None

    def __post_init__(self) -> None:
        check_choice("metric", self.name, METRIC_NAMES)
        if self.axis_scale is not None and self.axis_scale.ndim != 1:
            raise ShapeError(
                f"axis_scale must hold one positive number per output axis, got shape {tuple(self.axis_scale.shape)}; "
                "pass a tensor of shape (outputs,)"
            )

    @property
    def is_plain_euclidean(self) -> bool:
        return self.name == "euclidean" and self.axis_scale is None

    def divide(self, e: Tensor) -> Tensor:
        """Return differences in units of ``axis_scale``."""
        if self.axis_scale is None:
            return e
        if self.axis_scale.shape[0] != e.shape[-1]:
            raise ShapeError(
                f"axis_scale must hold one number per output axis: {self.axis_scale.shape[0]} numbers but "
                f"{e.shape[-1]} outputs; pass a tensor of shape ({e.shape[-1]},)"
            )
        return e / self.axis_scale.to(e)

    def length(self, e: Tensor) -> Tensor:
        """Return the length over the last axis: ``(..., d) -> (...)``."""
        e = self.divide(e)
        if self.name == "euclidean":
            unit = row_unit(e.abs().amax(-1))
            return saturate(root((e / unit.unsqueeze(-1)).square().sum(-1)) * unit, e)
        if self.name == "chebyshev":
            return e.abs().amax(-1)
        return saturate((e.square() if self.name == "squared_euclidean" else e.abs()).sum(-1), e)

    def axis_lengths(self, o: Tensor, scale: float) -> Tensor:
        r"""Return the distance of each output to every axis prototype ``scale * e_k`` in O(b*k).

        With :math:`S = \sum_i o_i^2`, the distance to prototype k is :math:`\sqrt{(S - o_k^2) + (o_k - a)^2}`. The
        first difference cancels only on an axis that holds most of S, and only the largest one can: there the length is
        that of the difference vector itself.
        """
        on_axis = self.divide(o - scale)  # (*b, k) the difference on axis k
        z = self.divide(o)  # (*b, k)
        size = z.abs()
        top = size.detach().argmax(-1, keepdim=True)  # (*b, 1)
        to_top = self.length(o.scatter(-1, top, o.gather(-1, top) - scale)).unsqueeze(-1)
        if self.name == "chebyshev":
            d = torch.maximum(size.gather(-1, top), on_axis.abs())
        elif self.name == "manhattan":
            d = size.sum(-1, keepdim=True) - size + on_axis.abs()
        else:
            unit = row_unit(torch.maximum(size.amax(-1, keepdim=True), on_axis.abs().amax(-1, keepdim=True)))
            energy = (z / unit).square()
            square = energy.sum(-1, keepdim=True) - energy + (on_axis / unit).square()
            d = root(square) * unit if self.name == "euclidean" else square * unit * unit
        return saturate(d, o).scatter(-1, top, to_top)

    def half_separation(self, scale: float) -> float:
        """Return half the distance between two axis prototypes: the largest radius for which the balls are disjoint."""
        widest = [1.0] if self.axis_scale is None else self.axis_scale.detach().double().sort().values[-2:].tolist()
        legs = [scale / s for s in (widest[0], widest[-1])]
        if self.name == "manhattan":
            return sum(legs) / 2
        if self.name == "chebyshev":
            return max(legs) / 2
        half = math.hypot(*legs) / 2
        return half if self.name == "euclidean" else half * half


def make_metric(name: MetricName, axis_scale: Tensor | None) -> DistanceMetric:
    """Return the metric of a call, checked; the default one is shared."""
    return EUCLIDEAN if name == "euclidean" and axis_scale is None else DistanceMetric(name, axis_scale)


EUCLIDEAN = DistanceMetric()


def root(square: Tensor) -> Tensor:
    """Return the square root whose gradient at 0 is 0 instead of NaN."""
    zero = square == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, square).sqrt())


def row_unit(largest: Tensor) -> Tensor:
    """Return a constant divisor for each row whose squares then stay in range; 1 for rows of 0, inf or NaN."""
    largest = largest.detach()
    return torch.where((largest > 0) & largest.isfinite(), largest, 1.0)


def saturate(d: Tensor, source: Tensor) -> Tensor:
    """Turn an overflow of finite inputs into the largest finite number; what came from inf or NaN stays."""
    finite = source.isfinite().all(-1)
    if d.ndim == source.ndim:
        finite = finite.unsqueeze(-1)
    return torch.where(d.isinf() & finite, torch.finfo(d.dtype).max, d)
