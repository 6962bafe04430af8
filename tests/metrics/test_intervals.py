import re
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openradial.errors import OptionError, ShapeError
from openradial.metrics import (
    Interval,
    accuracy,
    aupr,
    aurc,
    auroc,
    bootstrap,
    brier,
    ece,
    fpr_at_tpr,
    misclassification_auroc,
    open_f1,
    oscr,
    roc_curve,
    summary,
    summary_intervals,
    top_k_accuracy,
)
from openradial.metrics.intervals import PLANS
from openradial.metrics.ranking import aupr_of, auroc_of, fpr_at_tpr_of, oscr_of, tally_open_set, tally_ranking
from openradial.metrics.selective import aurc_of, tally_mistakes, tally_outcomes
from tests.metrics.metric_oracles import SCORES, outcomes

RANDOM = np.random.default_rng(0)
KNOWN, NOVEL = RANDOM.normal(size=150).round(1), RANDOM.normal(1, size=100).round(1)
CORRECT = RANDOM.random(150) < 0.8
PROBS = RANDOM.dirichlet(np.full(5, 0.5), 150)[:, :4]
LABELS = np.where(CORRECT, PROBS.argmax(1), RANDOM.integers(-1, 4, 150))
CASES = {
    "auroc": (auroc, (KNOWN, NOVEL), {}, (0, 1)),
    "aupr": (aupr, (KNOWN, NOVEL), {"positive": "known"}, (0, 1)),
    "fpr_at_tpr": (fpr_at_tpr, (KNOWN, NOVEL), {"tpr": 0.8}, (0, 1)),
    "oscr": (oscr, (KNOWN, NOVEL, CORRECT), {}, (0, 1, 0)),
    "misclassification_auroc": (misclassification_auroc, (KNOWN, CORRECT), {}, (0, 0)),
    "aurc": (aurc, (KNOWN, CORRECT), {}, (0, 0)),
    "accuracy": (accuracy, (LABELS, PROBS.argmax(1)), {}, (0, 0)),
    "top_k_accuracy": (top_k_accuracy, (PROBS, LABELS.clip(0)), {"k": 2}, (0, 0)),
    "brier": (brier, (PROBS, LABELS), {}, (0, 0)),
    "ece": (ece, (PROBS, LABELS), {"bins": 5, "binning": "mass"}, (0, 0)),
    "ece of predictions": (ece, (PROBS, LABELS, PROBS.argmax(1)), {"bins": 5}, (0, 0, 0)),
    "open_f1": (open_f1, (LABELS, PROBS.argmax(1)), {"num_classes": 4}, (0, 0)),
}


def drawn_from(tally):
    """The scores of each part of a tally, one by one."""
    return [np.repeat(tally.thresholds, np.diff(row)) for row in tally.accepted]


@given(known=SCORES, novel=SCORES, seed=st.integers(0, 99), tpr=st.sampled_from([0.5, 0.95, 1.0]))
def test_a_resampled_ranking_has_the_metrics_of_its_scores(known, novel, seed, tpr):
    tally = tally_ranking(known, novel).resample(np.random.default_rng(seed))
    drawn = drawn_from(tally)
    assert [len(part) for part in drawn] == [len(known), len(novel)]
    assert set(drawn[0]) <= set(known)
    assert set(drawn[1]) <= set(novel)
    assert auroc_of(tally) == pytest.approx(auroc(*drawn))
    assert aupr_of(tally, "known") == pytest.approx(aupr(*drawn, "known"))
    assert aupr_of(tally, "novel") == pytest.approx(aupr(*drawn, "novel"))
    assert fpr_at_tpr_of(tally, tpr) == pytest.approx(fpr_at_tpr(*drawn, tpr))


@given(known=outcomes(), novel=SCORES, seed=st.integers(0, 99))
def test_right_and_wrong_examples_are_drawn_as_one_group(known, novel, seed):
    scores, correct = known
    tally = tally_open_set(scores, novel, correct).resample(np.random.default_rng(seed))
    right, wrong, novels = drawn_from(tally)
    assert (len(right) + len(wrong), len(novels)) == (len(scores), len(novel))
    assert set(right) <= {score for score, flag in zip(scores, correct, strict=True) if flag}
    assert set(wrong) <= {score for score, flag in zip(scores, correct, strict=True) if not flag}
    flags = np.repeat([True, False], [len(right), len(wrong)])
    assert oscr_of(tally) == pytest.approx(oscr(np.append(right, wrong), novels, flags))


def test_only_groups_that_are_drawn_apart_keep_their_sizes():
    random = np.random.default_rng(0)
    open_set, selective = tally_open_set(KNOWN, NOVEL, CORRECT), tally_outcomes(KNOWN, CORRECT)
    mistakes = tally_mistakes(KNOWN, CORRECT)
    assert len({tuple(open_set.resample(random).sizes[:2]) for _ in range(20)}) > 5
    assert len({tuple(selective.resample(random).sizes) for _ in range(20)}) > 5
    assert len({tuple(mistakes.resample(random).sizes) for _ in range(20)}) == 1


@given(case=outcomes(), seed=st.integers(0, 99))
def test_resampled_outcomes_have_the_aurc_of_their_scores(case, seed):
    tally = tally_outcomes(*case).resample(np.random.default_rng(seed))
    right, wrong = drawn_from(tally)
    flags = np.repeat([True, False], [len(right), len(wrong)])
    assert aurc_of(tally) == pytest.approx(aurc(np.append(right, wrong), flags))


@pytest.mark.parametrize(("metric", "arrays", "options", "groups"), CASES.values(), ids=CASES)
def test_the_fast_way_and_the_plain_way_agree(metric, arrays, options, groups):
    fast = bootstrap(metric, *arrays, samples=400, **options)
    plain = bootstrap(partial(metric, **options), *arrays, groups=groups, samples=400, seed=1)
    assert fast.value == plain.value == metric(*arrays, **options)
    width = plain.high - plain.low
    assert fast.low == pytest.approx(plain.low, abs=width / 5)
    assert fast.high == pytest.approx(plain.high, abs=width / 5)


def test_every_metric_has_its_fast_way():
    assert {metric for metric, *_ in CASES.values()} == set(PLANS)


def test_intervals_hold_the_true_value_as_often_as_they_say():
    true, hits = 0.7602, 0  # of normal scores one standard deviation apart
    for seed in range(100):
        random = np.random.default_rng(seed)
        found = bootstrap(auroc, random.normal(size=60), random.normal(1, size=60), samples=200, confidence=0.9)
        hits += found.low <= true <= found.high
    assert 83 <= hits <= 97


def test_the_interval_of_an_accuracy_is_that_of_its_binomial():
    labels = np.zeros(400, dtype=int)
    predictions = np.where(np.arange(400) < 320, 0, -1)
    found = bootstrap(accuracy, labels, predictions, samples=2000)
    error = 1.96 * np.sqrt(0.8 * 0.2 / 400)
    assert found == pytest.approx((0.8, 0.8 - error, 0.8 + error), abs=error / 10)


def test_the_same_seed_gives_the_same_interval():
    assert bootstrap(auroc, KNOWN, NOVEL, samples=50, seed=3) == bootstrap(auroc, KNOWN, NOVEL, samples=50, seed=3)
    assert bootstrap(auroc, KNOWN, NOVEL, samples=50, seed=3) != bootstrap(auroc, KNOWN, NOVEL, samples=50, seed=4)


def test_more_confidence_needs_a_wider_interval():
    narrow, wide = (bootstrap(auroc, KNOWN, NOVEL, samples=200, confidence=share) for share in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high


def test_a_function_of_ones_own_is_resampled_too():
    found = bootstrap(np.median, KNOWN, samples=200)
    assert found.low <= found.value == np.median(KNOWN) <= found.high


def test_arrays_of_one_group_stay_together():
    twins = bootstrap(lambda a, b: float(np.abs(a - b).max()), KNOWN, KNOWN, groups=(0, 0), samples=20)
    assert twins == Interval(0.0, 0.0, 0.0)


def test_the_intervals_of_the_summary_are_those_of_its_metrics():
    values, found = (
        summary(KNOWN, NOVEL, CORRECT, tpr=0.8),
        summary_intervals(KNOWN, NOVEL, CORRECT, tpr=0.8, samples=50),
    )
    assert {name: each.value for name, each in found.items()} == values
    assert found["fpr_at_tpr"] == bootstrap(fpr_at_tpr, KNOWN, NOVEL, tpr=0.8, samples=50)
    assert found["oscr"] == bootstrap(oscr, KNOWN, NOVEL, CORRECT, samples=50)
    assert found["accuracy"] == bootstrap(np.mean, CORRECT, samples=50)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "samples must be a whole number of at least 1, got 0"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"confidence": 95}, "confidence must be above 0 and below 1, got 95; the usual one is 0.95"),
    ],
)
def test_impossible_settings_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        bootstrap(auroc, KNOWN, NOVEL, **options)


@pytest.mark.parametrize("groups", [None, (0,)])
def test_arrays_of_ones_own_metric_need_groups(groups):
    message = r"groups must have one number for each of 2 arrays, got .*\(0, 1\) for known and novel, \(0, 0\) for pred"
    with pytest.raises(OptionError, match=message):
        bootstrap(lambda a, b: 0.0, KNOWN, NOVEL, groups=groups)


def test_arrays_that_cannot_be_drawn_from_are_refused():
    with pytest.raises(ShapeError, match=r"equally many rows, got 150, 100 in the groups \(0, 0\)"):
        bootstrap(auroc, KNOWN, NOVEL, groups=(0, 0))
    with pytest.raises(ShapeError, match=r"arrays must have at least one row each, got the shapes \(0,\)"):
        bootstrap(np.mean, [])


@pytest.mark.parametrize("groups", [None, (0, 1, 0)])
def test_a_summary_is_sent_to_its_intervals(groups):
    message = r"^metric must return one number, but summary returned a dict; summary has summary_intervals, and of a"
    with pytest.raises(OptionError, match=message):
        bootstrap(summary, KNOWN, NOVEL, CORRECT, groups=groups)


@pytest.mark.parametrize(("metric", "got"), [(roc_curve, "roc_curve returned a RocCurve"), (np.divide, "divide ret")])
def test_a_metric_that_is_no_number_is_refused(metric, got):
    with pytest.raises(OptionError, match=f"^metric must return one number, but {got}.*take the area, such as auroc"):
        bootstrap(metric, KNOWN[:9], NOVEL[:9])


def test_a_tensor_of_one_number_is_a_number():
    found = bootstrap(lambda a: torch.tensor(a).mean(), KNOWN, samples=20)
    assert found.low < found.value < found.high


@pytest.mark.parametrize(
    ("arguments", "got"),
    [(("auroc", KNOWN, NOVEL), "'auroc'"), ((KNOWN, NOVEL, auroc), "an object of type ndarray")],
    ids=["name", "swapped"],
)
def test_what_is_no_function_is_no_metric(arguments, got):
    message = "metric must be a function and come first, as in bootstrap(metrics.auroc, known, novel), got " + got
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        bootstrap(*arguments)


def test_a_metric_without_arrays_is_refused():
    with pytest.raises(ShapeError, match=r"^arrays must have at least one row each, got no array$"):
        bootstrap(np.mean)


def test_a_missing_array_is_named():
    with pytest.raises(TypeError, match="missing a required argument: 'novel'"):
        bootstrap(auroc, KNOWN)
