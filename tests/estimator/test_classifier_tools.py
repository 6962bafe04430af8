import pickle

import joblib
import numpy as np
import pytest
from rounding import tolerance
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_blobs
from sklearn.decomposition import PCA
from sklearn.ensemble import VotingClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from torch import nn

from openradial.estimator import RadialClassifier

QUICK = {"hidden": (16,), "max_epochs": 15, "learning_rate": 1e-2, "random_state": 0, "false_reject_rate": None}


@pytest.fixture(scope="module")
def blobs():
    X, y = make_blobs(150, n_features=4, centers=3, cluster_std=2.5, random_state=0)
    return X, np.array(["a", "b", "c"])[y]


def linear(num_features, num_classes):
    return nn.Linear(num_features, num_classes)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function", "score"])
def test_a_pipeline_passes_the_methods_on(blobs, method):
    X, y = blobs
    pipeline = make_pipeline(PCA(3), RadialClassifier(**QUICK)).fit(X, y)
    alone = RadialClassifier(**QUICK).fit(pipeline[0].transform(X), y)
    labels = (y,) if method == "score" else ()
    rows = pipeline[0].transform(X)
    close = tolerance(45 * 64)  # PCA may compute its rows in two ways; 45 steps with sums over 64 rows follow
    passed, expected = getattr(pipeline, method)(X, *labels), getattr(alone, method)(rows, *labels)
    if method == "predict":
        np.testing.assert_array_equal(passed, expected)
    else:
        np.testing.assert_allclose(passed, expected, **close)


def test_a_pipeline_takes_a_rate_for_its_last_step(blobs):
    pipeline = make_pipeline(PCA(3), RadialClassifier(**QUICK | {"false_reject_rate": 0.1})).fit(*blobs)
    rejected = [(pipeline.predict(blobs[0], false_reject_rate=rate) == "unknown").sum() for rate in (0.05, 0.6)]
    assert rejected[0] < rejected[1]


def test_a_search_finds_the_better_network(blobs):
    grid = {"max_epochs": np.array([1, 15]), "hidden": [(16,), (8, 8)], "learning_rate": [np.float64(1e-2)]}
    search = GridSearchCV(RadialClassifier(**QUICK), grid, cv=2).fit(*blobs)
    assert search.best_params_["max_epochs"] == 15
    assert search.best_estimator_.network_ is not None
    assert search.score(*blobs) > 0.8


def test_every_row_is_predicted_by_a_network_that_has_not_seen_it(blobs):
    probs = cross_val_predict(RadialClassifier(**QUICK), *blobs, cv=3, method="predict_proba")
    answers = cross_val_predict(RadialClassifier(**QUICK), *blobs, cv=3)
    np.testing.assert_array_equal(np.array(["a", "b", "c"])[probs.argmax(1)], answers)
    assert (answers == blobs[1]).mean() == pytest.approx(
        cross_val_score(RadialClassifier(**QUICK), *blobs, cv=3).mean(), abs=0.01
    )


def test_rejection_works_under_cross_validation(blobs):
    answers = cross_val_predict(RadialClassifier(**QUICK | {"false_reject_rate": 0.1}), *blobs, cv=3)
    assert set(answers) == {"a", "b", "c", "unknown"}


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_a_fitted_beta_is_near_a_calibration_by_scikit_learn(method):
    X, y = make_blobs(600, n_features=2, centers=3, cluster_std=2.5, random_state=0)
    fitted = RadialClassifier(**QUICK, beta="fit").fit(X[:300], y[:300])
    calibrated = CalibratedClassifierCV(RadialClassifier(**QUICK), method=method, cv=2).fit(X[:300], y[:300])
    assert log_loss(y[300:], fitted.predict_proba(X[300:])) < log_loss(y[300:], calibrated.predict_proba(X[300:])) + 0.1


def test_several_classifiers_vote(blobs):
    members = [(f"seed {seed}", RadialClassifier(**QUICK | {"random_state": seed})) for seed in range(2)]
    assert VotingClassifier(members, voting="soft").fit(*blobs).score(*blobs) > 0.8


@pytest.mark.parametrize("module", [None, linear, nn.Linear(4, 3)], ids=["hidden", "function", "network"])
def test_a_clone_has_the_options_and_nothing_learnt(blobs, module):
    classifier = RadialClassifier(**QUICK, module=module).fit(*blobs)
    copy = clone(classifier)
    assert not hasattr(copy, "network_")
    if not isinstance(module, nn.Module):
        assert copy.get_params() == classifier.get_params()
    np.testing.assert_array_equal(copy.fit(*blobs).predict_proba(blobs[0]), classifier.predict_proba(blobs[0]))


@pytest.mark.parametrize("module", [None, linear, nn.Linear(4, 3)], ids=["hidden", "function", "network"])
def test_a_fitted_classifier_survives_joblib_and_pickle(blobs, module, tmp_path):
    X, y = blobs
    classifier = RadialClassifier(**QUICK | {"false_reject_rate": 0.1}, module=module).fit(X, y)
    joblib.dump(classifier, tmp_path / "classifier.joblib")
    for again in (joblib.load(tmp_path / "classifier.joblib"), pickle.loads(pickle.dumps(classifier))):
        np.testing.assert_array_equal(again.predict(X), classifier.predict(X))
        np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))
        again.partial_fit(X, y).calibrate(X, y).predict(X)
