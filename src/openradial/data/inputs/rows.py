"""Points, sequences and texts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from openradial.data.inputs.base import Inputs, in_parts
from openradial.data.transforms import Standardise
from openradial.data.vocabulary import Vocabulary
from openradial.errors import DataError, OptionError, check_count

LONG = 1024  # steps or words of an input, where nothing is known of its length


@dataclass(frozen=True)
class PointInputs(Inputs):
    """Rows of numbers ``(b, width)`` that the network takes as they are.

    >>> PointInputs(2).prepare([[1, 2]])
    tensor([[1., 2.]])
    """

    kind: ClassVar[str] = "points"
    dtype: ClassVar[torch.dtype] = torch.float32

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

    def chunks(self, raw: Any) -> Iterator[Any]:
        rows = self.rows_at_once(self.width)
        if isinstance(raw, Iterator):
            yield from in_parts(raw, rows)
        else:
            yield from torch.split(raw if isinstance(raw, Tensor) else self.prepare(raw), rows)

    def record(self) -> dict[str, Any]:
        return {"width": self.width}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        return cls(record["width"])


@dataclass(frozen=True)
class SequenceInputs(Inputs):
    """Sequences ``(t, channels)``, or ``(t,)`` of one channel; shorter ones are padded at the end with NaN.

    Each channel becomes ``(x - mean) / std``.

    >>> SequenceInputs(1).prepare([[1, 2], [3]]).squeeze(2)
    tensor([[1., 2.],
            [3., nan]])
    """

    kind: ClassVar[str] = "sequences"
    dtype: ClassVar[torch.dtype] = torch.float32

    channels: int
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        check_count("channels", self.channels)
        for name in ("mean", "std"):
            values = tuple(float(value) for value in getattr(self, name))
            least = 0.0 if name == "std" else -np.inf
            if len(values) not in (1, self.channels) or not all(least < value < np.inf for value in values):
                raise OptionError(f"{name} must be 1 or {self.channels} finite numbers (std above 0), got {values}")
            object.__setattr__(self, name, values)

    @property
    def shape(self) -> tuple[int | None, ...]:
        return None, self.channels

    def prepare(self, raw: Sequence[ArrayLike]) -> Tensor:
        rows = [torch.from_numpy(self._sequence(row)) for row in raw]
        if not rows:
            return torch.empty(0, 1, self.channels)
        return pad_sequence(rows, batch_first=True, padding_value=np.nan)

    def transform(self, x: Tensor) -> Tensor:
        return Standardise(list(self.mean), list(self.std))(x)

    def chunks(self, raw: Any) -> Iterator[Any]:
        length = raw.shape[1] if isinstance(raw, Tensor) and raw.ndim > 1 else LONG
        rows = self.rows_at_once(length * self.channels)
        yield from torch.split(raw, rows) if isinstance(raw, Tensor) else in_parts(raw, rows)

    def record(self) -> dict[str, Any]:
        return {"channels": self.channels, "mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        return cls(record["channels"], tuple(record["mean"]), tuple(record["std"]))

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
    dtype: ClassVar[torch.dtype] = torch.float32

    @property
    def shape(self) -> tuple[int | None, ...]:
        return ()

    def prepare(self, raw: Any) -> Tensor:
        raise OptionError(f"a classifier without preprocessing predicts tensors, got {type(raw).__name__}")

    def check(self, x: Tensor) -> None:
        pass  # the network knows what it takes

    def chunks(self, raw: Any) -> Iterator[Any]:
        if not isinstance(raw, Tensor):
            self.prepare(raw)
        yield from torch.split(raw, self.rows_at_once(raw[:1].numel()))

    def record(self) -> dict[str, Any]:
        raise OptionError("a model is saved with its preprocessing, and this one has none; set preprocessing=...")

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        return cls()


@dataclass(frozen=True)
class TextInputs(Inputs):
    """Texts as tokens of the training texts' vocabulary, the first ``max_words`` words of each.

    >>> TextInputs(("profit", "fell"), max_words=2).prepare(["Profit fell sharply", "profit"])
    tensor([[2, 3],
            [2, 0]])
    """

    kind: ClassVar[str] = "texts"
    dtype: ClassVar[torch.dtype] = torch.int64

    words: tuple[str, ...]
    max_words: int | None = None
    _vocabulary: Vocabulary = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.max_words is not None:
            check_count("max_words", self.max_words)
        object.__setattr__(self, "_vocabulary", Vocabulary(tuple(self.words)))

    @property
    def shape(self) -> tuple[int | None, ...]:
        return (None,)

    def prepare(self, raw: str | Sequence[str]) -> Tensor:
        texts = [raw] if isinstance(raw, str) else list(raw)
        wrong = next((text for text in texts if not isinstance(text, str)), None)
        if wrong is not None:
            raise DataError(f"a text must be a str, got {type(wrong).__name__}; decode it first")
        return self._vocabulary.encode(texts, max_words=self.max_words)

    def check(self, x: Tensor) -> None:
        super().check(x)
        if x.numel() and not (x.min() >= 0 and x.max() < len(self._vocabulary)):
            raise DataError(
                f"tokens must lie in 0..{len(self._vocabulary) - 1}, the words of this vocabulary, got "
                f"{int(x.min())}..{int(x.max())}; encode the texts with TextInputs.prepare"
            )

    def chunks(self, raw: Any) -> Iterator[Any]:
        rows = self.rows_at_once(32 * (self.max_words or LONG))  # each token becomes a vector
        if isinstance(raw, Tensor):
            yield from torch.split(raw, rows)
        else:
            yield from in_parts([raw] if isinstance(raw, str) else raw, rows)

    def record(self) -> dict[str, Any]:
        return {"max_words": self.max_words, "words": list(self.words)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        return cls(tuple(record["words"]), record["max_words"])


def _floats(what: str, raw: ArrayLike) -> Any:
    try:
        return np.ascontiguousarray(raw, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} must hold numbers in rows of one length, and does not ({error})") from error
