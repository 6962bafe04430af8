"""Class prototypes as modules. Each has a geometry, which :mod:`openradial.functional` measures distances with.

| class | outputs for K classes | prototypes |
|---|---|---|
| `AxisPrototypes` | K | the paper's: `scale * e_k` |
| `SimplexPrototypes` | K - 1 | equidistant, one output less |
| `FixedPrototypes` | any | rows of a given matrix |
| `LearnedPrototypes` | any | rows of a matrix that is trained |
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from openradial.errors import ShapeError, check_count, check_positive
from openradial.functional.geometry import Axes, Geometry, PrototypeRows, Simplex, matrix_distances
from openradial.functional.norms import EUCLIDEAN


class Prototypes(nn.Module, ABC):
    """Base of all arrangements: ``num_classes`` points in a space of ``num_outputs`` axes."""

    num_classes: int
    num_outputs: int

    @abstractmethod
    def matrix(self) -> Tensor:
        """Return the prototypes as rows, ``(classes, outputs)``."""

    def geometry(self) -> Geometry:
        """Return what measures distances to these prototypes."""
        return PrototypeRows(self.matrix())

    def check_outputs(self, outputs: int) -> None:
        """Raise unless the last layer is as wide as the space of the prototypes."""
        if outputs != self.num_outputs:
            raise ShapeError(
                f"{type(self).__name__} for {self.num_classes} classes need {self.num_outputs} outputs, got {outputs}; "
                f"make the last layer {self.num_outputs} wide"
            )

    def extra_repr(self) -> str:
        return f"num_classes={self.num_classes}, num_outputs={self.num_outputs}"


class AxisPrototypes(Prototypes):
    """One prototype on each axis, ``scale * e_k``.

    >>> AxisPrototypes(3, scale=2.0).matrix()
    tensor([[2., 0., 0.],
            [0., 2., 0.],
            [0., 0., 2.]])
    """

    def __init__(self, num_classes: int, scale: float = 1.0) -> None:
        super().__init__()
        check_count("num_classes", num_classes)
        check_positive("scale", scale)
        self.num_classes, self.num_outputs, self.scale = num_classes, num_classes, float(scale)

    def geometry(self) -> Axes:
        return Axes(self.scale)

    def matrix(self) -> Tensor:
        return self.scale * torch.eye(self.num_classes)

    def check_outputs(self, outputs: int) -> None:
        if outputs != self.num_classes:
            too_few = outputs < self.num_classes
            raise ShapeError(
                f"axis prototypes need one output per class: {self.num_classes} classes but {outputs} outputs; "
                f"{'widen' if too_few else 'narrow'} the last layer to {self.num_classes} or use "
                f"{'SimplexPrototypes' if too_few else 'LearnedPrototypes'}"
            )

    def extra_repr(self) -> str:
        return f"num_classes={self.num_classes}, scale={self.scale:g}"


class SimplexPrototypes(Prototypes):
    """K equidistant prototypes in K - 1 dimensions, as far apart as axis prototypes of the same ``scale``.

    >>> SimplexPrototypes(3).matrix()
    tensor([[ 1.0000,  0.0000],
            [ 0.0000,  1.0000],
            [-0.3660, -0.3660]])
    """

    def __init__(self, num_classes: int, scale: float = 1.0) -> None:
        super().__init__()
        check_count("num_classes", num_classes, least=2)
        check_positive("scale", scale)
        self.num_classes, self.num_outputs, self.scale = num_classes, num_classes - 1, float(scale)

    def geometry(self) -> Simplex:
        return Simplex(self.scale)

    def matrix(self) -> Tensor:
        last = torch.full((1, self.num_outputs), self.geometry().diagonal(self.num_outputs))
        return torch.cat([self.scale * torch.eye(self.num_outputs), last])

    def extra_repr(self) -> str:
        return f"num_classes={self.num_classes}, scale={self.scale:g}"


class FixedPrototypes(Prototypes):
    """The rows of a given matrix ``(classes, outputs)``, kept as a buffer.

    >>> FixedPrototypes([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    FixedPrototypes(num_classes=3, num_outputs=2)
    """

    points: Tensor

    def __init__(self, matrix: Tensor | list[list[float]]) -> None:
        super().__init__()
        points = torch.as_tensor(matrix).detach().clone()
        if not isinstance(matrix, Tensor) and not points.is_floating_point():
            points = points.to(torch.get_default_dtype())
        PrototypeRows(points)
        self.register_buffer("points", points)
        self.num_classes, self.num_outputs = points.shape

    def matrix(self) -> Tensor:
        return self.points


class LearnedPrototypes(Prototypes):
    """A trained matrix: starts on the axes where they suffice, else at random points at the same distance.

    Minimising the distance to the target alone lets all prototypes and outputs meet in one point. Add
    :meth:`crowding` to the loss, or train on the cross-entropy of the log-probabilities.

    >>> LearnedPrototypes(3, 2)
    LearnedPrototypes(num_classes=3, num_outputs=2)
    """

    def __init__(
        self,
        num_classes: int,
        num_outputs: int,
        scale: float = 1.0,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_count("num_classes", num_classes)
        check_count("num_outputs", num_outputs)
        check_positive("scale", scale)
        self.num_classes, self.num_outputs, self.scale = num_classes, num_outputs, float(scale)
        self.points = nn.Parameter(torch.empty(num_classes, num_outputs, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Put the prototypes back at their start."""
        with torch.no_grad():
            if self.num_outputs >= self.num_classes:
                nn.init.eye_(self.points).mul_(self.scale)
            else:
                directions = nn.functional.normalize(nn.init.normal_(self.points), dim=1)
                self.points.copy_(self.scale * directions)

    def matrix(self) -> Tensor:
        return self.points

    def crowding(self, margin: float | None = None) -> Tensor:
        """Return the mean over all pairs of the squared shortfall of their distance to ``margin``, to add to a loss.

        ``margin`` is ``sqrt(2) * scale`` unless given, the distance of axis prototypes. Prototypes that already
        coincide are not driven apart: their distance has no gradient.

        >>> LearnedPrototypes(3, 3).crowding() < 1e-12
        tensor(True)
        """
        margin = math.sqrt(2) * self.scale if margin is None else margin
        check_positive("margin", margin)
        i, j = torch.triu_indices(self.num_classes, self.num_classes, 1, device=self.points.device)
        apart = matrix_distances(self.points, self.points, EUCLIDEAN)[i, j]
        return (margin - apart).clamp_min(0).square().sum() / max(1, len(i))
