"""What every kind of input keeps to: raw things are prepared as training saw them, then transformed for the network."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import islice
from os import PathLike
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from openradial.data.sources import stream
from openradial.errors import DataError, DTypeError, OptionError, ShapeError

AT_ONCE = 2**22  # numbers of network inputs that are held at a time: 16 MB in float32
MOST_ROWS = 4096  # at a time, however small they are
LONG = 1024  # steps or words of an input, where nothing is known of its length
T = TypeVar("T")


@dataclass(frozen=True)
class Inputs(ABC):
    """How raw inputs become tensors. A tensor counts as prepared: inputs as :class:`openradial.data.Examples` has them.

    :meth:`prepare` reads raw things and raises a DataError for a broken one. :meth:`transform` is what the batches of
    training did last, such as normalisation.
    """

    kind: ClassVar[str]
    dtype: ClassVar[torch.dtype] = torch.float32

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
        """Return raw things as one batch of prepared inputs."""

    def transform(self, x: Tensor) -> Tensor:
        """Return prepared inputs as the network takes them."""
        return x

    def record(self) -> dict[str, Any]:
        """Return all settings as JSON can hold them."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.init}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Return the inputs that :meth:`record` describes."""
        values = {each.name: record[each.name] for each in fields(cls) if each.init}
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})

    def expand(self, inputs: Any) -> Any:
        """Read the inputs of a file or folder one by one, where a path is given; return other inputs as they are.

        A string is a path, except where the inputs are texts; these have paths of type ``Path``.
        """
        paths = {"texts": (PathLike,), "tensors": ()}.get(self.kind, (PathLike, str))
        return _contents(str(inputs), self.kind, self.columns) if isinstance(inputs, paths) else inputs

    def chunks(self, raw: Any) -> Iterator[Any]:
        """Yield raw things or prepared ones in parts of bounded memory, in their order."""
        items = raw if isinstance(raw, Tensor) else self.items(raw)
        rows = self.rows_at_once(items)
        yield from torch.split(items, rows) if isinstance(items, Tensor) else in_parts(items, rows)

    def items(self, raw: Any) -> Any:
        """Return one raw thing or several as several."""
        return raw

    def check(self, x: Tensor) -> None:
        """Raise unless ``x`` is a batch of prepared inputs."""
        wanted = ", ".join(["b", *("t" if size is None else str(size) for size in self.shape)])
        fits = x.ndim == 1 + len(self.shape)
        fits = fits and all(size in (None, given) for size, given in zip(self.shape, x.shape[1:], strict=True))
        if not fits:
            raise ShapeError(f"prepared {self.kind} must have the shape ({wanted}), got {tuple(x.shape)}")
        if x.dtype != self.dtype:
            wanted = f"{self.dtype}, got {x.dtype}; see {type(self).__name__}.prepare"
            raise DTypeError(f"prepared {self.kind} must be {wanted}")

    def ready(self, raw: Any) -> Tensor:
        """Return prepared inputs, checked: those given as a tensor, otherwise what :meth:`prepare` makes."""
        x = raw if isinstance(raw, Tensor) else self.prepare(raw)
        self.check(x)
        return x

    def batches(self, inputs: Any) -> Iterator[Tensor]:
        """Yield prepared inputs in parts of bounded memory; rows in errors are counted from the first input."""
        raw, done = self.expand(inputs), 0
        for chunk in self.chunks(raw):
            try:
                x = self.ready(chunk)
            except DataError as error:
                error.row = None if error.row is None else error.row + done
                error.path = error.path or (None if raw is inputs else str(inputs))
                raise
            done += len(x)
            yield x

    def rows_at_once(self, items: Any) -> int:
        """Return how many inputs are predicted at a time."""
        size = items[:1].numel() if isinstance(items, Tensor) else math.prod(size or LONG for size in self.shape)
        return max(1, min(MOST_ROWS, AT_ONCE // max(1, size)))


def in_parts(things: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the things in lists of ``size``, the last one perhaps shorter; nothing is read ahead.

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


def set_statistics(inputs: Any, channels: int) -> None:
    """Make ``mean`` and ``std`` tuples of floats: one for each channel, or one for all."""
    for name, least in (("mean", -math.inf), ("std", 0.0)):
        values = tuple(float(value) for value in np.atleast_1d(getattr(inputs, name)))
        if len(values) not in (1, channels) or not all(least < value < math.inf for value in values):
            raise OptionError(f"{name} must be 1 or {channels} finite numbers (std above 0), got {values}")
        object.__setattr__(inputs, name, values)
