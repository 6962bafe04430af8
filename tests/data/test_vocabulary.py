import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openradial.data.vocabulary import Vocabulary, words_of
from openradial.errors import DataError, OptionError

TEXTS = ["Oil prices rose.", "Oil fell, prices too; oil's end"]


def decoded(vocabulary, tokens):
    """The texts of tokens; 0 is padding, 1 an unknown word."""
    names = ("", "?", *vocabulary.words)
    return [" ".join(names[token] for token in row if token) for row in tokens.tolist()]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The U.S. dollar", ["the", "u", "s", "dollar"]),
        ("rose 3.5 pct, 1,200 bags; 1986/87", ["rose", "#", "pct", "#", "bags", "#", "#"]),
        ("don't 'quote' it", ["don't", "quote", "it"]),
        ("Öl & Züge_3", ["öl", "züge", "#"]),
        ("  \n...", []),
    ],
)
def test_words_are_cut_as_documented(text, words):
    assert words_of(text) == words


def test_frequent_words_come_first_then_the_alphabet():
    vocabulary = Vocabulary.of(TEXTS, size=5)
    assert vocabulary.words == ("oil", "prices", "end", "fell", "oil's")
    assert len(vocabulary) == 7


def test_unknown_words_are_1_and_padding_is_0():
    vocabulary = Vocabulary(("oil", "fell"))
    tokens = vocabulary.encode(["gold fell", "OIL", "oil oil oil oil"], max_words=3)
    assert tokens.dtype == torch.int64
    assert tokens.tolist() == [[1, 3, 0], [2, 0, 0], [2, 2, 2]]
    assert decoded(vocabulary, tokens) == ["? fell", "oil", "oil oil oil"]


def test_a_text_without_words_is_one_unknown_word():
    assert Vocabulary(("oil",)).encode(["", "..."]).tolist() == [[1], [1]]
    assert Vocabulary(("oil",)).encode([]).shape == (0, 0)


@given(st.lists(st.text(max_size=40), min_size=1, max_size=5))
def test_a_vocabulary_of_all_words_loses_only_what_is_not_a_word(texts):
    vocabulary = Vocabulary.of(texts, size=1000)
    assert decoded(vocabulary, vocabulary.encode(texts)) == [" ".join(words_of(text)) or "?" for text in texts]
    assert Vocabulary(vocabulary.words) == vocabulary


def test_what_cannot_be_is_refused():
    with pytest.raises(DataError, match="the words of a vocabulary must differ, got 'oil' twice"):
        Vocabulary(("oil", "gold", "oil"))
    with pytest.raises(OptionError, match="size must be a whole number of at least 1, got 0"):
        Vocabulary.of(TEXTS, size=0)
    with pytest.raises(OptionError, match="max_words must be a whole number of at least 1, got 0"):
        Vocabulary(("oil",)).encode(TEXTS, max_words=0)
