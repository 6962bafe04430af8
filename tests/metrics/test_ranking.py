import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from openradial.errors import OptionError
from openradial.metrics import aupr, auroc, fpr_at_tpr, roc_curve
from tests.metrics.metric_oracles import (
    SCORES,
    auroc_by_pairs,
    average_precision,
    curve_by_thresholds,
    fpr_by_thresholds,
)

TPRS = st.sampled_from([0.05, 0.5, 0.55, 0.75, 0.95, 1.0])


def samples(seed):
    """Known and novel scores with ties; both as scikit-learn takes them."""
    random = np.random.default_rng(seed)
    known, novel = random.normal(size=500).round(1), random.normal(1, size=300).round(1)
    return known, novel, np.repeat([0, 1], [500, 300]), np.concatenate([known, novel])


@given(known=SCORES, novel=SCORES)
def test_auroc_is_the_share_of_pairs_in_the_right_order(known, novel):
    assert auroc(known, novel) == pytest.approx(auroc_by_pairs(known, novel))


@given(known=SCORES, novel=SCORES)
def test_auroc_of_swapped_groups_is_the_rest_to_one(known, novel):
    assert auroc(known, novel) + auroc(novel, known) == pytest.approx(1)


@given(known=SCORES, novel=SCORES)
def test_aupr_is_the_sum_over_thresholds_in_both_directions(known, novel):
    assert aupr(known, novel) == pytest.approx(average_precision(novel, known))
    flipped = [-score for score in known], [-score for score in novel]
    assert aupr(known, novel, positive="known") == pytest.approx(average_precision(*flipped))


@given(known=SCORES, novel=SCORES, tpr=TPRS)
def test_fpr_at_tpr_is_that_of_the_best_threshold_that_accepts_enough(known, novel, tpr):
    assert fpr_at_tpr(known, novel, tpr) == pytest.approx(fpr_by_thresholds(known, novel, tpr))


@given(known=SCORES, novel=SCORES)
def test_the_roc_curve_has_each_distinct_threshold_once(known, novel):
    right = [True] * len(known)
    expected = np.array(list(curve_by_thresholds(known, novel, right)))
    assert np.array_equal(expected, np.stack(roc_curve(known, novel), axis=1))


@given(known=SCORES, novel=SCORES)
def test_auroc_is_the_area_under_the_roc_curve(known, novel):
    curve = roc_curve(known, novel)
    assert auroc(known, novel) == pytest.approx(np.trapezoid(curve.tpr, curve.fpr))


@given(known=SCORES, novel=SCORES, tpr=TPRS)
def test_only_the_order_of_scores_matters(known, novel, tpr):
    bent = np.exp(known)[::-1], np.exp(novel)[::-1]
    assert auroc(*bent) == auroc(known, novel)
    assert aupr(*bent) == aupr(known, novel)
    assert fpr_at_tpr(*bent, tpr) == fpr_at_tpr(known, novel, tpr)


@pytest.mark.parametrize("seed", range(3))
def test_ranking_metrics_agree_with_scikit_learn(seed):
    known, novel, is_novel, scores = samples(seed)
    assert auroc(known, novel) == pytest.approx(sklearn_metrics.roc_auc_score(is_novel, scores))
    assert aupr(known, novel) == pytest.approx(sklearn_metrics.average_precision_score(is_novel, scores))
    of_known = sklearn_metrics.average_precision_score(1 - is_novel, -scores)
    assert aupr(known, novel, positive="known") == pytest.approx(of_known)


@pytest.mark.parametrize("seed", range(3))
def test_the_roc_curve_and_fpr_agree_with_scikit_learn(seed):
    known, novel, is_novel, scores = samples(seed)
    fpr, tpr, thresholds = sklearn_metrics.roc_curve(1 - is_novel, -scores, drop_intermediate=False)
    curve = roc_curve(known, novel)
    assert np.allclose(curve.fpr, fpr)
    assert np.allclose(curve.tpr, tpr)
    assert np.array_equal(curve.thresholds, -thresholds)
    assert fpr_at_tpr(known, novel) == pytest.approx(fpr[np.argmax(tpr >= 0.95)])


def test_a_known_share_that_is_met_exactly_is_enough():
    known = np.arange(100.0)
    assert 0.55 * 100 > 55  # a count from this product would ask for one more
    assert fpr_at_tpr(known, novel=[54.0, 55.0], tpr=0.55) == 0.5


def test_equal_scores_are_accepted_together():
    assert fpr_at_tpr(known=[1, 1, 1, 1], novel=[1, 1, 2], tpr=0.25) == pytest.approx(2 / 3)
    assert auroc(known=[1, 1], novel=[1, 1, 1]) == 0.5


def test_infinite_scores_have_their_place():
    assert auroc([0.0, 1.0], [np.inf]) == 1.0
    assert auroc([-np.inf, np.inf], [0.0]) == 0.5
    assert fpr_at_tpr([-np.inf, 0.0], [np.inf, -np.inf], tpr=1.0) == 0.5


def test_negative_zero_equals_zero():
    assert auroc([0.0], [-0.0]) == 0.5


def test_single_and_double_precision_are_compared_by_value():
    single = np.array([0.1], dtype=np.float32)  # 0.10000000149...
    assert auroc(known=[0.1], novel=single) == 1.0


def test_a_million_scores_lose_no_digit_to_their_number():
    known, novel = np.arange(0, 2_000_000, 2.0), np.arange(1, 2_000_001, 2.0)
    size = 1_000_000
    assert auroc(known, novel) == pytest.approx((size + 1) / (2 * size), rel=1e-15)


@pytest.mark.parametrize("tpr", [0, 1.01, -1, float("nan")])
def test_an_impossible_tpr_is_refused(tpr):
    with pytest.raises(OptionError, match=f"tpr must be above 0 and at most 1, got {tpr}; the usual one is 0.95"):
        fpr_at_tpr([0.0], [1.0], tpr)


def test_an_unknown_side_is_refused():
    with pytest.raises(OptionError, match="positive must be one of 'known', 'novel', got 'id'"):
        aupr([0.0], [1.0], positive="id")
