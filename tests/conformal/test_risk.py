import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from openradial.conformal import OperatingPoint, operating_point
from openradial.errors import DTypeError, ShapeError

NOTHING = OperatingPoint(-math.inf, 0.0, 0.0, 0, 0)


def naive_point(scores, correct, max_risk):
    """Try every threshold."""
    best = (0, -math.inf, 0)
    for threshold in scores:
        accepted = [right for score, right in zip(scores, correct, strict=True) if score <= threshold]
        errors = accepted.count(False)
        if errors / len(accepted) <= max_risk:
            best = max(best, (len(accepted), threshold, errors))
    return best


@given(
    rows=st.lists(st.tuples(st.integers(0, 12).map(float), st.booleans()), min_size=1, max_size=40),
    max_risk=st.sampled_from([0.01, 0.1, 0.25, 0.5, 0.9]),
)
def test_no_threshold_accepts_more_at_that_risk(rows, max_risk):
    scores, correct = map(list, zip(*rows, strict=True))
    point = operating_point(scores, correct, max_risk)
    accepted, threshold, errors = naive_point(scores, correct, max_risk)
    assert (point.accepted, point.threshold, point.errors) == (accepted, threshold, errors)
    assert point.coverage == accepted / len(scores)
    assert point.risk == (errors / accepted if accepted else 0)
    assert point.bound is None


def test_bad_scores_are_never_accepted_but_count():
    point = operating_point([0.1, np.nan, np.inf, 0.2], [True, True, True, True], 0.5)
    assert point == OperatingPoint(0.2, 0.5, 0.0, 2, 0)
    assert operating_point([np.nan, np.inf], [True, True]) == NOTHING


@pytest.mark.parametrize("confidence", [None, 0.95])
def test_where_no_threshold_will_do_nothing_is_accepted(confidence):
    point = operating_point([0.1, 0.2], [False, True], 0.3, confidence)
    assert point == NOTHING
    assert str(point) == "accept up to -inf: coverage 0, risk 0 (0 of 0)"


def outcomes(random, n, decimals=None):
    """Scores of uniform distribution, wrong with the chance 0.1 s²: the risk of accepting up to t is t² / 30."""
    scores = random.uniform(size=n)
    correct = random.uniform(size=n) > 0.1 * scores**2
    return scores if decimals is None else np.ceil(scores * 10**decimals) / 10**decimals, correct


def true_risk(threshold):
    return threshold**2 / 30


def test_the_plain_choice_flatters_and_the_careful_one_keeps_its_word():
    random = np.random.default_rng(0)
    broken = {None: 0, 0.9: 0}
    coverage = []
    for _ in range(100):
        scores, correct = outcomes(random, 10_000)
        for confidence in broken:
            point = operating_point(scores, correct, 0.01, confidence)
            broken[confidence] += true_risk(max(point.threshold, 0)) > 0.01
        coverage.append(point.coverage)
    assert broken[None] > 35
    assert broken[0.9] <= stats.binom.ppf(0.999, 100, 0.1)
    assert np.mean(coverage) > 0.4  # 0.548 is the best there is


def test_ties_keep_the_careful_choice_true():
    random = np.random.default_rng(0)
    broken = 0
    for _ in range(100):
        point = operating_point(*outcomes(random, 10_000, decimals=1), 0.01, 0.9)
        broken += true_risk(max(point.threshold, 0)) > 0.01
    assert broken <= stats.binom.ppf(0.999, 100, 0.1)


def test_the_bound_is_that_of_clopper_and_pearson_for_all_starts_together():
    scores, correct = outcomes(np.random.default_rng(0), 5_000)
    point = operating_point(scores, correct, 0.02, 0.95)
    doubt = 0.05 / 10
    upper = stats.beta.ppf(1 - doubt, point.errors + 1, point.accepted - 1 - point.errors)
    assert point.bound == pytest.approx(upper)
    assert point.risk < point.bound <= 0.02
    plain = operating_point(scores, correct, 0.02)
    assert point.coverage < plain.coverage
    assert operating_point(scores, correct, 0.02, 0.5).coverage >= point.coverage


def test_the_careful_choice_needs_as_many_examples_as_it_says():
    assert operating_point(np.arange(528.0), [True] * 528, 0.01, 0.95) == NOTHING
    assert operating_point(np.arange(529.0), [True] * 529, 0.01, 0.95).coverage == 1


def test_tensors_and_lists_give_the_same_and_one_line_says_it():
    scores, correct = outcomes(np.random.default_rng(1), 2_000)
    point = operating_point(torch.tensor(scores), torch.tensor(correct), 0.02, 0.9)
    assert point == operating_point(scores.tolist(), correct.tolist(), 0.02, 0.9)
    assert str(point).startswith(f"accept up to {point.threshold:.6g}: coverage {point.coverage:.4g}, risk ")
    assert str(point).endswith(f"({point.errors} of {point.accepted}), at most {point.bound:.4g} on new data")


def test_what_is_no_outcome_is_refused():
    with pytest.raises(ShapeError, match="correct must have one entry per example: 2 examples but 1 correct"):
        operating_point([0.1, 0.2], [True])
    with pytest.raises(DTypeError, match="correct must be True or False, got int64; compare: predictions == labels"):
        operating_point([0.1, 0.2], [1, 0])
    with pytest.raises(ShapeError, match=r"scores must have the shape \(b,\), one per example, got \(1, 1\)"):
        operating_point([[0.1]], [True])
    with pytest.raises(ShapeError, match=r"scores must be a list of at least one score, got shape \(0,\)"):
        operating_point([], [])
