import pytest

from openradial.data.sets.japanese_vowels import japanese_vowels
from openradial.errors import OptionError


@pytest.mark.parametrize(
    ("split", "n", "longest", "counts"),
    [("train", 270, 26, [30] * 9), ("test", 370, 29, [31, 35, 88, 44, 29, 24, 40, 50, 29])],
)
def test_the_set_is_the_one_of_the_literature(fetched, split, n, longest, counts):
    found = fetched(japanese_vowels, split)
    assert found.inputs.shape == (n, longest, 12)
    assert found.classes == tuple("123456789")
    assert found.counts().tolist() == counts
    ended = found.inputs.isnan()
    assert (ended.any(2) == ended.all(2)).all()
    lengths = (~ended.any(2)).sum(1)
    assert (lengths.min(), lengths.max()) == (7, longest)
    assert (ended.any(2).int().diff(dim=1) >= 0).all()  # padding at the end only


def test_the_first_sequence_begins_as_in_the_file(fetched):
    found = fetched(japanese_vowels, "train")
    assert found.inputs[0, :2, :2].flatten().tolist() == pytest.approx([1.860936, -0.207383, 1.891651, -0.193249])


def test_a_split_that_does_not_exist_is_refused():
    with pytest.raises(OptionError, match="split must be one of 'train', 'test', got 'val'"):
        japanese_vowels("val")
