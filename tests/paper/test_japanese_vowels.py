import pytest

from openradial.errors import DataError
from paper.japanese_vowels import japanese_vowels, read_ts


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


HEADER = "@problemName Small\n@classLabel true a b\n@data\n"


def test_shorter_sequences_are_padded(tmp_path):
    (tmp_path / "small.ts").write_text(f"{HEADER}1,2,3:4,5,6:b\n7:8:a\n")
    found = read_ts(tmp_path / "small.ts")
    assert found.inputs[0].tolist() == [[1, 4], [2, 5], [3, 6]]
    assert found.inputs[1, 0].tolist() == [7, 8]
    assert found.inputs[1, 1:].isnan().all()
    assert (found.labels.tolist(), found.classes) == ([1, 0], ("a", "b"))


@pytest.mark.parametrize(
    "text", ["", "1,2:a\n", f"{HEADER}1,x:a\n", f"{HEADER}1,2:c\n", f"{HEADER}1,2\n", f"{HEADER}1:2,3:a\n"]
)
def test_a_damaged_file_is_named(tmp_path, text):
    (tmp_path / "small.ts").write_text(text)
    with pytest.raises(DataError, match=r"small\.ts: expected a \.ts file .*; remove it to get it again"):
        read_ts(tmp_path / "small.ts")
