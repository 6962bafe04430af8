import copy
from itertools import pairwise
from math import ceil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openradial.conformal import Rejector, conformal_p_values
from tests.conformal.digit_scores import digit_distances

TWENTY = torch.arange(1.0, 20.0)  # 19 scores: a rate of 1/20 is the smallest


def naive_decisions(calibration, scores, labels, rate):
    """Reject above the ceil((n + 1)(1 - rate))-th smallest calibration score."""
    threshold = sorted(calibration)[ceil((len(calibration) + 1) * (1 - rate) - 1e-9) - 1]
    return [label if score <= threshold else -1 for score, label in zip(scores, labels, strict=True)]


@given(
    scores=st.lists(st.integers(0, 12).map(float), max_size=20),
    calibration=st.lists(st.integers(0, 12).map(float), min_size=19, max_size=60),
    rate=st.sampled_from([0.05, 0.1, 0.25, 0.5]),
)
def test_decisions_are_those_of_the_hand_formula(scores, calibration, rate):
    labels = list(range(len(scores)))
    decided = Rejector(rate).fit(calibration).decide(scores, labels)
    assert decided.tolist() == naive_decisions(calibration, scores, labels, rate)


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.1])
def test_real_scores_are_decided_by_the_hand_formula_too(rate):
    distances, _ = digit_distances()
    scores, labels = distances.min(1), distances.argmin(1)
    decided = Rejector(rate).fit(scores[:500]).decide(scores[500:], labels[500:])
    assert decided.tolist() == naive_decisions(scores[:500], scores[500:], labels[500:], rate)
    assert -1 in decided


def test_p_values_are_conformal_p_values():
    scores = torch.tensor([0.0, 5.0, 5.5, 30.0, torch.nan])
    p = Rejector(0.1).fit(TWENTY).p_values(scores)
    assert torch.equal(p, conformal_p_values(TWENTY, scores))


def test_a_tensor_gives_a_tensor_and_all_else_numpy():
    rejector = Rejector(0.1).fit(TWENTY)
    for scores in ([2.0, 19.0], (2, 19), np.array([2, 19], dtype=np.float32), np.array([2, 19])):
        decided = rejector.decide(scores, torch.tensor([4, 7]))
        assert isinstance(decided, np.ndarray)
        assert decided.tolist() == [4, -1]
        assert isinstance(rejector.p_values(scores), np.ndarray)
        assert isinstance(rejector.rejects(scores), np.ndarray)
    for kind in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32):
        scores = torch.tensor([2, 19], dtype=kind)
        decided = rejector.decide(scores, [4, 7])
        assert isinstance(decided, torch.Tensor)
        assert decided.tolist() == [4, -1]
        assert rejector.rejects(scores).tolist() == [False, True]


def test_labels_without_a_sign_can_still_become_unknown():
    rejector = Rejector(0.1).fit(TWENTY)
    assert rejector.decide([1.0, 99.0], np.array([200, 7], dtype=np.uint8)).tolist() == [200, -1]
    assert rejector.decide([1.0, 99.0], torch.tensor([200, 7], dtype=torch.uint8)).tolist() == [200, -1]


@pytest.mark.parametrize("labels", [["ox", "an"], np.array(["ox", "an"]), np.array(["ox", "an"], dtype=object)])
def test_names_become_the_word_unknown_in_full(labels):
    rejector = Rejector(0.1).fit(TWENTY)
    assert rejector.decide([1.0, 99.0], labels).tolist() == ["ox", "unknown"]
    assert rejector.decide(torch.tensor([1.0, 99.0]), labels).tolist() == ["ox", "unknown"]


def test_what_is_unknown_already_stays_unknown():
    rejector = Rejector(0.1).fit(TWENTY)
    assert rejector.decide([1.0, 1.0], [-1, 3]).tolist() == [-1, 3]
    assert rejector.decide([1.0, 1.0], ["unknown", "ox"]).tolist() == ["unknown", "ox"]


@pytest.mark.parametrize("per_class", [False, True])
def test_bad_rows_are_unknown_at_every_rate_and_leave_the_others_alone(per_class):
    rejector = Rejector(0.1, per_class=per_class).fit(TWENTY, [0] * 19)
    scores = [torch.nan, torch.inf, -torch.inf, 3.0]
    for rate in (0.05, 0.1, 0.9):
        assert rejector.decide(scores, [0] * 4, rate).tolist() == [-1, -1, 0, 0 if rate < 0.9 else -1]
    assert rejector.p_values(scores, [0] * 4).tolist() == [0.05, 0.05, 1.0, 0.9]


@pytest.mark.parametrize("per_class", [False, True])
def test_a_decision_never_depends_on_its_batch(per_class):
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 300)
    rejector = Rejector(0.1, per_class).fit(random.normal(size=300), labels)
    scores = random.normal(size=50)
    whole = rejector.decide(scores, labels[:50])
    alone = [rejector.decide(scores[i : i + 1], labels[i : i + 1]).item() for i in range(50)]
    assert whole.tolist() == alone
    assert rejector.p_values(scores, labels[:50]).tolist() == [
        rejector.p_values(scores[i : i + 1], labels[i : i + 1]).item() for i in range(50)
    ]


@pytest.mark.parametrize("per_class", [False, True])
def test_an_empty_batch_gives_an_empty_answer(per_class):
    rejector = Rejector(0.1, per_class).fit(TWENTY, ["ox"] * 19)
    assert rejector.decide([], []).shape == (0,)
    assert rejector.decide(torch.zeros(0), torch.zeros(0, dtype=torch.long)).shape == (0,)
    assert rejector.p_values([], []).shape == (0,)


def test_another_rate_decides_as_a_rejector_fitted_for_it():
    scores, labels = torch.linspace(0, 25, 40), torch.arange(40)
    rejector = Rejector(0.1).fit(TWENTY)
    for rate in (0.05, 0.2, 0.5):
        other = Rejector(rate).fit(TWENTY)
        assert torch.equal(rejector.decide(scores, labels, false_reject_rate=rate), other.decide(scores, labels))
        assert rejector.threshold(rate) == other.threshold()
    assert rejector.false_reject_rate == 0.1
    assert rejector.threshold() == 18.0


def test_a_larger_rate_rejects_all_that_a_smaller_one_rejects():
    distances, _ = digit_distances()
    rejector = Rejector().fit(distances.min(1)[:400])
    rejected = [rejector.rejects(distances.min(1)[400:], None, rate) for rate in (0.01, 0.02, 0.05, 0.1, 0.3, 0.9)]
    for less, more in pairwise(rejected):
        assert (less <= more).all()


def test_per_class_each_label_is_compared_with_its_own_scores():
    calibration = torch.cat([TWENTY, 100 * TWENTY])
    labels = torch.tensor([3] * 19 + [8] * 19)
    rejector = Rejector(0.1, per_class=True).fit(calibration, labels)
    assert rejector.classes == (3, 8)
    assert rejector.thresholds() == {3: 18.0, 8: 1800.0}
    assert rejector.thresholds(0.05) == {3: 19.0, 8: 1900.0}
    scores, asked = torch.tensor([19.0, 19.0, 1850.0, 1.0]), torch.tensor([3, 8, 8, -1])
    assert rejector.decide(scores, asked).tolist() == [-1, 8, -1, -1]
    expected = [conformal_p_values(TWENTY, scores[0]), conformal_p_values(100 * TWENTY, scores[1])]
    assert rejector.p_values(scores, asked)[:2].tolist() == torch.stack(expected).tolist()
    assert rejector.p_values(scores, asked)[3] == 0
    assert rejector.rejects(scores, asked).tolist() == [True, False, True, True]


def test_per_class_names_may_come_in_any_order():
    scores, labels = [*TWENTY.tolist(), *(10 * TWENTY).tolist()], ["ox"] * 19 + ["antelope"] * 19
    order = np.random.default_rng(0).permutation(38)
    rejector = Rejector(0.1, per_class=True).fit(np.array(scores)[order], np.array(labels)[order])
    assert rejector.thresholds() == {"antelope": 180.0, "ox": 18.0}
    assert rejector.decide([19.0, 19.0, 1.0], ["antelope", "ox", "unknown"]).tolist() == [
        "antelope",
        "unknown",
        "unknown",
    ]


def test_labels_change_nothing_where_all_classes_are_together():
    one, other = Rejector(0.1).fit(TWENTY), Rejector(0.1).fit(TWENTY, [0] * 19)
    assert one.classes is None
    assert one.to_dict() == other.to_dict()


def test_the_order_of_the_calibration_does_not_matter():
    shuffled = TWENTY[torch.randperm(19, generator=torch.Generator().manual_seed(0))]
    assert Rejector(0.1).fit(TWENTY).to_dict() == Rejector(0.1).fit(shuffled).to_dict()


def test_what_was_given_is_not_changed_and_not_looked_at_again():
    scores = TWENTY.clone()
    rejector = Rejector(0.1).fit(scores)
    assert torch.equal(scores, TWENTY)
    scores.zero_()
    labels = torch.tensor([5, 6])
    rejector.decide(torch.tensor([1.0, 99.0]), labels)
    assert labels.tolist() == [5, 6]
    assert rejector.threshold() == 18.0


def test_fitting_again_forgets_and_a_failed_fit_changes_nothing():
    rejector = Rejector(0.1).fit(TWENTY)
    rejector.fit(2 * TWENTY)
    assert rejector.threshold() == 36.0
    with pytest.raises(ValueError, match="finite"):
        rejector.fit([1.0, np.nan])
    assert rejector.threshold() == 36.0


def test_a_rejector_can_be_copied_and_printed():
    rejector = Rejector(0.1, per_class=True)
    assert repr(rejector) == "Rejector(false_reject_rate=0.1, per_class=True)"
    assert not rejector.is_fitted
    copied = copy.deepcopy(rejector.fit(TWENTY, [2] * 19))
    assert copied.is_fitted
    assert copied.thresholds() == {2: 18.0}


@pytest.mark.parametrize(("per_class", "kept"), [(False, 200), (True, 500)])
def test_more_scores_than_are_kept_reject_no_more_than_all_of_them(per_class, kept, monkeypatch):
    random = np.random.default_rng(0)
    scores, labels = random.normal(size=5_000), random.integers(0, 10, 5_000)
    whole = Rejector(0.05, per_class).fit(scores, labels)
    monkeypatch.setattr("openradial.conformal.calibration.KEEP", 200)
    monkeypatch.setattr("openradial.conformal.calibration.KEEP_PER_CLASS", 50)
    thinned = Rejector(0.05, per_class).fit(scores, labels)
    assert sum(len(group["scores"]) for group in thinned.to_dict()["groups"]) <= kept
    assert (thinned.p_values(scores, labels) >= whole.p_values(scores, labels)).all()
    for rate in (0.01, 0.05, 0.1, 0.5):
        fewer, all_of_them = (rejector.rejects(scores, labels, rate) for rejector in (thinned, whole))
        assert (fewer <= all_of_them).all()
        assert fewer.sum() >= 0.9 * all_of_them.sum()
