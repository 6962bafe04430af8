"""Points, sequences and tensors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from openradial.data.inputs.base import Inputs, set_statistics
from openradial.errors import DataError, OptionError, check_count


@dataclass(frozen=True)
class PointInputs(Inputs):
    """Rows of numbers ``(b, width)`` that the network takes as they are.

    >>> PointInputs(2).prepare([[1, 2]])
    tensor([[1., 2.]])
    """

    kind: ClassVar[str] = "points"

    width: int

    def __post_init__(self) -> None:
        check_count("width", self.width)

    @property
    def shape(self) -> tuple[int | None, ...]:
        return (self.width,)

    def prepare(self, raw: ArrayLike) -> Tensor:
        points = _floats("points", raw)
        if points.ndim != 2 or points.shape[1] != self.width:
            raise DataError(f"points must have the shape (b, {self.width}), got {points.shape}")
        return torch.from_numpy(points)

    def items(self, raw: Any) -> Any:
        return raw if isinstance(raw, Iterator) else self.prepare(raw)


@dataclass(frozen=True)
class SequenceInputs(Inputs):
    """Sequences ``(t, channels)``, or ``(t,)`` of one channel; shorter ones are padded at the end with NaN.

    Each channel becomes ``(x - mean) / std``.

    >>> SequenceInputs(1).prepare([[1, 2], [3]]).squeeze(2)
    tensor([[1., 2.],
            [3., nan]])
    """

    kind: ClassVar[str] = "sequences"

    channels: int
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        check_count("channels", self.channels)
        set_statistics(self, self.channels)

    @property
    def shape(self) -> tuple[int | None, ...]:
        return None, self.channels

    def prepare(self, raw: Sequence[ArrayLike]) -> Tensor:
        rows = [torch.from_numpy(self._sequence(row)) for row in raw]
        if not rows:
            return torch.empty(0, 1, self.channels)
        return pad_sequence(rows, batch_first=True, padding_value=np.nan)

    def transform(self, x: Tensor) -> Tensor:
        return (x - x.new_tensor(self.mean)) / x.new_tensor(self.std)

    def _sequence(self, row: ArrayLike) -> Any:
        values = _floats("a sequence", row)
        values = values[:, None] if values.ndim == 1 and self.channels == 1 else values
        if values.ndim != 2 or values.shape[1] != self.channels or not len(values):
            raise DataError(f"a sequence must have the shape (t, {self.channels}) with t above 0, got {values.shape}")
        return values


@dataclass(frozen=True)
class TensorInputs(Inputs):
    """Tensors as the network takes them: for classifiers without preprocessing, which cannot be saved."""

    kind: ClassVar[str] = "tensors"

    @property
    def shape(self) -> tuple[int | None, ...]:
        return ()

    def prepare(self, raw: Any) -> Tensor:
        raise OptionError(f"a model without preprocessing predicts tensors, got {type(raw).__name__}")

    def check(self, x: Tensor) -> None:
        pass  # the network knows what it takes

    def items(self, raw: Any) -> Any:
        return raw if isinstance(raw, Iterator) else self.prepare(raw)

    def record(self) -> dict[str, Any]:
        raise OptionError("a model is saved with its preprocessing, and this one has none; set preprocessing=...")


def _floats(what: str, raw: ArrayLike) -> Any:
    try:
        values = np.asarray(raw)
        if values.dtype.kind == "U" and "_" in "".join(values.flat):  # Python reads 1_0 as ten
            raise ValueError("numbers have no underscores")
        return np.ascontiguousarray(values, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} must hold numbers in rows of one length, and does not ({error})") from error
