"""Inputs with their labels, in memory."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from openradial.errors import DataError


@dataclass(frozen=True, eq=False)
class Examples:
    """Labelled examples as tensors.

    ``inputs`` by kind: images ``(n, c, h, w)`` uint8; tables ``(n, d)`` float32; sequences ``(n, t, c)`` float32,
    shorter ones padded at the end with NaN; texts ``(n, t)`` int64 tokens, padded at the end with 0.
    ``labels`` ``(n,)`` int64 are indices into ``classes``; -1 is unknown.

    >>> letters = Examples(torch.zeros(3, 2), torch.tensor([0, 1, 1]), ("a", "b"))
    >>> len(letters), letters.counts().tolist()
    (3, [1, 2])
    """

    inputs: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        n, k = len(self.inputs), len(self.classes)
        if self.labels.shape != (n,) or self.labels.dtype != torch.int64:
            actual = f"{self.labels.dtype} of shape {tuple(self.labels.shape)}"
            raise DataError(f"labels must be int64 of shape ({n},), one per input, got {actual}")
        if len(set(self.classes)) != k:
            twice = next(name for name in self.classes if self.classes.count(name) > 1)
            raise DataError(f"class names must differ, got {twice!r} twice")
        if n and not (self.labels.min() >= -1 and self.labels.max() < k):
            actual = f"{self.labels.min()}..{self.labels.max()}"
            raise DataError(f"labels must lie in 0..{k - 1} for {k} classes, or be -1 for unknown, got {actual}")

    def __len__(self) -> int:
        return len(self.inputs)

    def select(self, which: Tensor) -> Self:
        """Return the examples at the given indices, or where a mask is true."""
        return type(self)(self.inputs[which], self.labels[which], self.classes)

    def counts(self) -> Tensor:
        """Return how many examples each class has, ``(k,)``."""
        return torch.bincount(self.labels[self.labels >= 0], minlength=len(self.classes))
