"""The contract of a scorer: rows in, one unknown score per row out; fitted once, saved as tensors."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from openradial.errors import DTypeError, HeadError, ShapeError, TargetError
from openradial.functional.eager import first_order_only

Input = Literal["outputs", "features", "scores"]


class Scorer(nn.Module, ABC):
    """Says how unknown an input is; larger is more unknown. The score of one input never depends on the others.

    What :meth:`fit` learns is kept in the buffers that ``fitted`` names, which are None before. With :meth:`settings`,
    the arguments of the constructor, they are all there is to save.
    """

    takes: ClassVar[Input] = "outputs"
    fitted: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        super().__init__()
        for name in self.fitted:
            self.register_buffer(name, None)

    @abstractmethod
    def unknown_score(self, o: Tensor) -> Tensor:
        """How unknown each input is, ``(b, k) -> (b,)``."""

    def fit(self, o: Tensor, y: Tensor) -> Self:
        """Learn from known data, ``(n, k), (n,)``; heads that have nothing to learn return at once."""
        return self

    def settings(self) -> dict[str, Any]:
        """The arguments that make this head again, as JSON can hold them."""
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """What was fitted, by name."""
        return {name: value for name in self.fitted if (value := getattr(self, name)) is not None}

    def restore(self, tensors: Mapping[str, Tensor]) -> Self:
        """Take what :meth:`tensors` gave."""
        for name in self.fitted:
            setattr(self, name, tensors.get(name))
        return self

    @classmethod
    def from_parts(cls, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """The head that gave these :meth:`settings` and :meth:`tensors`."""
        return cls(**settings).restore(tensors)

    @property
    def is_fitted(self) -> bool:
        """Whether there is nothing left to learn."""
        return all(getattr(self, name) is not None for name in self.fitted)

    def _check_fitted(self) -> None:
        if not self.is_fitted:
            call = "fit(outputs, labels)" if self.takes == "outputs" else f"fit({self.takes})"
            raise HeadError(f"{type(self).__name__} must be fitted first: call {call} with known data")

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.settings().items())


def check_rows(name: str, x: Tensor, width: int | None = None) -> None:
    """Raise unless ``x`` is floating point of shape (b, width)."""
    if not isinstance(x, Tensor):
        raise DTypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}; convert them with torch.as_tensor")
    if x.ndim != 2 or (width is not None and x.shape[1] != width):
        raise ShapeError(f"{name} must have the shape (b, {'d' if width is None else width}), got {tuple(x.shape)}")
    if not x.is_floating_point():
        raise DTypeError(f"{name} must be floating point, got {x.dtype}; convert them with .float()")


def check_known(name: str, x: Tensor) -> None:
    """Raise unless there is something to learn from: at least one row, and all of it finite."""
    if not len(x):
        raise ShapeError(f"{name} must hold at least one example to learn from, got none")
    bad = (~torch.isfinite(x)).flatten(1).any(1) if x.ndim > 1 else ~torch.isfinite(x)
    if bad.any():
        first = int(bad.int().argmax())
        raise ShapeError(
            f"{name} must be finite, got nan or infinity in {int(bad.sum())} rows, the first is row {first}"
        )


def check_labels(y: Tensor, count: int, num_classes: int) -> None:
    """Raise unless ``y`` has one known class per row; what traces or compiles sees no values to check."""
    if not isinstance(y, Tensor):
        raise DTypeError(f"labels must be a torch.Tensor, got {type(y).__name__}; convert them with torch.as_tensor")
    if y.shape != (count,):
        raise ShapeError(f"labels must have the shape ({count},), one per row, got {tuple(y.shape)}")
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise DTypeError(f"labels must be whole numbers, got {y.dtype}; convert them with .long()")
    if not first_order_only(y):
        return
    wrong = (y < 0) | (y >= num_classes)
    if wrong.any():
        row = int(wrong.int().argmax())
        raise TargetError(f"labels must be classes from 0 to {num_classes - 1}, got {int(y[row])} in row {row}")


def at_least_float32(x: Tensor) -> Tensor:
    """``x``, in float32 where it has half precision."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
