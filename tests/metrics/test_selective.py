import numpy as np
import pytest
from hypothesis import assume, given

from openradial.errors import ShapeError
from openradial.metrics import aurc, misclassification_auroc, risk_coverage_curve
from tests.metrics.metric_oracles import aurc_over_all_orders, auroc_by_pairs, outcomes, share


@given(outcomes(max_size=6))
def test_aurc_is_the_mean_over_all_orders_of_equal_scores(case):
    scores, correct = case
    assert aurc(scores, correct) == pytest.approx(aurc_over_all_orders(scores, correct))


@pytest.mark.parametrize(
    ("scores", "correct", "expected"),
    [
        ([1, 2], [True, False], 0.25),  # risks 0/1, 1/2
        ([1, 2], [False, True], 0.75),  # risks 1/1, 1/2
        ([1, 1], [True, False], 0.5),  # the mean of both
        ([1], [False], 1.0),
        ([3, 1, 2], [True, True, True], 0.0),
    ],
)
def test_aurc_of_hand_made_cases(scores, correct, expected):
    assert aurc(scores, correct) == pytest.approx(expected)


@given(outcomes())
def test_aurc_of_equal_scores_is_the_error_rate(case):
    _, correct = case
    assert aurc([0.0] * len(correct), correct) == pytest.approx(1 - np.mean(correct))


@given(outcomes())
def test_the_risk_coverage_curve_is_that_of_every_threshold(case):
    scores, correct = case
    curve = risk_coverage_curve(scores, correct)
    assert curve.thresholds.tolist() == sorted(set(scores))
    for threshold, coverage, risk in zip(*curve, strict=True):
        assert coverage == pytest.approx(share(score <= threshold for score in scores))
        accepted = [right for score, right in zip(scores, correct, strict=True) if score <= threshold]
        assert risk == pytest.approx(1 - share(accepted))


@given(outcomes())
def test_without_ties_aurc_is_the_mean_risk_of_the_curve(case):
    _, correct = case
    scores = np.arange(len(correct))
    assert aurc(scores, correct) == pytest.approx(risk_coverage_curve(scores, correct).risk.mean())


@given(outcomes())
def test_the_order_of_predictions_does_not_matter(case):
    scores, correct = case
    assert aurc(scores[::-1], correct[::-1]) == aurc(scores, correct)


@given(outcomes())
def test_misclassification_auroc_is_the_share_of_pairs_in_the_right_order(case):
    scores, correct = case
    right = [score for score, flag in zip(scores, correct, strict=True) if flag]
    wrong = [score for score, flag in zip(scores, correct, strict=True) if not flag]
    assume(right and wrong)
    assert misclassification_auroc(scores, correct) == pytest.approx(auroc_by_pairs(right, wrong))


def test_without_an_error_there_is_no_misclassification_auroc():
    message = "correct must hold both right and wrong predictions, got 2 right and 0 wrong"
    with pytest.raises(ShapeError, match=message):
        misclassification_auroc([1.0, 2.0], [True, True])
