from fractions import Fraction
from math import ceil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openradial.conformal import conformal_p_values
from openradial.conformal.calibration import OrderStatistics, examples_needed
from openradial.errors import ShapeError

TIED = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=40)
UNTIED = st.lists(st.integers(-1000, 1000).map(float), min_size=1, max_size=40, unique=True)
RATES = st.sampled_from(["0.01", "0.05", "0.1", "0.2", "0.25", "0.3", "0.5", "0.7", "0.95"])


def naive_p_value(calibration, score):
    """The definition, one comparison after the other."""
    at_least = 0
    for known in calibration:
        if known >= score:
            at_least += 1
    return (1 + at_least) / (len(calibration) + 1)


@given(calibration=TIED, scores=TIED)
def test_p_values_are_those_of_the_definition(calibration, scores):
    p = conformal_p_values(torch.tensor(calibration), torch.tensor(scores))
    assert p.dtype == torch.float64
    assert p.tolist() == [naive_p_value(calibration, score) for score in scores]


def test_scores_may_have_any_shape_and_precision():
    calibration = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    scores = torch.tensor([[0.1, 0.25], [0.3, 0.4]], dtype=torch.float16, requires_grad=True)
    expected = [[naive_p_value(calibration.tolist(), score) for score in row] for row in scores.tolist()]
    assert conformal_p_values(calibration, scores).tolist() == expected


def test_a_score_that_is_nan_counts_as_infinite_and_minus_infinity_as_surely_known():
    p = conformal_p_values(torch.arange(9.0), torch.tensor([torch.nan, torch.inf, -torch.inf]))
    assert p.tolist() == [0.1, 0.1, 1.0]


@pytest.mark.parametrize(
    ("calibration", "message"),
    [
        (
            torch.zeros(0),
            r"calibration must have the shape \(n,\) with at least one score, got \(0,\); give the unknown",
        ),
        (torch.zeros(2, 1), r"calibration must have the shape \(n,\) with at least one score, got \(2, 1\); give the"),
        (torch.tensor([0.0, torch.nan]), "calibration must not hold nan, got 1; remove those rows"),
    ],
)
def test_a_calibration_that_is_none_is_refused(calibration, message):
    with pytest.raises(ShapeError, match=message):
        conformal_p_values(calibration, torch.zeros(1))


@given(scores=UNTIED.filter(lambda scores: len(scores) > 1), rate=RATES)
def test_each_of_n_scores_against_the_others_is_rejected_exactly_as_often_as_asked(scores, rate):
    p = [naive_p_value(scores[:i] + scores[i + 1 :], score) for i, score in enumerate(scores)]
    by_us = [
        float(conformal_p_values(torch.tensor(scores[:i] + scores[i + 1 :]), torch.tensor(score)))
        for i, score in enumerate(scores)
    ]
    assert by_us == p
    assert sum(each <= float(rate) for each in by_us) == int(Fraction(rate) * len(scores))


@given(scores=TIED.filter(lambda scores: len(scores) > 1), rate=RATES, keep=st.integers(2, 50))
def test_ties_and_thinning_only_reject_less(scores, rate, keep):
    rejected = 0
    for i, score in enumerate(scores):
        others = OrderStatistics.of(torch.tensor(scores[:i] + scores[i + 1 :]), keep)
        rejected += float(others.p_values(torch.tensor(score))) <= float(rate)
    assert rejected <= Fraction(rate) * len(scores)


@given(calibration=st.one_of(TIED, UNTIED), rate=RATES)
def test_the_threshold_is_the_order_statistic_of_the_hand_formula(calibration, rate):
    rank = ceil((len(calibration) + 1) * (1 - Fraction(rate)))
    expected = sorted(calibration)[rank - 1] if rank <= len(calibration) else np.inf
    assert OrderStatistics.of(torch.tensor(calibration)).threshold(float(rate)) == expected


@given(calibration=st.one_of(TIED, UNTIED), scores=TIED, rate=RATES, keep=st.integers(2, 50))
def test_the_threshold_decides_as_the_p_value_does(calibration, scores, rate, keep):
    known = OrderStatistics.of(torch.tensor(calibration), keep)
    above = torch.tensor(scores) > known.threshold(float(rate))
    assert torch.equal(above, known.p_values(torch.tensor(scores)) <= float(rate))


@pytest.mark.parametrize("n", [99, 999, 1999, 12_345])
def test_every_rate_k_of_n_plus_one_rejects_above_exactly_k_scores(n):
    known = OrderStatistics.of(torch.arange(1.0, n + 1))
    for k in range(1, n + 1, max(1, n // 200)):
        assert known.threshold(k / (n + 1)) == n + 1 - k


def test_thinning_keeps_the_largest_scores_and_p_nearly_exact():
    random = np.random.default_rng(0)
    scores, asked = torch.from_numpy(random.normal(size=300_000)), torch.from_numpy(random.normal(size=5_000))
    whole, thinned = OrderStatistics.of(scores), OrderStatistics.of(scores, 2_000)
    assert len(thinned.values) <= 2_000
    assert thinned.total == whole.total == 300_000
    assert torch.equal(thinned.values[-1_000:], whole.values[-1_000:])
    ratio = thinned.p_values(asked) / whole.p_values(asked)
    assert ratio.min() >= 1
    assert ratio.max() < 1.01
    for rate in (1 / 300_001, 0.001, 0.003):
        assert thinned.threshold(rate) == whole.threshold(rate)
    for rate in (0.01, 0.05, 0.5):
        assert whole.threshold(rate) <= thinned.threshold(rate) < whole.threshold(rate * 0.99)


def test_a_hundred_thousand_of_a_million_keep_p_exact_to_a_ten_thousandth():
    scores = torch.arange(1_000_000.0)
    thinned = OrderStatistics.of(scores, 100_000)
    ratio = thinned.p_values(scores) / ((1_000_000 - scores.double() + 1) / 1_000_001)
    assert ratio.min() >= 1
    assert ratio.max() < 1.0001


@given(rate=st.floats(1e-6, 1, exclude_max=True))
def test_the_examples_needed_are_the_fewest_that_can_reject(rate):
    needed = examples_needed(rate)
    assert 1 / (needed + 1) <= rate
    assert needed == 0 or 1 / needed > rate


def test_rates_of_one_in_a_whole_number_need_one_example_less():
    for count in [*range(2, 5_000), 10**6 + 1, 10**9 + 7, 2**40 + 1]:
        assert examples_needed(1 / count) == count - 1


@pytest.mark.parametrize("rate", [1e-12, 1e-18, 1e-300, 5e-324])
def test_tiny_rates_are_answered_at_once(rate, must_end):
    """Counting down from 1 / rate would take years."""
    needed = examples_needed(rate)
    assert needed == pytest.approx(min(1 / rate, 2**63))
    assert OrderStatistics.of(torch.arange(9.0)).threshold(rate) == np.inf
