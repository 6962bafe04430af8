import re
from importlib.resources import files

import pytest

from openradial.errors import DataError, OptionError
from paper.imagenet.ilsvrc_classes import (
    IlsvrcClass,
    ilsvrc_classes,
    parse_known,
    recompute_table,
    table_differences,
    wnids,
    write_table,
)
from paper.imagenet.wordnet import WordNet


@pytest.fixture
def no_wordnet(monkeypatch):
    def fail(root=None):
        raise AssertionError("WordNet must not be needed here")

    monkeypatch.setattr(WordNet, "load", fail)


def test_there_are_1000_classes_in_the_order_of_their_numbers():
    rows = ilsvrc_classes()
    assert [row.index for row in rows] == list(range(1000))
    assert list(wnids()) == sorted(set(wnids()))
    assert (rows[0].lemma, rows[207].lemma, rows[999].lemma) == ("tench", "golden_retriever", "toilet_tissue")


def test_522_classes_are_artifacts():
    assert sum(row.artifact for row in ilsvrc_classes()) == 522
    by_word = {row.lemma: row.artifact for row in ilsvrc_classes()}
    assert by_word["teapot"]
    assert not by_word["goldfish"]
    assert not by_word["daisy"]


def test_the_shipped_table_is_what_wordnet_says(fetched):
    rows = fetched(recompute_table)
    assert table_differences(rows) == []
    assert sum(row.artifact for row in rows) == 522


def test_a_table_that_differs_is_reported():
    rows = [*ilsvrc_classes()]
    rows[1] = IlsvrcClass(1, "n01443537", "goldfish", True)
    assert table_differences(rows) == [
        "n01443537: shipped IlsvrcClass(index=1, wnid='n01443537', lemma='goldfish', artifact=False), "
        "recomputed IlsvrcClass(index=1, wnid='n01443537', lemma='goldfish', artifact=True)"
    ]


def test_a_written_table_is_the_shipped_file(tmp_path):
    write_table(ilsvrc_classes(), tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text() == (files("paper.imagenet") / "ilsvrc2012.csv").read_text()


@pytest.mark.usefixtures("no_wordnet")
def test_all_but_artifacts_are_478_known_and_522_novel_without_wordnet():
    split = parse_known("not:n00021939")
    assert (len(split.known), len(split.novel)) == (478, 522)
    assert {row.wnid for row in ilsvrc_classes() if row.artifact} == set(split.novel)
    assert parse_known("under:n00021939").known == split.novel


@pytest.mark.usefixtures("no_wordnet")
def test_100_random_classes_depend_on_the_seed_alone():
    split = parse_known("random:100", seed=4)
    assert (len(split.known), len(split.novel)) == (100, 900)
    assert parse_known("random:100", list(reversed(wnids())), seed=4) == split
    assert parse_known("random:100", seed=5) != split


@pytest.mark.usefixtures("no_wordnet")
def test_classes_can_be_named_by_number_or_word(tmp_path):
    assert parse_known("names:n01440764, goldfish,great white shark").known == ("n01440764", "n01443537", "n01484850")
    (tmp_path / "list.txt").write_text("goldfish\nn01440764\n")
    assert parse_known(f"file:{tmp_path / 'list.txt'}").known == ("n01443537", "n01440764")


@pytest.mark.usefixtures("no_wordnet")
def test_a_part_of_the_classes_is_split_by_itself():
    some = wnids()[::100]
    split = parse_known("not:n00021939", some)
    assert sorted(split.classes) == sorted(some)
    assert set(split.known) <= set(parse_known("not:n00021939").known)


def test_other_subtrees_need_wordnet(fetched):
    split = fetched(parse_known, "not:n02084071")
    assert (len(split.known), len(split.novel)) == (882, 118)
    # n00007846 is person: three classes of ILSVRC
    assert len(fetched(parse_known, "under:n00007846").known) == 3


def test_classes_beyond_ilsvrc_ask_wordnet_for_artifacts(fetched):
    # n02774152 bag and n02121808 domestic cat have no class of their own in ILSVRC
    split = fetched(parse_known, "not:n00021939", ["n02774152", "n02121808"])
    assert split.known == ("n02121808",)


@pytest.mark.parametrize(
    ("rule", "classes", "error", "message"),
    [
        (
            "some",
            None,
            OptionError,
            "known must be random:N, not:WNID, under:WNID, names:A,B,... or file:PATH, got 'some'",
        ),
        (
            "random:",
            None,
            OptionError,
            "known must be random:N, not:WNID, under:WNID, names:A,B,... or file:PATH, got 'random:'",
        ),
        (
            "random:many",
            None,
            OptionError,
            "random: needs a number of classes, as in random:100, got 'many'",
        ),
        ("random:0", None, OptionError, "known must be a whole number of at least 1, got 0"),
        ("random:1001", None, OptionError, "known must be at most the number of classes, 1000, got 1001"),
        (
            "not:artifact",
            None,
            OptionError,
            "a WordNet subtree is named by n and eight digits, as in not:n00021939, got 'artifact'",
        ),
        (
            "not:n00021939",
            ["cat", "dog"],
            DataError,
            "a WordNet subtree splits classes named by wnids only, got 'cat'; use names:A,B,...",
        ),
        ("names:goldfisch", None, DataError, "'goldfisch' is not one of these 1000 classes; did you mean 'goldfish'?"),
        ("names:crane", None, DataError, "'crane' means 2 classes, n02012849 and n03126707; name one of these"),
        (
            "file:/nowhere/list.txt",
            None,
            DataError,
            "cannot read the list of classes /nowhere/list.txt: No such file or directory",
        ),
        (
            "not:n00021939",
            ["n01440764", "n01443537"],
            DataError,
            "none of the 2 classes lies under n00021939; name a meaning above some of them",
        ),
        (
            "names:goldfish,n01443537",
            None,
            DataError,
            "a split names each class once, got 'n01443537' 2 times",
        ),
    ],
)
def test_a_rule_that_cannot_be_followed_says_why(rule, classes, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        parse_known(rule, classes)
