"""Texts: words of the training texts' vocabulary, or tokens of a published tokenizer."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from openradial.data.inputs.base import Inputs
from openradial.data.readers.columns import is_missing
from openradial.data.readers.tables import Table
from openradial.data.vocabulary import Vocabulary
from openradial.errors import DataError, check_count, require

Texts = str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] | Table
LETTERS = 64  # of a long text that are read at first, per token that counts
SPARE = 128  # tokens beyond those that count: the last word of a text that is cut may have other tokens


class _Texts(Inputs):
    """What both kinds of texts share: one is a str, or a row of a table with the text in ``column``."""

    kind: ClassVar[str] = "texts"
    dtype: ClassVar[torch.dtype] = torch.int64

    column: str | None

    @property
    def shape(self) -> tuple[int | None, ...]:
        return (None,)

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self.column is None else (self.column,)

    def prepare(self, raw: Texts) -> Tensor:
        return self._tokens([self._text(each) for each in self.items(raw)])

    def items(self, raw: Any) -> Any:
        if isinstance(raw, Table):
            return list(raw.rows())
        return [raw] if isinstance(raw, str | Mapping) else raw

    def check(self, x: Tensor) -> None:
        super().check(x)
        if x.numel() and not (x.min() >= 0 and x.max() < self.num_tokens):
            wanted, actual = f"0..{self.num_tokens - 1}", f"{int(x.min())}..{int(x.max())}"
            message = f"tokens must lie in {wanted}, the words of this vocabulary, got {actual}"
            raise DataError(f"{message}; encode the texts with {type(self).__name__}.prepare")

    def rows_at_once(self, items: Any) -> int:
        return max(1, super().rows_at_once(items) // 32)  # each token becomes a vector

    def _text(self, raw: Any) -> str:
        if isinstance(raw, Mapping) and self.column is not None:
            if self.column not in raw:
                raise DataError(f"the row has no column {self.column!r}, which holds the text")
            raw = "" if is_missing(raw[self.column]) else raw[self.column]
        if not isinstance(raw, str):
            raise DataError(f"a text must be a str, got {type(raw).__name__}; decode it first")
        return raw

    @property
    @abstractmethod
    def num_tokens(self) -> int:
        """The number of different tokens."""

    @abstractmethod
    def _tokens(self, texts: list[str]) -> Tensor: ...


@dataclass(frozen=True)
class TextInputs(_Texts):
    """Texts as tokens of the training texts' vocabulary, the first ``max_words`` words of each.

    >>> TextInputs(("profit", "fell"), max_words=2).prepare(["Profit fell sharply", "profit"])
    tensor([[2, 3],
            [2, 0]])
    """

    words: tuple[str, ...]
    max_words: int | None = None
    column: str | None = None
    _vocabulary: Vocabulary = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.max_words is not None:
            check_count("max_words", self.max_words)
        object.__setattr__(self, "_vocabulary", Vocabulary(tuple(self.words)))

    @property
    def num_tokens(self) -> int:
        return len(self._vocabulary)

    def _tokens(self, texts: list[str]) -> Tensor:
        return self._vocabulary.encode(texts, max_words=self.max_words)


@dataclass(frozen=True)
class TokenInputs(_Texts):
    """Texts as tokens of a tokenizer of the library ``tokenizers``, the first ``max_tokens`` of each, padded.

    Args:
        tokenizer: its file ``tokenizer.json``, as text.
        max_tokens: how many tokens of a text count.
        special: whether the tokenizer adds tokens at the start and at the end.
        column: of a table that holds the texts.
        pad: the token that shorter texts are padded with.
    """

    tokenizer: str = field(repr=False)
    max_tokens: int = 256
    special: bool = True
    column: str | None = None
    pad: int = 0
    _tokenizer: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_count("max_tokens", self.max_tokens)
        tokenizer = require("tokenizers", "texts", "reading texts").Tokenizer.from_str(self.tokenizer)
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.max_tokens)
        object.__setattr__(self, "_tokenizer", tokenizer)

    @property
    def num_tokens(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    @cached_property
    def _without_limit(self) -> Any:
        tokenizer = require("tokenizers", "texts", "reading texts").Tokenizer.from_str(self.tokenizer)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    def _beginning(self, text: str) -> str:
        """Return the part of a long text that has all tokens that count: a tokenizer would read all of it."""
        size = LETTERS * self.max_tokens
        while len(text) > size:
            (row,) = self._without_limit.encode_batch_fast([text[:size]], add_special_tokens=False)
            if len(row.ids) >= self.max_tokens + SPARE:
                return text[:size]
            size *= 4
        return text

    def _tokens(self, texts: list[str]) -> Tensor:
        # stripped as in a table; a lone surrogate is no text that a tokenizer takes
        cut = [self._beginning(text.strip().encode("utf-8", "replace").decode("utf-8")) for text in texts]
        rows = self._tokenizer.encode_batch_fast(cut, add_special_tokens=self.special)
        tokens = [torch.tensor(row.ids or [self.pad]) for row in rows]
        if not tokens:
            return torch.zeros(0, 1, dtype=torch.int64)
        return pad_sequence(tokens, batch_first=True, padding_value=self.pad)
