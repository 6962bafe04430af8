import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from openradial.errors import DTypeError, OptionError, ShapeError, TargetError
from openradial.scorers import ClassStatistics

K, D = 4, 3
FIELDS = ("weights", "counts", "means", "scatter")
WEIGHTS = {"equal": None, "weighted": torch.tensor([0.3, 7.0, 1.0, 0.01])}


def naive(z, y, weight=None):
    """The definitions, one example at a time, with the common offset removed from the scatters."""
    z, y = np.asarray(z, np.float64), np.asarray(y)
    weight = np.ones(K) if weight is None else np.asarray(weight, np.float64)
    offset = z[0].copy()
    z = z - offset
    counts = np.array([(y == k).sum() for k in range(K)])
    means = np.stack([z[y == k].mean(0) if (y == k).any() else np.zeros(z.shape[1]) for k in range(K)])
    mean = sum(weight[label] * row for row, label in zip(z, y, strict=True)) / sum(weight[label] for label in y)

    def scatter(centres):
        rows = zip(z, y, centres, strict=True)
        return sum(weight[label] * np.outer(row - centre, row - centre) for row, label, centre in rows)

    return {
        "weights": counts * weight,
        "counts": counts,
        "means": np.where(counts[:, None] > 0, means + offset, 0.0),
        "scatter": scatter([mean] * len(z)),
        "mean": mean + offset,
        "within": scatter(means[y]),
    }


def assert_close(actual, expected, size, rtol=1e-10):
    """Compare each field; ``size`` is the scale of the scatters, whose entries cancel."""
    for name in expected:
        value = getattr(actual, name)
        value = np.asarray(value() if name == "within" else value)
        atol = rtol * size if name in ("scatter", "within") else rtol
        np.testing.assert_allclose(value, expected[name], rtol=rtol, atol=atol, err_msg=name)


def fields(statistics):
    return {name: getattr(statistics, name).numpy() for name in FIELDS}


def draw(seed, n, offset=0.0, d=D):
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(K, (n,), generator=rng)
    z = torch.randn(n, d, generator=rng, dtype=torch.float64) + 2 * y.unsqueeze(1)
    return z * torch.logspace(-1, 1, d, dtype=torch.float64) + offset, y


seeds, sizes = st.integers(0, 2**31), st.integers(1, 40)
offsets, weightings = st.sampled_from([0.0, -3.0, 1e6]), st.sampled_from(list(WEIGHTS))


@settings(deadline=None)
@given(seeds, sizes, offsets, weightings)
def test_statistics_equal_the_definitions(seed, n, offset, weighting):
    z, y = draw(seed, n, offset)
    weight = WEIGHTS[weighting]
    expected = naive(z, y, weight)
    assert_close(ClassStatistics.of(z, y, K, weight), expected, max(1.0, np.trace(expected["scatter"])))


@settings(deadline=None)
@given(seeds, st.lists(sizes, min_size=1, max_size=5), offsets, weightings, st.randoms(use_true_random=False))
def test_the_parts_add_up_to_all_in_any_order(seed, lengths, offset, weighting, random):
    z, y = draw(seed, sum(lengths), offset)
    weight = WEIGHTS[weighting]
    parts = list(zip(z.split(lengths), y.split(lengths), strict=True))
    random.shuffle(parts)
    added = ClassStatistics.empty(K, D)
    for rows, labels in parts:
        added = added + ClassStatistics.of(rows, labels, K, weight)
    expected = naive(z, y, weight)
    assert_close(added, expected, max(1.0, np.trace(expected["scatter"])))
    assert torch.equal(added.scatter, added.scatter.T)


@settings(deadline=None)
@given(seeds, sizes, sizes, offsets, weightings)
def test_subtracting_a_part_leaves_the_rest(seed, n, m, offset, weighting):
    z, y = draw(seed, n + m, offset)
    weight = WEIGHTS[weighting]
    rest, part = (ClassStatistics.of(z[rows], y[rows], K, weight) for rows in (slice(n), slice(n, None)))
    left = (rest + part) - part
    size = max(1.0, float((rest + part).scatter.trace()))
    # a rest of little weight is computed from the rounding error of heavy statistics, relative to its weight
    lost = max(1.0, (rest + part).total / rest.total)
    assert_close(left, fields(rest), size, rtol=1e-10 * lost)
    assert (left.scatter.diagonal() >= 0).all()
    assert (left.within().diagonal() >= 0).all()
    assert torch.equal(left.scatter, left.scatter.T)
    gone = left.counts == 0
    assert (left.weights[gone] == 0).all()
    assert (left.means[gone] == 0).all()


@pytest.mark.parametrize("weighting", WEIGHTS)
def test_subtracting_everything_leaves_exactly_nothing(weighting):
    z, y = draw(0, 50, 1e6)
    parts = [ClassStatistics.of(z[rows], y[rows], K, WEIGHTS[weighting]) for rows in (slice(30), slice(30, None))]
    nothing = parts[0] + parts[1] - parts[1] - parts[0]
    for name, value in fields(ClassStatistics.empty(K, D)).items():
        np.testing.assert_array_equal(getattr(nothing, name), value)
    assert nothing.total == 0
    assert not nothing.mean.any()
    assert not nothing.within().any()
    again = nothing + parts[0]
    assert all(torch.equal(getattr(again, name), getattr(parts[0], name)) for name in FIELDS)


def test_features_that_do_not_vary_keep_a_scatter_without_negative_diagonal():
    z, y = draw(1, 60)
    z[:, 1] = 1e6 + 0.1
    whole, part = ClassStatistics.of(z, y, K), ClassStatistics.of(z[:59], y[:59], K)
    for scatter in (whole.within(), (whole - part).scatter, (whole - part).within()):
        assert (scatter.diagonal() >= 0).all()
        assert scatter[1].abs().max() < 1e-6


@pytest.mark.parametrize("offset", [0.0, 0.1, 1e6])
def test_one_example_per_class_has_no_scatter_within(offset):
    z, y = torch.randn(100, 5, generator=torch.Generator().manual_seed(0)) + offset, torch.arange(100)
    assert not ClassStatistics.of(z, y, 100).within().any()
    added = sum((ClassStatistics.of(z[i::2], y[i::2], 100) for i in range(2)), ClassStatistics.empty(100, 5))
    assert not added.within().any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_features_are_converted_before_anything_is_computed(dtype):
    z, y = draw(2, 200)
    rows = (200 * z).to(dtype)  # sums and squares of these overflow in float16
    actual, expected = ClassStatistics.of(rows, y, K), ClassStatistics.of(rows.double(), y, K)
    for name in FIELDS:
        assert torch.equal(getattr(actual, name), getattr(expected, name))
    assert actual.scatter.dtype == actual.means.dtype == actual.weights.dtype == torch.float64
    assert actual.counts.dtype == torch.int64


@pytest.mark.parametrize("weighting", WEIGHTS)
def test_small_parts_give_the_same_statistics(weighting, monkeypatch):
    z, y = draw(3, 200, 1e6)
    z = z[y.argsort()]
    expected = ClassStatistics.of(z, y.sort().values, K, WEIGHTS[weighting])
    monkeypatch.setattr("openradial.scorers.statistics.AT_ONCE", 70)
    actual = ClassStatistics.of(z, y.sort().values, K, WEIGHTS[weighting])
    assert_close(actual, fields(expected), float(expected.scatter.trace()))


def test_statistics_do_not_depend_on_gradients_or_change_the_features():
    z, y = draw(4, 30)
    before = z.clone()
    statistics = ClassStatistics.of(z.requires_grad_(), y, K, torch.ones(K, requires_grad=True))
    assert torch.equal(z.detach(), before)
    assert not any(getattr(statistics, name).requires_grad for name in FIELDS)
    assert (statistics.num_classes, statistics.num_features, statistics.total) == (K, D, 30.0)


def test_what_was_not_added_cannot_be_subtracted():
    z, y = torch.ones(3, 2), torch.tensor([0, 0, 1])
    some = ClassStatistics.of(z, y, 2)
    message = (
        "only statistics of a part can be subtracted, but class 1 has 1 examples of weight 1, and 2 of weight 2 are "
        "subtracted; subtract what was added"
    )
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        some - ClassStatistics.of(z, 1 - y, 2)
    with pytest.raises(OptionError, match="class 0 has 2 examples of weight 2, and 1 of weight 5"):
        some - ClassStatistics.of(z[:1], y[:1], 2, torch.tensor([5.0, 1.0]))
    message = "statistics must have the same classes and features, got 2 classes, 2 features and 3 classes, 2 features"
    for combine in (ClassStatistics.__add__, ClassStatistics.__sub__):
        with pytest.raises(ShapeError, match=f"^{message}$"):
            combine(some, ClassStatistics.empty(3, 2))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_data_that_cannot_be_used_is_refused(bad):
    z, y = torch.ones(3, 2), torch.tensor([0, 0, 1])
    with pytest.raises(ShapeError, match=r"^features must hold at least one example to learn from, got none$"):
        ClassStatistics.of(z[:0], y[:0], 2)
    with pytest.raises(TargetError, match=r"^labels must be classes from 0 to 1, got 2 in row 2$"):
        ClassStatistics.of(z, y + y, 2)
    with pytest.raises(DTypeError, match=r"^features must be floating point, got torch\.int64"):
        ClassStatistics.of(z.long(), y, 2)
    with pytest.raises(ShapeError, match=r"^class_weight must have the shape \(2,\), one per class, got \(3,\)$"):
        ClassStatistics.of(z, y, 2, torch.ones(3))
    for weight in (bad, 0.0, -1.0):
        with pytest.raises(OptionError, match=r"^class_weight must be positive and finite, got \S+ for class 1; leave"):
            ClassStatistics.of(z, y, 2, torch.tensor([1.0, weight]))
    z[1, 1] = bad
    message = "features must be finite, got nan or infinity in 1 rows, the first is row 1"
    with pytest.raises(ShapeError, match=f"^{message}$"):
        ClassStatistics.of(z, y, 2)
