"""Rejection in closed form: every row trains and calibrates, each without its fold."""

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs

from openradial.errors import OptionError
from openradial.estimator import RadialClassifier
from openradial.fitting import preparation

OPEN = {"method": "closed-form", "random_features": 60, "random_state": 0, "false_reject_rate": 0.1}


@pytest.fixture(scope="module")
def known():
    return make_blobs(1500, n_features=6, centers=4, cluster_std=3.0, random_state=0)


def calibration_scores(classifier):
    return classifier.classifier_.rejector._calibration.fewest


def rejected(classifier, X, label=-1):
    return (classifier.predict(X) == label).mean()


def test_every_row_trains_and_calibrates(known):
    X, y = known
    classifier = RadialClassifier(**OPEN).fit(X[:300], y[:300])
    assert classifier.head_.counts.sum() == 300
    assert calibration_scores(classifier) == 300
    assert classifier.classifier_.combination is not None
    far = np.random.default_rng(0).normal(size=(200, 6)) * 60
    assert rejected(classifier, far) > 0.9
    assert rejected(classifier.set_params(false_reject_rate=0.3), far) >= rejected(classifier, X[300:]) > 0.15


def test_new_known_rows_are_rejected_as_often_as_asked(known):
    X, y = known
    shares = []
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(1500)
        classifier = RadialClassifier(**OPEN | {"random_state": seed}).fit(X[order[:400]], y[order[:400]])
        shares.append(rejected(classifier, X[order[400:]]))
    # 5 calibrations on 400 rows each: the standard deviation of the mean is sqrt(0.1 * 0.9 / 2000) = 0.007
    assert np.mean(shares) == pytest.approx(0.1, abs=0.03)


@pytest.mark.parametrize("given", ["copies", "groups"])
def test_copies_and_groups_are_not_separated_by_folds(known, given):
    X, y = known
    rng = np.random.default_rng(0)
    rows, labels = X[:300].repeat(3, 0), y[:300].repeat(3)
    groups = None
    if given == "groups":
        rows = rows + 0.01 * rng.normal(size=rows.shape)
        groups = np.arange(300).repeat(3)
    shares = [rejected(RadialClassifier(**OPEN).fit(rows, labels, groups=groups), X[300:])]
    assert shares[0] == pytest.approx(0.1, abs=0.06)  # 300 different rows
    if given == "groups":  # near copies in other folds look better known than new rows
        shares.append(rejected(RadialClassifier(**OPEN).fit(rows, labels), X[300:]))
        assert shares[1] > 2 * shares[0]


def test_a_part_can_be_held_out_instead(known, monkeypatch):
    X, y = known
    split = RadialClassifier(**OPEN, calibration="split", beta="fit").fit(X[:500], y[:500])
    assert split.head_.counts.sum() == pytest.approx(400, abs=2)
    assert calibration_scores(split) == pytest.approx(67, abs=2)  # a third combines
    assert split.classifier_.combination is not None
    assert rejected(split, X[500:]) == pytest.approx(0.1, abs=0.08)
    monkeypatch.setattr(preparation, "MOST_CROSS", 499)
    auto = RadialClassifier(**OPEN, beta="fit").fit(X[:500], y[:500])
    np.testing.assert_array_equal(auto.unknown_score(X), split.unknown_score(X))
    assert auto.beta_ == split.beta_
    cross = RadialClassifier(**OPEN, calibration="cross", beta="fit").fit(X[:500], y[:500])
    assert calibration_scores(cross) == 500
    assert cross.beta_ != split.beta_


def test_a_held_out_part_fits_beta_where_nothing_is_rejected(known):
    X, y = known
    options = OPEN | {"false_reject_rate": None, "beta": "fit"}
    betas = [RadialClassifier(**options, calibration=how).fit(X, y).beta_ for how in ("split", "cross")]
    assert betas[0] == pytest.approx(betas[1], rel=0.5)  # of 300 and of 1,500 rows
    assert betas[0] != betas[1]


def test_a_calibration_does_not_outlive_more_rows(known):
    X, y = known
    classifier = RadialClassifier(**OPEN).fit(X[:300], y[:300]).partial_fit(X[300:400], y[300:400])
    assert classifier.classifier_.rejector is None
    with pytest.raises(OptionError, match=r"^rows can be rejected only after a calibration"):
        classifier.predict(X)
    classifier.calibrate(X[400:800], y[400:800])
    scorer = classifier.classifier_.layer_scorers()[-1][1]
    assert scorer.references.shape == (400, 6)
    assert scorer.references.dtype == torch.float64
    assert classifier.head_.counts.sum() == 400  # the head stays
    assert rejected(classifier, X[800:]) == pytest.approx(0.1, abs=0.06)


def test_parts_alone_can_be_calibrated(known):
    X, y = known
    classifier = RadialClassifier(**OPEN, beta="fit")
    for start in (0, 150):
        classifier.partial_fit(X[start : start + 150], y[start : start + 150], classes=range(4))
    safe = classifier.beta_
    classifier.calibrate(X[300:800], y[300:800])
    assert classifier.beta_ != safe
    assert rejected(classifier, X[800:]) == pytest.approx(0.1, abs=0.06)
    without = classifier.set_params(neighbours=False).calibrate(X[300:800], y[300:800])
    assert without.classifier_.combination is None
    assert calibration_scores(without) == 500


def test_few_rows_use_the_distance_to_the_prototypes_alone(known):
    X, y = known
    classifier = RadialClassifier(**OPEN | {"false_reject_rate": 0.2}).fit(X[:18], y[:18])
    assert classifier.classifier_.combination is None
    distances = -classifier.decision_function(X).max(1) / classifier.beta_
    np.testing.assert_allclose(classifier.unknown_score(X), distances, rtol=1e-9)


def test_strings_have_an_unknown_label(known):
    X, y = known
    names = np.array(["ant", "bee", "cat", "dog"])[y]
    classifier = RadialClassifier(**OPEN).fit(X[:300], names[:300])
    assert set(classifier.predict(X * 10)) - set(names) == {"unknown"}
