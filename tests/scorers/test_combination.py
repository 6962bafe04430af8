import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from openradial.conformal import conformal_p_values
from openradial.errors import DTypeError, HeadError, OptionError, ShapeError
from openradial.heads import load_head, save_head
from openradial.scorers import Combination
from openradial.scorers.combination import METHODS
from tests.rounding import tolerance

CLOSE = tolerance(32, torch.float64)  # a few logarithms and sums of at most three scores
every_method = pytest.mark.parametrize("method", METHODS)


def known_scores(n=200, m=3, seed=0):
    """Positive scores of known data, whose columns go together."""
    rng = torch.Generator().manual_seed(seed)
    shared = torch.randn(n, 1, generator=rng, dtype=torch.float64)
    return (shared + torch.randn(n, m, generator=rng, dtype=torch.float64)).mul(0.5).exp()


def naive_p(column, score):
    """A column's p-value: counted at its own scores, interpolated between them, exponential beyond."""
    column = sorted(column)
    p = {value: (1 + sum(other >= value for other in column)) / (len(column) + 1) for value in column}
    if score >= column[-1]:
        count = math.ceil(0.1 * len(column))
        excess = sum(value - column[-count - 1] for value in column[-count:]) / count
        return p[column[-1]] * math.exp(-(score - column[-1]) / excess)
    if score <= column[0]:
        return 1.0
    left, right = max(v for v in column if v <= score), min(v for v in column if v > score)
    return p[left] + (p[right] - p[left]) * (score - left) / (right - left)


def naive_merge(method, columns, row):
    """One row merged, from the definitions."""
    if method == "standardised":
        total = 0.0
        for column, score in zip(columns, row, strict=True):
            logs = [math.log(value) for value in column]
            mean = sum(logs) / len(logs)
            deviation = math.sqrt(sum((value - mean) ** 2 for value in logs) / (len(logs) - 1))
            total += (math.log(max(score, min(column))) - mean) / deviation
        return total
    p = [naive_p(column, score) for column, score in zip(columns, row, strict=True)]
    if method == "fisher":
        return -sum(map(math.log, p))
    if method == "mean":
        return -math.log(sum(p) / len(p))
    if method == "min":
        return -math.log(min(p))
    most = 1 - 0.5 / (len(columns[0]) + 1)
    mean = sum(1 / math.tan(math.pi * min(value, most)) for value in p) / len(p)
    return -math.log(math.atan2(1, mean) / math.pi)


def halves(scores, seed=0):
    """The rows that calibrate the columns, and the rows that are merged."""
    order = torch.randperm(len(scores), generator=torch.Generator().manual_seed(seed))
    return scores[order[: len(scores) // 2]], scores[order[len(scores) // 2 :]]


@every_method
def test_the_merged_score_equals_the_definition(method):
    known = known_scores()
    first, second = halves(known)
    merge = Combination(method).fit(known)
    rows = torch.cat([second, known_scores(20, seed=1), torch.tensor([[1e-9, 5.0, 60.0], [9.0, 30.0, 1.0]]).double()])
    columns = first.T.tolist()
    expected = [naive_merge(method, columns, row) for row in rows.tolist()]
    np.testing.assert_allclose(merge.unknown_score(rows), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(merge.merged, sorted(naive_merge(method, columns, row) for row in second.tolist()))


@every_method
def test_p_values_count_the_merged_scores_of_the_second_half(method):
    known, rows = known_scores(), 2 * known_scores(30, seed=1)
    merge = Combination(method, seed=3).fit(known)
    second = merge.unknown_score(halves(known, seed=3)[1])
    assert len(second) == 100
    scores = merge.unknown_score(rows).tolist()
    expected = [(1 + sum(value >= score for value in second.tolist())) / 101 for score in scores]
    np.testing.assert_allclose(merge.p_values(rows), expected, rtol=1e-12)


@every_method
@pytest.mark.parametrize("dependence", ["copies", "opposites", "free", "tails"])
def test_p_values_of_known_data_are_valid_however_columns_depend(method, dependence):
    rng = torch.Generator().manual_seed(0)

    def draw(n):
        x = torch.randn(n, 3, generator=rng, dtype=torch.float64)
        if dependence == "copies":
            x = x[:, :1].expand(-1, 3)
        if dependence == "opposites":
            x = torch.cat([x[:, :1], -x[:, :1], x[:, :1]], 1)
        if dependence == "tails":
            x = x / torch.randn(n, 1, generator=rng, dtype=torch.float64).abs()
        return (x.clamp(-50, 50) / 2).exp()

    draws, tested, levels = 150, 40, (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 0.9)
    p = torch.stack([Combination(method).fit(draw(99)).p_values(draw(tested)) for _ in range(draws)])  # (draws, tested)
    for level in levels:
        share = (p <= level).double().mean(1)  # of each draw
        error = share.std() / math.sqrt(draws)
        assert share.mean() <= level + 4 * error + 1e-12
        exact = math.floor(level * 51) / 51  # 50 merged scores: what ranks without ties give
        assert share.mean() >= exact - 4 * error - 1e-12


@every_method
def test_no_column_gets_less_unknown_by_a_larger_score(method):
    merge = Combination(method).fit(known_scores())
    rows = known_scores(1, seed=1).repeat(400, 1)
    rows[:, 1] = torch.logspace(-3, 3, 400)
    rising = merge.unknown_score(rows).diff()
    assert (rising >= -1e-12).all()


@pytest.mark.parametrize("method", ["fisher", "min", "standardised"])
def test_scores_beyond_all_known_ones_keep_their_order(method):
    known = known_scores()
    merge = Combination(method).fit(known)
    rows = known.median(0).values.repeat(300, 1)
    rows[:, 0] = known.max() * torch.linspace(1.01, 1e4, 300)
    assert (merge.unknown_score(rows).diff() > 0).all()


def test_the_mean_keeps_the_order_where_all_columns_go_beyond():
    known = known_scores()
    rows = known.max() * torch.linspace(1.01, 1e4, 300, dtype=torch.float64).unsqueeze(1).expand(-1, 3)
    assert (Combination("mean").fit(known).unknown_score(rows).diff() > 0).all()


def test_the_continuation_spares_the_auroc_from_ties():
    rng = torch.Generator().manual_seed(0)
    known, fresh = torch.randn(60, 2, generator=rng), torch.randn(500, 2, generator=rng) + torch.tensor([2.5, 2.5])
    novel = torch.randn(500, 2, generator=rng) + torch.tensor([4.5, 4.5])
    rows, is_novel = torch.cat([fresh, novel]), [0] * 500 + [1] * 500
    merge = Combination("fisher").fit(known)
    tied = -sum(conformal_p_values(merge.columns[:, j], rows[:, j]).log() for j in range(2))
    continued = roc_auc_score(is_novel, merge.unknown_score(rows))
    assert continued > roc_auc_score(is_novel, tied) + 0.1
    assert continued > 0.95


@every_method
@settings(max_examples=20)
@given(scales=st.tuples(*[st.sampled_from([1e-6, 0.5, 1.0, 1e9])] * 3))
def test_the_units_of_the_columns_do_not_matter(method, scales):
    known, rows = known_scores(60), known_scores(10, seed=1)
    plain = Combination(method).fit(known).unknown_score(rows)
    scaled = Combination(method).fit(known * torch.tensor(scales)).unknown_score(rows * torch.tensor(scales))
    torch.testing.assert_close(scaled, plain, rtol=1e-5, atol=1e-5)


@every_method
def test_columns_may_change_places(method):
    known, rows = known_scores(), known_scores(10, seed=1)
    swapped = Combination(method).fit(known.flip(1)).unknown_score(rows.flip(1))
    torch.testing.assert_close(swapped, Combination(method).fit(known).unknown_score(rows), rtol=1e-12, atol=1e-12)


@every_method
def test_one_column_keeps_its_order(method):
    known, rows = known_scores(m=1), known_scores(50, m=1, seed=1).sort(0).values
    merge = Combination(method).fit(known)
    assert (merge.unknown_score(rows).diff() >= -1e-12).all()


def test_methods_by_hand():
    known = torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [4.0, 4.0]])
    first = halves(known)[0][:, 0].sort().values
    row = torch.tensor([[0.0, float(first[1])]])  # p = 1 and p = (1 + 1) / (2 + 1)
    expected = {"fisher": -math.log(2 / 3), "mean": -math.log(5 / 6), "min": -math.log(2 / 3)}
    for method, value in expected.items():
        assert Combination(method).fit(known).unknown_score(row).item() == pytest.approx(value)


@every_method
def test_a_score_depends_on_its_row_alone(method):
    known, rows = known_scores(), known_scores(8, seed=1)
    merge = Combination(method).fit(known)
    together = merge.unknown_score(rows)
    alone = torch.cat([merge.unknown_score(row.unsqueeze(0)) for row in rows])
    torch.testing.assert_close(alone, together, **CLOSE)
    assert merge.unknown_score(rows[:0]).shape == merge.p_values(rows[:0]).shape == (0,)
    rows[2, 1], rows[5] = torch.nan, torch.inf
    spoilt = merge.unknown_score(rows)
    assert spoilt[2].isnan()
    assert spoilt[5] > 1e299
    assert torch.equal(merge.p_values(rows)[[2, 5]], torch.full((2,), 1 / 101, dtype=torch.float64))
    others = [0, 1, 3, 4, 6, 7]
    torch.testing.assert_close(spoilt[others], together[others], **CLOSE)


@pytest.mark.parametrize("method", ["fisher", "mean", "min"])
def test_columns_that_do_not_vary_can_be_merged(method):
    known = torch.cat([known_scores(m=1), torch.zeros(200, 1), torch.ones(200, 1)], 1)
    known[:3, 2] = 0.0
    merge = Combination(method).fit(known)
    rows = torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.0, 50.0], [1.0, 90.0, 90.0]])
    scores = merge.unknown_score(rows)
    assert scores.isfinite().all()
    assert scores[0] <= scores[1] <= scores[2]


@every_method
def test_half_precision_is_merged_in_float32_and_the_module_may_change_precision(method):
    known, rows = known_scores(), known_scores(9, seed=1)
    merge = Combination(method).fit(known)
    exact = merge.unknown_score(rows)
    assert exact.dtype == torch.float64
    assert merge.unknown_score(rows.half()).dtype == torch.float32
    torch.testing.assert_close(merge.unknown_score(rows.half()), merge.unknown_score(rows.half().double()).float())
    torch.testing.assert_close(merge.float().unknown_score(rows), exact, rtol=1e-4, atol=1e-4)


@every_method
def test_a_saved_combination_is_the_same_to_the_last_bit(method, tmp_path):
    merge, rows = Combination(method, seed=5).fit(known_scores()), known_scores(9, seed=1)
    save_head(merge, tmp_path / "head")
    loaded = load_head(tmp_path / "head")
    assert loaded.settings() == {"method": method, "seed": 5, "weights": None, "tail": False}
    assert loaded.takes == "scores"
    assert torch.equal(loaded.unknown_score(rows), merge.unknown_score(rows))
    assert torch.equal(loaded.p_values(rows), merge.p_values(rows))


def test_settings_out_of_range_are_refused():
    message = "method must be one of 'fisher', 'mean', 'min', 'standardised', got 'product'"
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        Combination("product")
    with pytest.raises(OptionError, match=r"^seed must be a whole number of at least 0, got -1$"):
        Combination(seed=-1)


def changed(row, column, value):
    scores = known_scores()
    scores[row, column] = value
    return scores


@pytest.mark.parametrize(
    ("method", "scores", "error", "message"),
    [
        ("min", torch.zeros(0, 3), ShapeError, "scores must hold at least one example to learn from, got none"),
        ("min", torch.ones(3, 2), ShapeError, "a combination needs at least 4 rows of known data to learn from, got 3"),
        ("min", torch.ones(9), ShapeError, "scores must have the shape (b, d), got (9,)"),
        (
            "min",
            torch.ones(9, 2, dtype=torch.int64),
            DTypeError,
            "scores must be floating point, got torch.int64; convert them with .float()",
        ),
        (
            "min",
            changed(7, 1, torch.nan),
            ShapeError,
            "scores must be finite, got nan or infinity in 1 rows, the first is row 7",
        ),
        (
            "standardised",
            changed(7, 1, -0.5),
            OptionError,
            "the standardised method takes scores above 0, got -0.5 in row 7, column 1; use another method",
        ),
        (
            "standardised",
            changed(slice(None), 2, 3.0),
            OptionError,
            "the standardised method takes scores that vary, got a constant in column 2; leave it out",
        ),
    ],
)
def test_known_scores_that_cannot_be_used_are_refused(method, scores, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        Combination(method).fit(scores)


def test_scoring_needs_a_fit_and_as_many_columns():
    rows = known_scores()
    for call in (Combination().unknown_score, Combination().p_values):
        with pytest.raises(HeadError, match=r"^Combination must be fitted first"):
            call(rows)
    merge = Combination().fit(rows)
    for call in (merge.unknown_score, merge.p_values):
        with pytest.raises(ShapeError, match=r"^scores must have the shape \(b, 3\), got \(200, 2\)$"):
            call(rows[:, :2])


@pytest.mark.parametrize(("weights", "tail"), [((1, 2), 1), ((1.5,), 2), (None, 1)])
def test_the_tail_counts_only_far_above_known_scores_and_then_decides(weights, tail):
    known = known_scores(m=3)
    merge = Combination("standardised", weights=weights, tail=tail).fit(known)
    columns = np.log(halves(known)[0].numpy())
    rows = torch.cat([known, known * torch.tensor([1.0, 1.0, 1e4])])
    logs = np.log(np.maximum(rows.double().numpy(), np.exp(columns).min(0)))
    standardised = (logs - columns.mean(0)) / columns.std(0, ddof=1)
    first, last = standardised[:, : 3 - tail], standardised[:, 3 - tail :]
    main = (first * (np.ones(3 - tail) if weights is None else weights)).sum(1)
    share = 3 - tail if weights is None else sum(weights)
    expected = main + 10 * share * np.maximum(last - 3.25, 0).sum(1)
    found = merge.unknown_score(rows.double()).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert found[len(known) :].min() > found[: len(known)].max()  # no other score outweighs a clear tail
    with pytest.raises(OptionError, match="weights and tail are for the standardised method"):
        Combination("fisher", tail=1)


@pytest.mark.parametrize(("weights", "tail"), [((1, 2), 2), ((1, 2, 3), 1), (None, 3)])
def test_each_score_before_the_tail_has_a_weight(weights, tail):
    with pytest.raises(ShapeError, match=rf"each score needs a weight, got {3 - tail} before the tail and "):
        Combination("standardised", weights=weights, tail=tail).fit(known_scores())


@pytest.mark.parametrize("forged", [{"tail": 2}, {"tail": 5}, {"weights": [1.0]}])
def test_settings_that_do_not_fit_the_columns_are_refused_when_a_combination_is_restored(forged):
    merge = Combination("standardised", weights=[1.0, 2.0], tail=1).fit(torch.rand(8, 3) + 0.5)
    Combination.from_parts(merge.settings(), merge.tensors())
    with pytest.raises(ShapeError, match="weight"):
        Combination.from_parts(merge.settings() | forged, merge.tensors())
