import numpy as np
import pytest
from hypothesis import given

from openradial.metrics import auroc, oscr, oscr_curve
from tests.metrics.metric_oracles import SCORES, curve_by_thresholds, oscr_by_pairs, outcomes

HAND_MADE = {
    "separated and right": ([0, 1], [2, 3], [True, True], 1.0),
    "separated, half of them right": ([0, 1], [2, 3], [True, False], 0.5),
    "novel ones below": ([2, 3], [0, 1], [True, True], 0.0),
    "all wrong": ([0, 1], [2, 3], [False, False], 0.0),
    "all scores equal": ([1, 1], [1, 1, 1], [True, True], 0.5),
    "all scores equal, half of them right": ([1, 1], [1], [True, False], 0.25),
    # pairs: 1 < 2 and 1 < 3 count one each, 2 = 2 a half, 2 < 3 one, 3 is wrong: 3.5 of 6
    "a tie and an error": ([1, 2, 3], [2, 3], [True, True, False], 3.5 / 6),
    "one of each": ([0], [1], [True], 1.0),
}


@pytest.mark.parametrize(("known", "novel", "correct", "expected"), HAND_MADE.values(), ids=HAND_MADE)
def test_oscr_of_hand_made_cases(known, novel, correct, expected):
    assert oscr(known, novel, correct) == pytest.approx(expected, rel=1e-15)


def test_the_curve_of_the_case_in_the_docs():
    curve = oscr_curve(known=[1, 2, 2, 4], novel=[2, 3], correct=[True, True, False, True])
    assert curve.thresholds.tolist() == [-np.inf, 1, 2, 3, 4]
    assert curve.fpr.tolist() == [0, 0, 0.5, 1, 1]
    assert curve.ccr.tolist() == [0, 0.25, 0.5, 0.5, 0.75]
    assert oscr(known=[1, 2, 2, 4], novel=[2, 3], correct=[True, True, False, True]) == 0.4375


@given(known=outcomes(), novel=SCORES)
def test_oscr_is_the_share_of_pairs_that_are_right_and_in_order(known, novel):
    scores, correct = known
    assert oscr(scores, novel, correct) == pytest.approx(oscr_by_pairs(scores, novel, correct))


@given(known=outcomes(), novel=SCORES)
def test_the_curve_is_that_of_every_threshold_and_oscr_its_area(known, novel):
    scores, correct = known
    curve = oscr_curve(scores, novel, correct)
    assert np.array_equal(list(curve_by_thresholds(scores, novel, correct)), np.stack(curve, axis=1))
    assert oscr(scores, novel, correct) == pytest.approx(np.trapezoid(curve.ccr, curve.fpr))


@given(known=SCORES, novel=SCORES)
def test_oscr_of_a_perfect_classifier_is_the_auroc(known, novel):
    assert oscr(known, novel, [True] * len(known)) == pytest.approx(auroc(known, novel))


@given(known=outcomes(), novel=SCORES)
def test_oscr_is_at_most_the_accuracy_and_the_auroc(known, novel):
    scores, correct = known
    assert oscr(scores, novel, correct) <= min(np.mean(correct), auroc(scores, novel)) + 1e-12


@given(known=outcomes(), novel=SCORES)
def test_oscr_of_separated_groups_is_the_accuracy(known, novel):
    scores, correct = known
    assert oscr(scores, [score + 7 for score in novel], correct) == pytest.approx(np.mean(correct))


@given(known=outcomes(), novel=SCORES)
def test_the_order_of_examples_does_not_matter(known, novel):
    scores, correct = known
    assert oscr(scores[::-1], novel[::-1], correct[::-1]) == oscr(scores, novel, correct)
