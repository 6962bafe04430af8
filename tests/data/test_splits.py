import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openradial.data.examples import Examples
from openradial.data.splits import (
    Split,
    count_duplicates,
    divide,
    identical_groups,
    named_split,
    random_split,
    read_names,
    train_test_split,
)
from openradial.errors import DataError, OptionError
from paper.imagenet.ilsvrc_classes import wnids

DIGITS = tuple("0123456789")
names = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1).filter(lambda s: s == s.strip())
class_lists = st.lists(names, min_size=1, max_size=20, unique=True)


def examples(labels, classes=DIGITS):
    """Examples whose only input is their place, so that none can be lost or swapped unseen."""
    return Examples(torch.arange(len(labels)).unsqueeze(1).float(), torch.tensor(labels, dtype=torch.int64), classes)


@given(classes=class_lists, seed=st.integers(0, 2**64), data=st.data())
def test_a_random_split_is_disjoint_covering_and_of_the_asked_size(classes, seed, data):
    known = data.draw(st.integers(1, len(classes)))
    split = random_split(classes, known, seed)
    assert len(split.known) == known
    assert sorted(split.classes) == sorted(classes)
    assert not set(split.known) & set(split.novel)


@given(classes=class_lists, seed=st.integers(0, 99), data=st.data())
def test_a_random_split_does_not_depend_on_the_order_of_the_classes(classes, seed, data):
    known = data.draw(st.integers(1, len(classes)))
    shuffled = data.draw(st.permutations(classes))
    assert random_split(shuffled, known, seed) == random_split(classes, known, seed)


def test_random_splits_never_change():
    assert random_split(DIGITS, 6, seed=0).known == tuple("012368")
    assert random_split(DIGITS, 6, seed=1).known == tuple("024579")
    split = random_split(wnids(), 100, seed=0)
    assert split.known[:3] == ("n01484850", "n01491361", "n01531178")
    assert split.known[-1] == "n13052670"


def test_every_class_is_known_in_its_share_of_random_splits():
    counts = dict.fromkeys(DIGITS, 0)
    for seed in range(2000):
        for name in random_split(DIGITS, 6, seed).known:
            counts[name] += 1
    # 2000 draws of probability 0.6: five standard deviations are 110
    assert all(abs(count - 1200) < 110 for count in counts.values())


def test_a_named_split_keeps_the_order_of_the_names():
    assert named_split(DIGITS, known=["7", "3"]) == Split(("7", "3"), tuple("01245689"))
    assert named_split(DIGITS, novel=["7", "3"]) == Split(tuple("01245689"), ("7", "3"))


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: random_split(DIGITS, 0), OptionError, "known must be a whole number of at least 1, got 0"),
        (
            lambda: random_split(DIGITS, 11),
            OptionError,
            "known must be at most the number of classes, 10, got 11",
        ),
        (lambda: random_split(DIGITS, 2, -1), OptionError, "seed must be a whole number of at least 0, got -1"),
        (
            lambda: random_split(["a", "a", "b"], 2),
            DataError,
            "a split names each class once, got 'a' 2 times",
        ),
        (
            lambda: named_split(["cat", "dog"], known=["catt"]),
            OptionError,
            "known must name classes of the data, and there is no class 'catt'; did you mean 'cat'?",
        ),
        (
            lambda: named_split(["cat", "dog"], novel=["x"]),
            OptionError,
            "novel must name classes of the data, and there is no class 'x'; the classes are cat, dog",
        ),
        (
            lambda: named_split(DIGITS),
            OptionError,
            "name either the known classes or the novel ones, and the rest is the other side",
        ),
        (
            lambda: named_split(DIGITS, known=["1"], novel=["2"]),
            OptionError,
            "name either the known classes or the novel ones, and the rest is the other side",
        ),
        (
            lambda: named_split(DIGITS, novel=DIGITS),
            DataError,
            "a split needs at least one known class, got none and 10 novel ones",
        ),
        (lambda: Split(("a", "b"), ("b",)), DataError, "a class is either known or novel, got 'b' in both"),
        (lambda: Split(("a", "b", "a"), ()), DataError, "a split names each class once, got 'a' 2 times"),
        (
            lambda: Split(("a\nb",), ()),
            DataError,
            "a class name must be one line of text without blanks around it, got 'a\\nb'; rename the class",
        ),
        (
            lambda: Split((" a",), ()),
            DataError,
            "a class name must be one line of text without blanks around it, got ' a'; rename the class",
        ),
        (lambda: train_test_split(examples([0, 1]), 1.0), OptionError, "test must be a share between 0 and 1, got 1.0"),
    ],
)
def test_a_split_that_cannot_be_says_why(build, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        build()


def test_names_are_read_one_per_line(tmp_path):
    (tmp_path / "known.txt").write_bytes(b"\xef\xbb\xbfcat\r\n\r\n owl \r\n")
    assert read_names(tmp_path / "known.txt") == ("cat", "owl")
    (tmp_path / "known.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(DataError, match=r"known.txt: expected one class per line in UTF-8, but .*; save it as UTF-8$"):
        read_names(tmp_path / "known.txt")


def test_a_missing_list_is_named(tmp_path):
    message = f"{tmp_path}/x.txt: the file cannot be read (No such file or directory)"
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        read_names(tmp_path / "x.txt")


@given(labels=st.lists(st.integers(-1, 9), max_size=50), seed=st.integers(0, 99), known=st.integers(1, 10))
def test_dividing_loses_and_renames_nothing(labels, seed, known):
    everything, split = examples(labels), random_split(DIGITS, known, seed)
    parts = divide(everything, split)
    places = torch.cat([part.inputs for part in parts]).flatten()
    assert sorted(places.tolist()) == list(range(len(labels)))
    for part, classes in zip(parts, (split.known, split.novel), strict=True):
        assert part.classes == classes
        for place, label in zip(part.inputs.flatten().long().tolist(), part.labels.tolist(), strict=True):
            name = classes[label] if label >= 0 else None
            assert name == (DIGITS[labels[place]] if labels[place] >= 0 else None)
    assert (parts[0].labels >= 0).all()


def test_known_labels_follow_the_order_of_the_known_names():
    known, novel = divide(examples([3, 7, 5, 7]), named_split(DIGITS, known=["7", "3"]))
    assert known.labels.tolist() == [1, 0, 0]
    assert novel.labels.tolist() == [novel.classes.index("5")]


def test_a_split_of_other_classes_is_refused():
    split = named_split(["cat", "dog", "owl"], known=["cat"])
    message = (
        "a split must name every class of the examples: cats neither known nor novel; "
        "make the split from these classes; did you mean 'cat'?"
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        divide(examples([0], ("cats", "dog", "owl")), split)
    message = "a split must name only classes of the examples: they have no owl; make the split from these classes"
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        divide(examples([0], ("cat", "dog")), split)


@given(
    labels=st.lists(st.integers(-1, 4), max_size=60),
    test=st.floats(0.01, 0.99),
    seed=st.integers(0, 99),
)
def test_each_class_keeps_its_share_for_testing(labels, test, seed):
    train, held = train_test_split(examples(labels), test, seed)
    places = [*train.inputs.flatten().tolist(), *held.inputs.flatten().tolist()]
    assert sorted(places) == list(range(len(labels)))
    for part in (train, held):
        assert part.inputs.flatten().tolist() == sorted(part.inputs.flatten().tolist())
    for label in set(labels):
        count, kept = labels.count(label), int((held.labels == label).sum())
        assert abs(kept - count * test) <= 0.5 or kept in (1, count - 1)
        assert 0 < kept < count or (count == 1 and kept == 0)


def test_the_seed_decides_what_is_kept_for_testing():
    everything = examples([0, 1] * 50)
    kept = [train_test_split(everything, 0.2, seed)[1].inputs.flatten().tolist() for seed in (0, 0, 1)]
    assert kept[0] == kept[1] != kept[2]
    assert kept[0] == [0, 2, 5, 9, 17, 27, 37, 48, 50, 54, 59, 62, 64, 65, 69, 74, 75, 77, 94, 96]


@pytest.mark.parametrize("seed", range(4))
def test_a_test_part_does_not_follow_the_values_of_a_set_drawn_with_the_same_seed(seed):
    from openradial.data.sets.spiral import spiral

    kept, held = train_test_split(spiral(n=2000, seed=seed), 0.1, seed=seed)
    radius = [part.inputs.norm(dim=1).mean().item() for part in (kept, held)]
    assert radius[0] == pytest.approx(radius[1], rel=0.15)


def halves(labels, groups, test=0.2, seed=0):
    """Split and return the groups of both parts, which have none in common."""
    data = Examples(torch.arange(len(labels)), torch.as_tensor(labels), tuple(map(str, range(max(labels) + 1))))
    train, held_out = train_test_split(data, test, seed, groups=groups)
    assert sorted(torch.cat([train.inputs, held_out.inputs]).tolist()) == list(range(len(labels)))
    groups = np.asarray(groups)
    first, second = (set(groups[part.inputs.numpy()].tolist()) for part in (train, held_out))
    assert not first & second
    return train, held_out


@pytest.mark.parametrize("seed", range(3))
def test_groups_of_one_change_nothing(seed):
    labels = torch.randint(0, 4, (200,), generator=torch.Generator().manual_seed(seed))
    data = Examples(torch.arange(200), labels, tuple("abcd"))
    for groups in (np.arange(200), torch.arange(200).flip(0) * 7):
        for left, right in zip(
            train_test_split(data, 0.3, seed), train_test_split(data, 0.3, seed, groups=groups), strict=True
        ):
            assert torch.equal(left.inputs, right.inputs)


@pytest.mark.parametrize("copies", [2, 3, 5])
def test_copies_stay_in_one_part_and_classes_keep_their_shares(copies):
    labels = np.repeat(np.arange(300) % 3, copies)
    groups = np.repeat(np.arange(300), copies)
    mixed = np.random.default_rng(0).permutation(len(labels))
    train, held_out = halves(labels[mixed], groups[mixed])
    for part, share in ((train, 0.8), (held_out, 0.2)):
        assert abs(part.counts() - share * 100 * copies).max() <= copies / 2


@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=60),
    test=st.floats(0.05, 0.95),
    seed=st.integers(0, 3),
)
def test_groups_of_any_kind_stay_in_one_part(rows, test, seed):
    labels, groups = [label for label, _ in rows], [group for _, group in rows]
    train, _ = halves(labels, groups, test, seed)
    assert set(labels) == set(train.labels.tolist())  # every class can be trained on


def test_a_class_of_two_large_groups_is_in_both_parts():
    train, held_out = halves([0] * 20 + [1] * 20, [0] * 10 + [1] * 10 + list(range(2, 22)), test=0.1)
    assert (train.counts().tolist(), held_out.counts().tolist()) == ([10, 18], [10, 2])


def test_a_class_of_one_group_is_trained_on():
    train, held_out = halves([0] * 6 + [1] * 6, [0] * 6 + list(range(1, 7)), test=0.5)
    assert (train.counts().tolist(), held_out.counts().tolist()) == ([6, 3], [0, 3])


@pytest.mark.parametrize("groups", [np.zeros(3), np.zeros(2, np.int64), np.zeros((2, 2), np.int64)])
def test_groups_must_be_one_integer_per_example(groups):
    with pytest.raises(OptionError, match="groups must be 4 integers, one per example, got"):
        train_test_split(examples([0, 1, 0, 1]), 0.5, groups=groups)


def test_many_rows_are_grouped_and_split(tmp_path):
    inputs = torch.randint(0, 50, (100_000, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    data = Examples(inputs, torch.arange(100_000) % 10, tuple("0123456789"))
    groups = identical_groups(data)
    train, held_out = train_test_split(data, 0.15, groups=groups)
    assert count_duplicates(groups) == 100_000 - len(torch.unique(inputs, dim=0))
    rows = [set(map(bytes, part.inputs.numpy())) for part in (train, held_out)]
    assert not rows[0] & rows[1]
    assert abs(len(held_out) - 15_000) < 20
