import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from naive_ridge import assert_equal, made_data

from openradial.errors import DataError, OptionError
from openradial.heads.sums import ClassSums, RowHashes, class_names
from openradial.scorers.statistics import ClassStatistics

NAMES = ("ant", "bee", "cat", "dog", "eel")


def sums_of(z, y, classes, weights=None):
    """Sums over examples whose labels are indices into ``classes``."""
    k = len(classes)
    weights = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    return ClassSums(tuple(classes), ClassStatistics.of(z, y, k, weights), RowHashes.of(z, y, k), weights)


def assert_same_sums(actual, expected):
    assert actual.classes == expected.classes
    assert torch.equal(actual.statistics.counts, expected.statistics.counts)
    for name in ("weights", "means", "scatter", "mean"):
        assert_equal(getattr(actual.statistics, name), getattr(expected.statistics, name))
    for mine, theirs in zip(actual.hashes.by_class, expected.hashes.by_class, strict=True):
        assert torch.equal(mine.sort().values, theirs.sort().values)
    assert (actual.class_weight is None) == (expected.class_weight is None)
    assert actual.class_weight is None or torch.equal(actual.class_weight, expected.class_weight)


@given(st.data())
def test_sums_join_by_the_names_of_the_classes(data):
    z, y = made_data(n=30, k=5, seed=data.draw(st.integers(0, 20)))
    first = torch.tensor(data.draw(st.lists(st.booleans(), min_size=30, max_size=30)))
    if first.all() or not first.any():
        first[0] = ~first[0]
    weights = data.draw(st.sampled_from([None, dict(zip(NAMES, (1.0, 2.0, 0.5, 3.0, 0.1), strict=True))]))
    parts = []
    for rows in (first, ~first):
        names = data.draw(st.permutations(sorted({NAMES[c] for c in y[rows]})))
        labels = torch.tensor([names.index(NAMES[c]) for c in y[rows]])
        parts.append(sums_of(z[rows], labels, names, weights and [weights[name] for name in names]))
    joined = parts[0] + parts[1]
    assert joined.classes[: len(parts[0].classes)] == parts[0].classes
    labels = torch.tensor([joined.index(NAMES[c]) for c in y])
    expected = sums_of(z, labels, joined.classes, weights and [weights[name] for name in joined.classes])
    assert_same_sums(joined, expected)
    assert_same_sums((parts[1] + parts[0]).aligned(joined.classes), expected)
    again = sums_of(z[~first], labels[~first], joined.classes, weights and [weights[n] for n in joined.classes])
    left = joined - again
    assert_same_sums(left.aligned(parts[0].classes), parts[0])


def test_sums_over_nothing_change_nothing():
    z, y = made_data()
    sums = sums_of(z, y, NAMES[:3])
    assert_same_sums(sums + ClassSums.empty(NAMES[:3], 5), sums)
    assert_same_sums(ClassSums.empty(NAMES[:3], 5) + sums, sums)
    assert_same_sums(sums - ClassSums.empty(NAMES[:3], 5), sums)
    assert_same_sums(sums - sums, ClassSums.empty(NAMES[:3], 5))


def test_the_same_sums_in_another_order_share_nothing():
    z, y = made_data()
    sums = sums_of(z, y, NAMES[:3], [1, 2, 3])
    turned = sums.aligned(("cat", "new", "ant", "bee"))
    ant, bee, cat = sums.statistics.counts.tolist()
    assert turned.statistics.counts.tolist() == [cat, 0, ant, bee]
    assert turned.class_weight.tolist() == [3, 1, 1, 2]
    assert_same_sums(turned.aligned(NAMES[:3]), sums)
    turned.statistics.means.zero_()
    assert sums.statistics.means.any()


def test_weights_of_one_side_are_kept_where_the_classes_differ():
    z, y = made_data(k=2)
    plain, weighted = sums_of(z, y, ["ant", "bee"]), sums_of(z + 1, y, ["cat", "dog"], [2, 3])
    assert (plain + weighted).class_weight.tolist() == [1, 1, 2, 3]
    assert (weighted + plain).class_weight.tolist() == [2, 3, 1, 1]
    with pytest.raises(OptionError, match="must give their common classes the same class weights"):
        plain + sums_of(z + 1, y, ["bee", "dog"], [2, 3])
    assert (plain + sums_of(z + 1, y, ["bee", "dog"], [1, 3])).class_weight.tolist() == [1, 1, 3]


def test_only_examples_that_were_added_are_taken_out():
    z, y = made_data()
    sums = sums_of(z, y, NAMES[:3])
    with pytest.raises(OptionError, match="2 of 2 were never added with this label"):
        sums - sums_of(z[:2] + 1, y[:2], NAMES[:3])


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.5]])
def test_sums_are_restored_from_their_tensors(weights):
    z, y = made_data()
    sums = sums_of(z, y, NAMES[:3], weights)
    again = ClassSums.empty(NAMES[:3], 5).restored(sums.tensors())
    assert_same_sums(again, sums)
    assert torch.equal(again.statistics.scatter, sums.statistics.scatter)
    assert sums.tensors()["scatter"].shape == (15,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counts": torch.zeros(2)}, r"must have a tensor 'counts' of the shape \(3,\), got \(2,\)"),
        ({"scatter": torch.zeros(25)}, r"must have a tensor 'scatter' of the shape \(15,\), got \(25,\)"),
        ({"hashes": torch.zeros(59)}, r"must have a tensor 'hashes' of the shape \(60,\), got \(59,\)"),
        ({"class_weight": torch.ones(4)}, r"must have a tensor 'class_weight' of the shape \(3,\), got \(4,\)"),
        ({"counts": torch.tensor([61, -1, 0])}, "'hashes' of the shape"),
        ({"counts": torch.tensor([60, -1, 0])}, "must have no negative counts"),
        ({"means": torch.full((3, 5), torch.nan)}, "in 'means' must be finite"),
    ],
)
def test_damaged_tensors_are_named(change, message):
    z, y = made_data()
    tensors = sums_of(z, y, NAMES[:3]).tensors() | change
    with pytest.raises(DataError, match=message):
        ClassSums.empty(NAMES[:3], 5).restored(tensors)


def test_classes_are_found_and_renamed_by_name():
    sums = ClassSums.empty(NAMES[:3], 5)
    assert sums.index("cat") == 2
    assert sums.renamed("bee", "wasp").classes == ("ant", "wasp", "cat")
    assert sums.renamed("bee", "bee").classes == sums.classes
    with pytest.raises(OptionError, match=r"^there is no class 'cot'; did you mean 'cat'\?$"):
        sums.index("cot")
    with pytest.raises(OptionError, match="class names must differ, got 'cat' twice"):
        sums.renamed("bee", "cat")


def test_classes_are_given_by_name_or_number():
    assert class_names(3) == ("0", "1", "2")
    assert class_names(["b", "a"]) == class_names(iter(["b", "a"])) == ("b", "a")


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ("cat", "classes must be a number or a list of names, got 'cat'"),
        (True, "classes must be a number or a list of names, got True"),
        (2.5, "classes must be a number or a list of names, got 2.5"),
        (None, "classes must be a number or a list of names, got None"),
        (0, "there must be at least one class, got 0"),
        (-1, "there must be at least one class, got -1"),
        ([], r"there must be at least one class, got \[\]"),
        (["a", 1], "class names must be strings, got 1; convert them with str"),
        ([None], "class names must be strings, got None"),
        (["a", "b", "a"], "class names must differ, got 'a' twice"),
    ],
)
def test_wrong_classes_are_refused(classes, message):
    with pytest.raises(OptionError, match=f"^{message}"):
        class_names(classes)
