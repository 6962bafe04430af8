"""Where the prototypes lie: on the axes, on a simplex, or on the rows of a matrix. All take outputs ``(n, d)``."""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from openradial.errors import DTypeError, OptionError, ShapeError, check_positive
from openradial.functional import eager
from openradial.functional.matrix import matrix_distances
from openradial.functional.norms import Metric


class Geometry(Protocol):
    """What every arrangement of prototypes can answer."""

    def num_classes(self, outputs: int) -> int:
        """Number of prototypes for this many outputs."""
        ...

    def distances(self, o: Tensor, metric: Metric) -> Tensor:
        """To every prototype: ``(n, d) -> (n, k)``."""
        ...

    def distances_to(self, o: Tensor, y: Tensor, metric: Metric) -> Tensor:
        """To the prototype of class ``y``: ``(n, d), (n,) -> (n,)``."""
        ...

    def half_separation(self, metric: Metric) -> float:
        """Largest radius for which the balls around the prototypes are disjoint."""
        ...


@runtime_checkable
class HasGeometry(Protocol):
    """An object that knows its prototypes, such as the modules in :mod:`openradial.nn.prototypes`."""

    def geometry(self) -> Geometry: ...

    def check_outputs(self, outputs: int) -> None: ...


@dataclass(frozen=True)
class Axes:
    """Prototype k is ``scale * e_k``: the paper's."""

    scale: float = 1.0

    def num_classes(self, outputs: int) -> int:
        return outputs

    def distances(self, o: Tensor, metric: Metric) -> Tensor:
        if metric.is_plain_euclidean:
            return eager.all_distances(o, self.scale, 1.0)
        return metric.axis_lengths(o, self.scale)

    def distances_to(self, o: Tensor, y: Tensor, metric: Metric) -> Tensor:
        if metric.is_plain_euclidean:
            return eager.target_distances(o, y, self.scale)
        return metric.length(eager.shift_to_prototype(o, y, self.scale))

    def half_separation(self, metric: Metric) -> float:
        return metric.half_separation(self.scale)


@dataclass(frozen=True)
class Simplex:
    """K equidistant prototypes in K-1 dimensions: the K-1 axis prototypes, and one on the negative diagonal.

    Its mutual distances are those of the axis prototypes, ``sqrt(2) * scale``. It is not centred at the origin: the
    bias of the last layer makes up for that, and the axis form keeps it exact and O(n*k).
    """

    scale: float = 1.0

    def num_classes(self, outputs: int) -> int:
        return outputs + 1

    def diagonal(self, outputs: int) -> float:
        """Every coordinate of the last prototype."""
        return self.scale * (1 - math.sqrt(1 + outputs)) / outputs

    def distances(self, o: Tensor, metric: Metric) -> Tensor:
        last = metric.length(o - self.diagonal(o.shape[-1]))
        return torch.cat([Axes(self.scale).distances(o, metric), last.unsqueeze(-1)], -1)

    def distances_to(self, o: Tensor, y: Tensor, metric: Metric) -> Tensor:
        outputs = o.shape[-1]
        on_axis = eager.shift_to_prototype(o, y.clamp_max(outputs - 1), self.scale)
        is_last = (y == outputs).unsqueeze(-1)
        return metric.length(torch.where(is_last, o - self.diagonal(outputs), on_axis))

    def half_separation(self, metric: Metric) -> float:
        if metric.axis_scale is not None or metric.name not in ("euclidean", "squared_euclidean"):
            raise OptionError(
                "a simplex is equidistant in the euclidean metric only, so cutoff='disjoint' has no one radius here; "
                "give cutoff as a number"
            )
        return metric.half_separation(self.scale)


@dataclass(frozen=True)
class Rows:
    """Prototype k is row k of a matrix."""

    matrix: Tensor

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2 or 0 in self.matrix.shape:
            raise ShapeError(
                f"prototypes must be a matrix with one row per class, got shape {tuple(self.matrix.shape)}; "
                "pass a tensor of shape (classes, outputs)"
            )
        if not self.matrix.is_floating_point():
            raise DTypeError(f"prototypes must be floating point, got {self.matrix.dtype}; call .float() on them")

    def num_classes(self, outputs: int) -> int:
        return self.matrix.shape[0]

    def check_outputs(self, outputs: int) -> None:
        if outputs != self.matrix.shape[1]:
            raise ShapeError(
                f"prototypes and outputs must have the same width: {self.matrix.shape[1]} axes but {outputs} outputs; "
                f"make the last layer {self.matrix.shape[1]} wide"
            )

    def distances(self, o: Tensor, metric: Metric) -> Tensor:
        return matrix_distances(o, self.matrix.to(o.dtype), metric)

    def distances_to(self, o: Tensor, y: Tensor, metric: Metric) -> Tensor:
        return metric.length(o - self.matrix.to(o.dtype)[y])

    def half_separation(self, metric: Metric) -> float:
        matrix = self.matrix.detach()
        if len(matrix) < 2:
            return math.inf
        apart = matrix_distances(matrix, matrix, metric).fill_diagonal_(math.inf).min().item()
        # A ball of squared radius r has radius sqrt(r): half the distance is a quarter of its square.
        return apart / 4 if metric.name == "squared_euclidean" else apart / 2


Prototypes = Tensor | HasGeometry


def make_geometry(prototypes: Prototypes | None, scale: float, outputs: int) -> Geometry:
    """The arrangement that the arguments of a call name, checked against the number of outputs."""
    check_positive("scale", scale)
    if prototypes is None:
        return Axes(float(scale))
    if scale != 1.0:
        raise OptionError(
            f"scale belongs to the axis prototypes, but prototypes are given: got scale={scale!r}; scale them instead"
        )
    if isinstance(prototypes, Tensor):
        rows = Rows(prototypes)
        rows.check_outputs(outputs)
        return rows
    if isinstance(prototypes, HasGeometry):
        prototypes.check_outputs(outputs)
        return prototypes.geometry()
    raise OptionError(
        f"prototypes must be None, a (classes, outputs) tensor or a prototypes module, got {type(prototypes).__name__}"
        "; see openradial.nn.prototypes"
    )
