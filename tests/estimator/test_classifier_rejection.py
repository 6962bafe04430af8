import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from torch import nn

from openradial.conformal import conformal_p_values
from openradial.errors import OptionError
from openradial.estimator import RadialClassifier
from openradial.training.outliers import DEFAULTS, make_outliers

OPEN = {"hidden": (16,), "max_epochs": 20, "learning_rate": 1e-2, "random_state": 0, "false_reject_rate": 0.1}


@pytest.fixture(scope="module")
def known():
    return make_blobs(600, n_features=4, centers=3, random_state=0)


@pytest.fixture(scope="module")
def novel():
    return make_blobs(50, n_features=4, centers=1, center_box=(-60, -50), random_state=1)[0]


@pytest.fixture(scope="module")
def fitted(known):
    X, y = known
    return RadialClassifier(**OPEN).fit(X[:300], y[:300])


def test_about_the_given_share_of_known_rows_is_rejected(fitted, known):
    share = (fitted.predict(known[0][300:]) == -1).mean()
    assert 0.0 < share < 0.25  # 39 calibration scores promise 0.1 on average; 3 deviations


def test_far_away_rows_are_unknown(fitted, novel):
    assert (fitted.predict(novel) == -1).all()


def test_a_row_is_rejected_where_its_p_value_is_at_most_the_rate(fitted, known):
    X = known[0][300:]
    p = fitted.classifier_.rejector.p_values(fitted.unknown_score(X))
    np.testing.assert_array_equal(fitted.predict(X) == -1, p <= 0.1)
    np.testing.assert_array_equal(fitted.predict(X, false_reject_rate=0.3) == -1, p <= 0.3)


def test_no_rate_in_predict_means_that_of_the_constructor(fitted, known):
    X = known[0][300:]
    np.testing.assert_array_equal(fitted.predict(X, false_reject_rate=None), fitted.predict(X, false_reject_rate=0.1))


def test_scorers_that_want_sums_of_one_warn_or_fail_while_rows_may_be_rejected(fitted, known):
    X, y = known
    probs = fitted.predict_proba(X)
    with pytest.warns(UserWarning, match="do not sum to one"):
        log_loss(y, probs)
    with pytest.raises(ValueError, match=r"should sum up to 1\.0"):
        roc_auc_score(y, probs, multi_class="ovr")


def test_rejection_lowers_the_score_of_known_rows(fitted, known):
    X, y = known
    without = copy.deepcopy(fitted).set_params(false_reject_rate=None)
    assert fitted.score(X, y) < without.score(X, y)


def test_rows_that_are_not_rejected_are_answered_as_before(fitted, known):
    X = known[0][300:]
    nearest, answers = fitted.decision_function(X).argmax(1), fitted.predict(X)
    np.testing.assert_array_equal(answers[answers >= 0], nearest[answers >= 0])


def test_a_larger_rate_rejects_more(fitted, known):
    rejected = [fitted.predict(known[0], false_reject_rate=rate) == -1 for rate in (0.05, 0.1, 0.5, 0.9)]
    assert all((more | ~less).all() for less, more in pairwise(rejected))


def test_the_calibration_is_that_of_rows_that_were_not_trained_on(known):
    X, y = known
    classifier = RadialClassifier(**OPEN, calibration_fraction=0.25).fit(X[:300], y[:300])
    combination = classifier.classifier_.combination
    for_scores = len(combination.columns) + len(combination.merged)
    assert for_scores == pytest.approx(25, abs=2)
    assert classifier.classifier_.rejector._calibration.fewest == 75 - for_scores
    assert classifier.scaler_.n_samples_seen_ == 225


def test_a_row_may_lack_probability(fitted, known, novel):
    near, far = fitted.predict_proba(known[0]).sum(1), fitted.predict_proba(novel).sum(1)
    assert (near <= 1 + 1e-9).all()
    assert far.max() < 0.01 < near.mean()


def test_the_winning_probability_is_the_radial_one(fitted, known):
    probs = fitted.predict_proba(known[0]).max(1)
    np.testing.assert_allclose(probs, np.exp(fitted.decision_function(known[0]).max(1)), rtol=1e-9)


@pytest.mark.parametrize(
    ("names", "unknown", "dtype"),
    [
        (["a", "b", "c"], "unknown", np.dtype("<U7")),
        (np.array(["a", "b", "c"], dtype=object), "unknown", np.dtype(object)),
        (np.array([4, 5, 6], dtype=np.uint8), -1, np.dtype(np.int64)),
        (np.array([4, 5, 6], dtype=np.int64), -1, np.dtype(np.int64)),
        ([4.0, 5.0, 6.0], -1.0, np.dtype(np.float64)),
    ],
    ids=["strings", "objects", "unsigned", "signed", "floats"],
)
def test_the_unknown_label_fits_the_labels(known, novel, names, unknown, dtype):
    X, y = known
    labels = np.asarray(names)[y]
    classifier = RadialClassifier(**OPEN | {"max_epochs": 3}).fit(X, labels)
    answers = classifier.predict(np.concatenate([X, novel]))
    assert answers.dtype == dtype
    assert (answers[len(X) :] == unknown).all()
    assert set(np.unique(answers)) == {*names, unknown}


def test_the_type_of_the_answer_does_not_depend_on_what_is_rejected(known, fitted):
    labels = np.array(["a", "b", "c"])[known[1]]
    classifier = RadialClassifier(**OPEN).fit(known[0], labels)
    sure = known[0][classifier.predict(known[0]) != "unknown"]
    assert classifier.predict(sure).dtype == np.dtype("<U7")


def test_a_rejected_row_is_right_if_its_label_says_unknown(fitted, known, novel):
    X = np.concatenate([known[0][300:], novel])
    y = np.concatenate([known[1][300:], np.full(len(novel), -1)])
    assert fitted.score(X, y) == accuracy_score(y, fitted.predict(X))
    assert fitted.score(novel, np.full(len(novel), -1)) == 1


def test_minus_one_is_a_class_as_any_other_where_nothing_is_rejected(known):
    X, y = known
    closed = RadialClassifier(**OPEN | {"false_reject_rate": None}).fit(X, y - 1)
    assert closed.score(X, y - 1) > 0.9


@pytest.mark.parametrize(("labels", "taken"), [([-1, 0, 1], "-1"), (["a", "b", "unknown"], "'unknown'")])
def test_a_class_that_is_called_unknown_is_refused_where_rows_may_be_rejected(known, labels, taken):
    message = (
        rf"^the label {taken} means unknown where rows may be rejected, but it is one of the classes; "
        r"rename that class, or set false_reject_rate=None$"
    )
    X, y = known[0], np.array(labels)[known[1]]
    with pytest.raises(OptionError, match=message):
        RadialClassifier(**OPEN).fit(X, y)
    closed = RadialClassifier(**OPEN | {"false_reject_rate": None, "max_epochs": 1}).fit(X, y)
    with pytest.raises(OptionError, match=message):
        closed.set_params(false_reject_rate=0.1).calibrate(X, y)


def test_new_data_can_calibrate(fitted, known):
    X, y = known
    classifier = RadialClassifier(**OPEN | {"false_reject_rate": None}).fit(X[:300], y[:300])
    classifier.set_params(false_reject_rate=0.1).calibrate(X[300:], y[300:])
    scores = torch.tensor(classifier.unknown_score(X[300:]))
    p = classifier.classifier_.rejector.p_values(scores)
    np.testing.assert_allclose(p, conformal_p_values(scores, scores), rtol=0)


def test_learning_on_takes_the_calibration_away_until_there_is_a_new_one(known):
    X, y = known
    classifier = RadialClassifier(**OPEN).fit(X[:300], y[:300]).partial_fit(X[:300], y[:300])
    with pytest.raises(OptionError, match="only after a calibration"):
        classifier.predict(X)
    assert -1 in classifier.calibrate(X[300:], y[300:]).predict(X)


def test_a_fitted_beta_is_as_confident_as_correct_with_and_without_outliers():
    X, y = make_blobs(1500, n_features=2, centers=3, cluster_std=3, random_state=0)
    closed = RadialClassifier(**OPEN | {"false_reject_rate": None}, beta="fit").fit(X, y)
    open_ = RadialClassifier(**OPEN, beta="fit").fit(X, y)
    assert closed.classifier_.rejector is None
    assert closed.beta_ != open_.beta_
    # on data of which a fifth was used to fit beta
    assert closed.predict_proba(X).max(1).mean() == pytest.approx(closed.score(X, y), abs=0.05)
    # where rows may be rejected, as many outliers are made from the rows, and no class is correct for them
    outliers = make_outliers(torch.tensor(X), torch.tensor(y), DEFAULTS["table"]).numpy()
    confident = np.concatenate([open_.predict_proba(rows).max(1) for rows in (X, outliers)]).mean()
    correct = (open_.decision_function(X).argmax(1) == y).sum() / (len(X) + len(outliers))
    assert confident == pytest.approx(correct, abs=0.05)


def test_learning_on_that_is_interrupted_takes_the_calibration_away_too(known):
    X, y = known
    module = FailsLater()
    classifier = RadialClassifier(**OPEN, module=module).fit(X, y)
    classifier.network_.fails = True
    with pytest.raises(RuntimeError, match="interrupted"):
        classifier.partial_fit(X, y)
    with pytest.raises(OptionError, match="only after a calibration"):
        classifier.predict(X)


class FailsLater(nn.Linear):
    """A network whose training can be made to fail."""

    def __init__(self):
        super().__init__(4, 3)
        self.fails = False

    def forward(self, x):
        if self.training and self.fails:
            raise RuntimeError("interrupted")
        return super().forward(x)
