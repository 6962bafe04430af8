"""The region of an attack: at most epsilon away from each input, and inside the range of valid inputs."""

from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor

from openradial.errors import DTypeError, OptionError, ShapeError, check_choice

Norm = Literal["linf", "l2"]
Limit = float | Tensor  # a number, or a tensor that broadcasts to one input
SLACK = 1e-5  # how far inputs may lie beyond the range, relative to their size: rounding of a normalisation


@dataclass(frozen=True)
class Region:
    r"""All :math:`x + \delta` with :math:`\lVert \delta / \epsilon \rVert \le 1` in the range from low to high.

    The norm is the largest value (``"linf"``) or the euclidean length (``"l2"``) of each input. This
    holds for the stored numbers: rounding never moves a point out of the region.
    """

    x: Tensor  # (b, ...)
    epsilon: Tensor  # broadcasts to x, as low and high do
    low: Tensor
    high: Tensor
    norm: Norm

    @classmethod
    def around(cls, x: Tensor, epsilon: Limit, low: Limit, high: Limit, norm: Norm) -> Self:
        check_choice("norm", norm, ("linf", "l2"))
        _check_inputs(x)
        x = x.detach().clone()
        _check_limits(x, epsilon=epsilon, low=low, high=high)
        if not (torch.as_tensor(epsilon) >= 0).all() or not torch.as_tensor(epsilon).isfinite().all():
            raise OptionError(f"epsilon must be finite and at least 0, got {epsilon!r}")
        least, most = -_at_most(-torch.as_tensor(low, dtype=torch.float64), x), _at_most(high, x)
        slack = SLACK * x.abs().clamp_min(1.0)
        outside = ~((x >= least - slack) & (x <= most + slack))  # true for nan
        if outside.any():
            first = int(outside.flatten(1).any(1).int().argmax())
            raise OptionError(
                f"inputs must lie between low and high, got {float(x[outside][0]):.6g} in row {first}; give low and "
                "high in the units of the inputs, for (x - mean) / std: low=(0 - mean) / std, high=(1 - mean) / std"
            )
        return cls(x, _at_most(epsilon, x), torch.minimum(least, x), torch.maximum(most, x), norm)

    def moved(self, delta: Tensor) -> Tensor:
        """Return ``x + delta``, projected into the region."""
        if self.norm == "linf":
            delta = torch.maximum(torch.minimum(delta, self.epsilon), -self.epsilon)
        else:
            length = _lengths(torch.where(self.epsilon > 0, delta / self.epsilon, 0.0))
            shorter = (1 - 8 * torch.finfo(delta.dtype).eps) / length.clamp_min(1.0)  # the length itself is rounded
            delta = torch.where(self.epsilon > 0, delta * shorter, 0.0)
        return torch.maximum(torch.minimum(_sum_towards(self.x, delta), self.high), self.low)

    def steepest(self, gradient: Tensor) -> Tensor:
        """Return the change of length epsilon along which a linear loss with this gradient grows most."""
        if self.norm == "linf":
            return gradient.sign() * self.epsilon
        # the largest value first becomes 1, because squares of small gradients vanish
        largest = _lengths(gradient, torch.inf)
        direction = gradient / torch.where(largest > 0, largest, 1.0) * self.epsilon
        length = _lengths(direction)
        return direction / torch.where(length > 0, length, 1.0) * self.epsilon

    def random(self, generator: torch.Generator) -> Tensor:
        """Return a change drawn uniformly from the ball; the same for all inputs, so that none depends on its batch."""
        shape = self.x.shape[1:]
        if self.norm == "linf":
            unit = 2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1
        else:
            unit = torch.randn(shape, generator=generator, dtype=torch.float64)
            radius = torch.rand((), generator=generator, dtype=torch.float64) ** (1 / max(1, unit.numel()))
            unit = unit * (radius / torch.linalg.vector_norm(unit))
        return unit.to(self.x) * self.epsilon


def _sum_towards(x: Tensor, delta: Tensor) -> Tensor:
    """Return ``x + delta``, rounded towards ``x``: never farther away than the exact sum."""
    total = x + delta
    part = total - x
    error = (x - (total - part)) + (delta - part)  # the rounding error of the sum (Knuth's two-sum)
    return torch.where(error * delta.sign() < 0, torch.nextafter(total, x), total)


def _at_most(value: Limit | Tensor, x: Tensor) -> Tensor:
    """Return ``value`` in the type of ``x``, rounded down."""
    exact = torch.as_tensor(value, dtype=torch.float64, device=x.device)
    rounded = exact.to(x.dtype)
    return torch.where(rounded.double() > exact, torch.nextafter(rounded, rounded.new_tensor(-torch.inf)), rounded)


def _lengths(delta: Tensor, order: float = 2) -> Tensor:
    """Return the length of the change of each input, ``(b, ...) -> (b, 1, ...)``."""
    lengths: Tensor = torch.linalg.vector_norm(delta.flatten(1), order, dim=1)
    return lengths.view(-1, *[1] * (delta.ndim - 1))


def _check_inputs(x: Tensor) -> None:
    if not isinstance(x, Tensor) or x.dtype not in (torch.float32, torch.float64):
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise DTypeError(f"inputs must be tensors of float32 or float64, got {kind}; for texts, attack the embeddings")
    if x.ndim < 2 or not all(x.shape[1:]):
        raise ShapeError(f"inputs must have the shape (b, ...) with at least one value each, got {tuple(x.shape)}")


def _check_limits(x: Tensor, **limits: Limit) -> None:
    """Raise unless limits have as many axes as one input: ``(channels,)`` would broadcast to columns."""
    example = tuple(x.shape[1:])
    for name, limit in limits.items():
        shape = tuple(torch.as_tensor(limit).shape)
        fits = len(shape) == len(example) and all(a in (1, b) for a, b in zip(shape, example, strict=True))
        if shape and not fits:
            raise ShapeError(
                f"{name} must be a number or have one axis per axis of an input of shape {example}, each equal or 1, "
                f"got {shape}; for one value per channel of an image call .view(-1, 1, 1)"
            )
