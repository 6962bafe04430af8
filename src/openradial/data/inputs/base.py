"""What every kind of input keeps to: raw things are prepared as training saw them, then transformed for the network."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from os import PathLike
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor

from openradial.data.sources import stream
from openradial.errors import DTypeError, ShapeError

AT_ONCE = 2**22  # numbers of network inputs that are held at a time: 16 MB in float32
MOST_ROWS = 4096  # at a time, however small they are
T = TypeVar("T")


class Inputs(ABC):
    """How raw inputs become tensors. A tensor counts as prepared: inputs as :class:`openradial.data.Examples` has them.

    :meth:`prepare` reads raw things and raises a DataError for a broken one. :meth:`transform` is what the batches of
    training did last, such as normalisation.
    """

    kind: ClassVar[str]
    dtype: ClassVar[torch.dtype]

    @property
    @abstractmethod
    def shape(self) -> tuple[int | None, ...]:
        """The shape of one prepared input; None where it may be any length."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that each row of a table must have; none for other kinds of inputs."""
        return ()

    @abstractmethod
    def prepare(self, raw: Any) -> Tensor:
        """Raw things as one batch of prepared inputs."""

    def transform(self, x: Tensor) -> Tensor:
        """Prepared inputs as the network takes them."""
        return x

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """All there is, as JSON can hold it."""

    @classmethod
    @abstractmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """What :meth:`record` gave."""

    def expand(self, inputs: Any) -> Any:
        """Read the inputs of a file or folder one by one, where a path is given; return other inputs as they are.

        A string is a path, except where the inputs are texts; these have paths of type ``Path``.
        """
        paths = {"texts": (PathLike,), "tensors": ()}.get(self.kind, (PathLike, str))
        return _contents(str(inputs), self.kind, self.columns) if isinstance(inputs, paths) else inputs

    @abstractmethod
    def chunks(self, raw: Any) -> Iterator[Any]:
        """Raw things or prepared ones in parts of bounded memory, in their order."""

    def check(self, x: Tensor) -> None:
        """Raise unless ``x`` is a batch of prepared inputs."""
        wanted = ", ".join(["b", *("t" if size is None else str(size) for size in self.shape)])
        fits = x.ndim == 1 + len(self.shape)
        fits = fits and all(own in (None, came) for own, came in zip(self.shape, x.shape[1:], strict=True))
        if not fits:
            raise ShapeError(f"prepared {self.kind} must have the shape ({wanted}), got {tuple(x.shape)}")
        if x.dtype != self.dtype:
            raise DTypeError(
                f"prepared {self.kind} must be {self.dtype}, got {x.dtype}; see {type(self).__name__}.prepare"
            )

    def ready(self, raw: Any) -> Tensor:
        """Prepared inputs, checked: those that are given as a tensor, otherwise what :meth:`prepare` makes."""
        x = raw if isinstance(raw, Tensor) else self.prepare(raw)
        self.check(x)
        return x

    def rows_at_once(self, size: int) -> int:
        """How many inputs of ``size`` numbers are predicted at a time."""
        return max(1, min(MOST_ROWS, AT_ONCE // max(1, size)))


def in_parts(things: Iterable[T], size: int) -> Iterator[list[T]]:
    """The things in lists of ``size``, the last one perhaps shorter; nothing is read ahead.

    >>> list(in_parts("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    rest = iter(things)
    while part := list(islice(rest, size)):
        yield part


def _contents(path: str, kind: str, columns: tuple[str, ...]) -> Iterator[Any]:
    for each in stream([path], kind, columns=columns):
        if each.error is not None:
            raise each.error
        yield each.raw
