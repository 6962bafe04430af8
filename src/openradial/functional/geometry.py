"""Arrangements of prototypes: on the axes, on a simplex, or the rows of a matrix. All take outputs ``(n, d)``."""

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.autograd import Function

from openradial.errors import DTypeError, MetricName, OptionError, ShapeError, check_positive, check_unscaled
from openradial.functional import eager
from openradial.functional.norms import EUCLIDEAN, DistanceMetric

POWERS = {"euclidean": 2.0, "squared_euclidean": 2.0, "manhattan": 1.0, "chebyshev": math.inf}


@runtime_checkable
class HasGeometry(Protocol):
    """An object that knows its prototypes, such as the modules in :mod:`openradial.nn.prototypes`."""

    def geometry(self) -> "Geometry": ...

    def check_outputs(self, outputs: int) -> None: ...


@dataclass(frozen=True)
class Axes:
    """Prototype k is ``scale * e_k``: the paper's."""

    scale: float = 1.0

    def num_classes(self, outputs: int) -> int:
        """Return the number of prototypes for this many outputs."""
        return outputs

    def distances(self, o: Tensor, metric: DistanceMetric) -> Tensor:
        """Return distances to every prototype: ``(n, d) -> (n, k)``."""
        if metric.is_plain_euclidean:
            return eager.all_distances(o, self.scale, 1.0)
        return metric.axis_lengths(o, self.scale)

    def distances_to(self, o: Tensor, y: Tensor, metric: DistanceMetric) -> Tensor:
        """Return distances to the prototype of class ``y``: ``(n, d), (n,) -> (n,)``."""
        if metric.is_plain_euclidean:
            return eager.target_distances(o, y, self.scale)
        return metric.length(eager.shift_to_prototype(o, y, self.scale))

    def half_separation(self, metric: DistanceMetric) -> float:
        """Return the largest radius for which the balls around the prototypes are disjoint."""
        return metric.half_separation(self.scale)


@dataclass(frozen=True)
class Simplex:
    """K equidistant prototypes in K-1 dimensions: the K-1 axis prototypes, and one on the negative diagonal.

    Its mutual distances are those of the axis prototypes, ``sqrt(2) * scale``. It is not centred at the origin: the
    bias of the last layer compensates that, and the axis form keeps it exact and O(n*k).
    """

    scale: float = 1.0

    def num_classes(self, outputs: int) -> int:
        return outputs + 1

    def diagonal(self, outputs: int) -> float:
        """Return the coordinate of the last prototype on every axis."""
        return self.scale * (1 - math.sqrt(1 + outputs)) / outputs

    def distances(self, o: Tensor, metric: DistanceMetric) -> Tensor:
        last = metric.length(o - self.diagonal(o.shape[-1]))
        return torch.cat([Axes(self.scale).distances(o, metric), last.unsqueeze(-1)], -1)

    def distances_to(self, o: Tensor, y: Tensor, metric: DistanceMetric) -> Tensor:
        outputs = o.shape[-1]
        on_axis = eager.shift_to_prototype(o, y.clamp_max(outputs - 1), self.scale)
        is_last = (y == outputs).unsqueeze(-1)
        return metric.length(torch.where(is_last, o - self.diagonal(outputs), on_axis))

    def is_equidistant(self, metric: DistanceMetric) -> bool:
        """Return whether all prototypes are equally far apart in this metric."""
        return metric.axis_scale is None and metric.name in ("euclidean", "squared_euclidean")

    def half_separation(self, metric: DistanceMetric) -> float:
        if not self.is_equidistant(metric):
            raise OptionError(
                "a simplex is equidistant in the euclidean metric only, so cutoff='disjoint' has no one radius here; "
                "give cutoff as a number"
            )
        return metric.half_separation(self.scale)


@dataclass(frozen=True)
class PrototypeRows:
    """Prototype k is row k of a matrix."""

    matrix: Tensor

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2 or 0 in self.matrix.shape:
            message = f"prototypes must be a matrix with one row per class, got shape {tuple(self.matrix.shape)}"
            raise ShapeError(f"{message}; pass a tensor of shape (classes, outputs)")
        if not self.matrix.is_floating_point():
            raise DTypeError(f"prototypes must be floating point, got {self.matrix.dtype}; call .float() on them")

    def num_classes(self, outputs: int) -> int:
        return self.matrix.shape[0]

    def distances(self, o: Tensor, metric: DistanceMetric) -> Tensor:
        return matrix_distances(o, self.matrix.to(o.dtype), metric)

    def distances_to(self, o: Tensor, y: Tensor, metric: DistanceMetric) -> Tensor:
        return metric.length(o - self.matrix.to(o.dtype)[y])

    def half_separation(self, metric: DistanceMetric) -> float:
        matrix = self.matrix.detach()
        if len(matrix) < 2:
            return math.inf
        apart = matrix_distances(matrix, matrix, metric).fill_diagonal_(math.inf).min().item()
        # A ball of squared radius r has radius sqrt(r): half the distance is a quarter of its square.
        return apart / 4 if metric.name == "squared_euclidean" else apart / 2


Geometry = Axes | Simplex | PrototypeRows
PrototypesLike = Tensor | HasGeometry


def make_geometry(prototypes: PrototypesLike | None, scale: float, outputs: int) -> Geometry:
    """Return the arrangement for the arguments of a call, checked against the number of outputs."""
    check_positive("scale", scale)
    if prototypes is None:
        return Axes(float(scale))
    check_unscaled(scale)
    if isinstance(prototypes, Tensor):
        rows, width = PrototypeRows(prototypes), prototypes.shape[-1]
        if outputs != width:
            message = f"prototypes and outputs must have the same width: {width} axes but {outputs} outputs"
            raise ShapeError(f"{message}; make the last layer {width} wide")
        return rows
    if isinstance(prototypes, HasGeometry):
        prototypes.check_outputs(outputs)
        return prototypes.geometry()
    raise OptionError(
        f"prototypes must be None, a (classes, outputs) tensor or a prototypes module, got {type(prototypes).__name__}"
        "; see openradial.nn.prototypes"
    )


def matrix_distances(o: Tensor, prototypes: Tensor, metric: DistanceMetric) -> Tensor:
    """Return the distance of each output to each row of ``prototypes``: ``(n, d), (k, d) -> (n, k)``.

    O(n*k*d) time; O(n*k) memory in eager mode, O(n*k*d) where the plain form runs (compilers, ``torch.func``).
    """
    if not (eager.first_order_only(o) and eager.first_order_only(prototypes)):
        return plain_matrix_distances(o, prototypes, metric)
    return _MatrixDistances.apply(metric.divide(o), metric.divide(prototypes), metric.name)  # type: ignore[no-any-return, no-untyped-call]


def plain_matrix_distances(o: Tensor, prototypes: Tensor, metric: DistanceMetric) -> Tensor:
    """Return all distances from the definition, ``(n, k)``, with O(n·k·d) memory."""
    return metric.length(o.unsqueeze(-2) - prototypes)


class _MatrixDistances(Function):
    @staticmethod
    def forward(ctx: Any, o: Tensor, p: Tensor, name: MetricName) -> Tensor:
        d = torch.cdist(o, p, POWERS[name], compute_mode="donot_use_mm_for_euclid_dist")  # which would cancel
        if not eager.has_values(o) or not math.isfinite(d.sum().item()):
            d = plain_matrix_distances(o, p, DistanceMetric("euclidean" if name == "squared_euclidean" else name))
        elif POWERS[name] == 2 and d.numel() and d.min().item() < eager.smallest(d.dtype):  # squares lost digits
            i, j = (d < eager.smallest(d.dtype)).nonzero(as_tuple=True)
            d[i, j] = EUCLIDEAN.length(o[i] - p[j])
        ctx.save_for_backward(o, p, d)
        ctx.name = name
        return d.square().clamp_max_(torch.finfo(d.dtype).max) if name == "squared_euclidean" else d

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        o, p, d = ctx.saved_tensors
        if torch.is_grad_enabled():  # double backward
            again = plain_matrix_distances(o, p, DistanceMetric(ctx.name))
            wanted = [t for t in (o, p) if t.requires_grad]
            grads = iter(torch.autograd.grad(again, wanted, g, create_graph=True))
            return *(next(grads) if t.requires_grad else None for t in (o, p)), None
        if ctx.name == "squared_euclidean":
            g = 2 * g * d
        o, p, power = o.contiguous(), p.contiguous(), POWERS[ctx.name]
        backward = torch.ops.aten._cdist_backward
        o_grad = backward(g.contiguous(), o, p, power, d) if ctx.needs_input_grad[0] else None
        p_grad = backward(g.t().contiguous(), p, o, power, d.t().contiguous()) if ctx.needs_input_grad[1] else None
        return o_grad, p_grad, None
