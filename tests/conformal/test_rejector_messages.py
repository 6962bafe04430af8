"""Each thing that can be given wrongly, and the sentence that says so."""

import re
from functools import partial

import numpy as np
import pytest
import torch

from openradial.conformal import PredictionSets, Rejector, false_reject_report, fit_beta, operating_point
from openradial.errors import DTypeError, HeadError, OptionError, ShapeError, TargetError

SCORES = list(range(99))
FITTED = Rejector().fit(SCORES)
PER_CLASS = Rejector(per_class=True).fit(SCORES, [0] * 50 + [4] * 49)
NAMED = Rejector(per_class=True).fit(SCORES, ["ox"] * 50 + ["ram"] * 49)
DISTANCES = np.arange(99.0)[:, None] * [1.0, 2.0]
SETS = PredictionSets().fit(DISTANCES, [0, 1] * 49 + [0])


def refused(error, message, call):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        call()


@pytest.mark.parametrize("rate", [0, 1, 0.0, 1.0, -0.1, 5, "0.05", None, True, float("nan")])
def test_a_rate_outside_0_and_1_is_refused(rate):
    message = f"must be a number above 0 and below 1, got {rate!r}; 0.05 means 5 %"
    refused(OptionError, f"false_reject_rate {message}", lambda: Rejector(rate))
    refused(OptionError, f"error_rate {message}", lambda: PredictionSets(rate))
    refused(OptionError, f"max_risk {message}", lambda: operating_point([0.1], [True], rate))
    sure = message.replace("0.05 means 5 %", "0.95 means 95 %")
    refused(OptionError, f"confidence {sure}", lambda: false_reject_report([1.0], FITTED, confidence=rate))
    if rate is not None:
        refused(OptionError, f"false_reject_rate {message}", lambda: FITTED.decide([1.0], [0], rate))
        refused(OptionError, f"false_reject_rate {message}", lambda: FITTED.threshold(rate))
        refused(OptionError, f"error_rate {message}", lambda: SETS.sets([[1.0, 1.0]], rate))
        refused(OptionError, f"confidence {sure}", lambda: operating_point([0.1], [True], confidence=rate))


def test_a_setting_that_is_no_choice_is_refused():
    refused(OptionError, "per_class must be True or False, got 'yes'", lambda: Rejector(per_class="yes"))


@pytest.mark.parametrize(
    "call",
    [
        lambda: Rejector().decide([1.0], [0]),
        lambda: Rejector().p_values([1.0]),
        lambda: Rejector().rejects([1.0]),
        lambda: Rejector().threshold(),
        lambda: Rejector(per_class=True).thresholds(),
        lambda: Rejector().to_dict(),
        lambda: Rejector().tensors(),
        lambda: false_reject_report([1.0], Rejector()),
    ],
)
def test_an_unfitted_rejector_says_what_to_call(call):
    refused(HeadError, "Rejector must be fitted first: call fit(scores, labels) with held-out known data", call)


def test_unfitted_sets_say_what_to_call():
    message = "PredictionSets must be fitted first: call fit(distances, labels) with held-out known data"
    for call in (lambda: PredictionSets().sets([[1.0]]), lambda: PredictionSets().p_values([[1.0]])):
        refused(HeadError, message, call)


def test_nothing_to_calibrate_with_is_refused():
    message = "must hold at least one example to calibrate with, got none"
    refused(ShapeError, f"scores {message}", lambda: Rejector().fit([]))
    message = "labels must be a list of at least one label, got shape (0,)"
    for fit in (PredictionSets().fit, fit_beta):
        refused(ShapeError, message, partial(fit, np.zeros((0, 2)), []))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_cannot_be_calibrated_with(bad):
    ending = (
        "must be finite to calibrate with, got nan or infinity in 1 rows, the first is row 1; "
        "use a score without a cut-off, such as the distance"
    )
    refused(ShapeError, f"scores {ending}", lambda: Rejector().fit([1.0, bad, 2.0]))
    distances = [[1.0, 2.0], [bad, 2.0]]
    refused(ShapeError, f"distances to the true class {ending}", lambda: PredictionSets().fit(distances, [0, 0]))


def test_a_bad_distance_cannot_fit_beta():
    with pytest.raises(ShapeError, match="distances to the nearest class must be finite to calibrate with, got nan"):
        fit_beta([[1.0, 2.0], [np.nan, 2.0]], [0, 0])


def test_scores_of_the_wrong_shape_or_kind_are_refused():
    shape = "scores must have the shape (b,), one per example, got "
    refused(ShapeError, f"{shape}(1, 1)", lambda: Rejector().fit([[1.0]]))
    refused(ShapeError, f"{shape}()", lambda: FITTED.decide(1.0, [0]))
    refused(ShapeError, f"{shape}(2, 1)", lambda: FITTED.p_values(torch.zeros(2, 1)))
    refused(DTypeError, "scores must be real numbers, got bool", lambda: FITTED.p_values([True]))
    refused(DTypeError, "scores must be real numbers, got complex64", lambda: FITTED.p_values(torch.zeros(1) * 1j))
    refused(DTypeError, "scores must be real numbers, got <U1", lambda: Rejector().fit(["a"]))
    uneven = "scores must be an array, got lists of different lengths"
    refused(ShapeError, uneven, lambda: Rejector().fit([[1.0], [1.0, 2.0]]))


def test_labels_of_the_wrong_shape_or_kind_are_refused():
    shape = "labels must have the shape (2,), one per score, got "
    refused(ShapeError, f"{shape}(1,)", lambda: FITTED.decide([1.0, 2.0], [0]))
    refused(ShapeError, f"{shape}(2, 1)", lambda: Rejector().fit([1.0, 2.0], [[0], [1]]))
    kind = "labels must be whole numbers or strings, got {}; convert them with .astype(int)"
    number = "labels must be whole numbers or strings, got float32; class 3 is 3 and not 3.0"
    refused(DTypeError, number, lambda: FITTED.decide([1.0], torch.tensor([3.0])))
    refused(DTypeError, kind.format("bool"), lambda: FITTED.decide([1.0], [True]))
    refused(DTypeError, kind.format("object"), lambda: FITTED.decide([1.0, 2.0], np.array(["a", 3], dtype=object)))


def test_unknown_examples_cannot_be_calibrated_with():
    message = (
        "labels must be known classes to calibrate with, got {} in row 1: "
        "the rate is guaranteed for known data, so remove the unknown rows"
    )
    for per_class in (False, True):
        rejector = Rejector(per_class=per_class)
        refused(TargetError, message.format("-1"), lambda rejector=rejector: rejector.fit([1.0, 2.0], [0, -1]))
        refused(
            TargetError,
            message.format("'unknown'"),
            lambda rejector=rejector: rejector.fit([1.0, 2.0], ["ox", "unknown"]),
        )


def test_per_class_labels_are_needed():
    refused(
        OptionError,
        "per_class=True needs the class of each score: call fit(scores, labels)",
        lambda: Rejector(per_class=True).fit(SCORES),
    )
    message = "per_class=True needs the predicted class of each score: give labels too"
    for call in (lambda: PER_CLASS.p_values([1.0]), lambda: PER_CLASS.rejects([1.0])):
        refused(OptionError, message, call)


def test_a_class_that_was_not_calibrated_is_named():
    ending = "; fit with examples of every class, or use per_class=False"
    start = "labels must be classes that were calibrated, got "
    refused(TargetError, f"{start}1, 7{ending}", lambda: PER_CLASS.decide([1.0] * 4, [7, 0, 1, -1]))
    refused(TargetError, f"{start}'cat', 'zebu'{ending}", lambda: NAMED.p_values([1.0] * 3, ["zebu", "cat", "ox"]))


def test_names_and_numbers_are_not_mixed_up():
    message = "labels must be {} as they were in fit, got {}"
    refused(DTypeError, message.format("names", "whole numbers"), lambda: NAMED.decide([1.0], [3]))
    refused(DTypeError, message.format("whole numbers", "names"), lambda: PER_CLASS.decide([1.0], ["ox"]))


def test_too_few_examples_say_how_many_are_needed():
    start = "a rate of 0.05 needs at least 19 calibration scores"
    middle = ": fewer can reject nothing at that rate; give more or ask for a rate of at least"
    refused(OptionError, f"{start}, got 18{middle} 1/19", lambda: Rejector(0.05).fit(SCORES[:18]))
    assert Rejector(0.05).fit(SCORES[:19]).threshold() == 18
    assert Rejector(1 / 19).fit(SCORES[:18]).threshold() == 17
    smaller = "a rate of 0.001 needs at least 999 calibration scores, got 99"
    for call in (lambda: FITTED.threshold(0.001), lambda: FITTED.decide([1.0], [0], false_reject_rate=0.001)):
        refused(OptionError, f"{smaller}{middle} 1/100", call)


@pytest.mark.parametrize("rate", [1e-2 * (1 - 1e-15), 1e-9, 1e-300, 5e-324])
def test_rates_below_one_in_n_plus_one_are_refused_at_once_wherever_a_rate_is_used(rate):
    calls = [
        lambda: Rejector(rate).fit(SCORES),
        lambda: FITTED.threshold(rate),
        lambda: FITTED.decide([1.0], [0], rate),
        lambda: FITTED.rejects([1.0], false_reject_rate=rate),
        lambda: false_reject_report([1.0], FITTED, false_reject_rate=rate),
        lambda: Rejector(rate, per_class=True).fit(SCORES, [0] * 99),
        lambda: PER_CLASS.thresholds(rate),
        lambda: PER_CLASS.decide([1.0], [4], rate),
        lambda: PredictionSets(rate).fit(DISTANCES, [0] * 99),
        lambda: SETS.sets([[1.0, 1.0]], rate),
    ]
    for call in calls:
        with pytest.raises(OptionError, match="fewer can reject nothing at that rate; give more or ask for"):
            call()
    operating_point([0.1, 0.2], [True, False], max_risk=rate)
    operating_point([0.1, 0.2], [True, False], max_risk=rate, confidence=0.9)


def test_per_class_the_smallest_class_limits_the_rate():
    assert PER_CLASS.thresholds(1 / 50)[4] == 98
    with pytest.raises(OptionError, match=r"got 49 for class 4: .* at least 1/50 or use per_class=False"):
        PER_CLASS.decide([1.0], [0], 1 / 51)


def test_too_few_examples_of_a_class_name_the_class():
    start = "a rate of 0.05 needs at least 19 calibration scores in each class, got "
    end = ": fewer can reject nothing at that rate; give more or ask for a rate of at least 1/10 or use per_class=False"
    labels = [0] * 60 + [3] * 9 + [5] * 12 + [6] * 18
    rejector = Rejector(0.05, per_class=True)
    refused(
        OptionError,
        f"{start}9 for class 3, 12 for class 5, 18 for class 6{end}",
        lambda: rejector.fit(SCORES, labels),
    )
    names = ["ox"] * 90 + ["ram"] * 9
    refused(OptionError, f"{start}9 for class 'ram'{end}", lambda: rejector.fit(SCORES, names))
    with pytest.raises(OptionError, match=r"got 1 for class 0, .*, 1 for class 4 and 94 more: "):
        rejector.fit(SCORES, range(99))


def test_a_class_without_any_example_has_no_set():
    message = (
        "a rate of 0.05 needs at least 19 calibration scores in each class, got 0 for class 1: "
        "fewer can reject nothing at that rate; give more or use per_class=False"
    )
    refused(OptionError, message, lambda: PredictionSets(per_class=True).fit(DISTANCES, [0] * 99))


def test_one_threshold_or_one_for_each_class():
    refused(
        OptionError,
        "there is one threshold for each class: use thresholds() where per_class=True",
        lambda: PER_CLASS.threshold(),
    )
    refused(
        OptionError,
        "there is one threshold for all classes: use threshold() where per_class=False",
        lambda: FITTED.thresholds(),
    )


def test_distances_of_the_wrong_shape_are_refused():
    message = "distances must have the shape (b, {}), one per class, got {}"
    refused(ShapeError, message.format("k", "(2,)"), lambda: PredictionSets().fit([1.0, 2.0], [0, 0]))
    refused(ShapeError, message.format("k", "(1, 0)"), lambda: PredictionSets().fit(np.zeros((1, 0)), [0]))
    refused(ShapeError, message.format(2, "(1, 3)"), lambda: SETS.sets([[1.0, 2.0, 3.0]]))
    refused(ShapeError, message.format(2, "(2,)"), lambda: SETS.p_values([1.0, 2.0]))
    refused(ShapeError, message.format("k", "(2,)"), lambda: fit_beta([1.0, 2.0], [0, 0]))


@pytest.mark.parametrize("fit", [PredictionSets().fit, fit_beta])
def test_true_classes_must_be_columns_of_the_distances(fit):
    message = "labels must be classes from 0 to 1, all of them known, got {} in row 1"
    refused(TargetError, message.format(2), lambda: fit(DISTANCES[:2], [0, 2]))
    refused(TargetError, message.format(-1), lambda: fit(DISTANCES[:2], [0, -1]))
    indices = "[classes.index(name) if name in classes else -1 for name in labels]"
    strings = f"labels must be whole numbers, got names; use their indices: {indices}"
    refused(DTypeError, strings, lambda: fit(DISTANCES[:2], ["ox", "ram"]))


def test_a_rate_cannot_be_measured_on_nothing():
    message = "scores must hold at least one known example to measure a rate, got none"
    refused(ShapeError, message, lambda: false_reject_report([], FITTED))


@pytest.mark.parametrize(
    ("distances", "y", "counts", "best"),
    [
        ([[0.1, 1.0], [0.2, 1.0]], [0, 0], "2 right and 0 wrong", "0"),
        ([[0.1, 1.0], [0.2, 1.0]], [1, 1], "0 right and 2 wrong", "infinite"),
        ([[0.0, 1.0], [0.2, 1.0]], [0, 1], "1 right and 1 wrong", "infinite"),
    ],
)
def test_beta_needs_right_and_wrong_predictions(distances, y, counts, best):
    message = (
        "distances must be of both right predictions (not all on their prototypes) and wrong ones, "
        f"got {counts}: the best beta would be {best}; give more held-out data, or choose beta yourself, "
        "for instance by functional.safe_beta"
    )
    refused(ShapeError, message, lambda: fit_beta(distances, y))


def test_settings_of_the_fit_of_beta_are_checked():
    with pytest.raises(OptionError, match="before must be a finite number above 0, got 0"):
        fit_beta(DISTANCES, [0] * 99, before=0)
    with pytest.raises(OptionError, match="bins must be a whole number of at least 1, got 0"):
        fit_beta(DISTANCES, [0] * 99, bins=0)
