"""Texts as tokens: a documented way to split words, and the table that numbers them."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from openradial.errors import DataError, check_count

PADDING, UNKNOWN = 0, 1
NUMBER = "#"
WORD = re.compile(r"(?P<number>\d+(?:[.,]\d+)*)|[^\W\d_]+(?:['’][^\W\d_]+)*")


def words_of(text: str) -> list[str]:
    """Return the words of a text: runs of letters in lower case, apostrophes inside kept; each number is ``#``.

    >>> words_of("Shell's profit rose 5.3 pct to 1,200 mln dlrs.")
    ["shell's", 'profit', 'rose', '#', 'pct', 'to', '#', 'mln', 'dlrs']
    """
    return [NUMBER if match["number"] else match[0] for match in WORD.finditer(text.lower())]


@dataclass(frozen=True)
class Vocabulary:
    """Words by number: 0 is padding, 1 an unknown word, ``words[i]`` has the number i + 2.

    ``Vocabulary(words)`` rebuilds a vocabulary from its words, so that new texts can be encoded later.

    >>> vocabulary = Vocabulary.of(["profit rose", "profit fell"], size=2)
    >>> vocabulary.encode(["Profit fell sharply", "profit"])
    tensor([[2, 3, 1],
            [2, 0, 0]])
    """

    words: tuple[str, ...]
    _numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        numbers = {word: i for i, word in enumerate(self.words, start=2)}
        if len(numbers) != len(self.words):
            twice = Counter(self.words).most_common(1)[0][0]
            raise DataError(f"the words of a vocabulary must differ, got {twice!r} twice")
        object.__setattr__(self, "_numbers", numbers)

    @classmethod
    def of(cls, texts: Iterable[str], *, size: int) -> "Vocabulary":
        """Return the ``size`` words that occur most often; of equally frequent ones those first in the alphabet."""
        check_count("size", size)
        counts = Counter(word for text in texts for word in words_of(text))
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(tuple(islice(ranked, size)))

    def __len__(self) -> int:
        """Return how many different tokens there are, with padding and the unknown word: the size of an embedding."""
        return len(self.words) + 2

    def encode(self, texts: Sequence[str], *, max_words: int | None = None) -> Tensor:
        """Return tokens ``(n, t)`` int64: the first ``max_words`` words of each text, padded at the end with 0.

        A text without any word becomes one unknown word, because networks cannot read nothing.
        """
        if max_words is not None:
            check_count("max_words", max_words)
        words = (words_of(text)[:max_words] for text in texts)
        rows = [torch.tensor([self._numbers.get(word, UNKNOWN) for word in row] or [UNKNOWN]) for row in words]
        return pad_sequence(rows, batch_first=True) if rows else torch.zeros(0, 0, dtype=torch.int64)
