"""The radial recipe as the estimator's default: outliers in training, and the nearest row in the unknown-score."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_blobs
from sklearn.model_selection import GridSearchCV
from torch import nn

from openradial.conformal.calibration import examples_needed
from openradial.data.examples import Examples
from openradial.estimator import RadialClassifier, rejection
from openradial.estimator.rejection import FIRST, Seen, divided

OPEN = {"hidden": (8, 8), "max_epochs": 10, "learning_rate": 1e-2, "random_state": 0, "false_reject_rate": 0.1}


@pytest.fixture(scope="module")
def known():
    return make_blobs(600, n_features=4, centers=3, random_state=0)


@pytest.fixture(scope="module")
def fitted(known):
    X, y = known
    return RadialClassifier(**OPEN).fit(X[:300], y[:300])


def distance_alone(classifier, X):
    """The distance to the nearest prototype, from the log-probabilities."""
    return -classifier.decision_function(X).max(1) / classifier.beta_


def naive_hidden(network, row):
    layer = network.hidden.fc1
    return [
        max(0.0, sum(w * x for w, x in zip(weights, row, strict=True)) + bias)
        for weights, bias in zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)
    ]


def naive_merged(scores, columns):
    """The sum of the log scores, each less the mean and divided by the deviation of those that were learnt from."""
    total = 0.0
    for score, column in zip(scores, columns, strict=True):
        logs = [math.log(value) for value in column]
        mean = sum(logs) / len(logs)
        deviation = math.sqrt(sum((value - mean) ** 2 for value in logs) / (len(logs) - 1))
        total += (math.log(max(score, min(column))) - mean) / deviation
    return total


def test_the_score_is_that_of_both_distances_written_as_loops(fitted, known):
    X = known[0][300:310]
    rows = fitted.scaler_.transform(X).astype(np.float32).tolist()
    hidden = [naive_hidden(fitted.network_, row) for row in fitted._seen.rows.tolist()]
    columns = fitted.combination_.columns.T.tolist()
    wanted = [
        naive_merged((far, min(math.dist(naive_hidden(fitted.network_, row), other) for other in hidden)), columns)
        for far, row in zip(distance_alone(fitted, X), rows, strict=True)
    ]
    np.testing.assert_allclose(fitted.unknown_score(X), wanted, rtol=1e-9)


def test_the_neighbours_are_the_rows_that_were_trained_on(fitted, known):
    given_ = {tuple(row) for row in fitted.scaler_.transform(known[0][:300]).astype(np.float32).tolist()}
    kept = {tuple(row) for row in fitted._seen.rows.tolist()}
    assert len(kept) == 240
    assert kept <= given_


def test_a_row_is_scored_alone_as_it_is_among_others_even_if_it_was_trained_on(fitted, known):
    X = known[0][:100]
    alone = np.concatenate([fitted.unknown_score(row[None]) for row in X])
    np.testing.assert_allclose(alone, fitted.unknown_score(X), rtol=1e-9)


def test_known_rows_score_about_zero_and_rows_far_beyond_float32_are_unknown_and_finite(fitted, known):
    assert abs(np.median(fitted.unknown_score(known[0][300:]))) < 2
    far = np.array([[1e300, 0, 0, 0], [-1e300, 1e300, 1e40, -1e40]])
    assert np.isfinite(fitted.unknown_score(far)).all()
    assert (fitted.predict(far) == -1).all()


def test_at_most_the_asked_share_of_known_rows_is_rejected_on_average_over_calibrations(fitted):
    """40 calibrations with 75 rows each, two thirds of which reach the rejector, and other rows to judge them."""
    classifier, rng = copy.deepcopy(fitted), np.random.default_rng(0)
    X, y = make_blobs(6000, n_features=4, centers=3, random_state=0)  # the same centres, other rows
    shares = []
    for _ in range(40):
        order = rng.permutation(len(X))
        classifier.calibrate(X[order[:75]], y[order[:75]])
        assert hasattr(classifier, "combination_")
        shares.append((classifier.predict(X[order[75:375]]) == -1).mean())
    assert np.mean(shares) < 0.1 + 3 * np.std(shares) / math.sqrt(len(shares))
    assert np.mean(shares) > 0.05


@given(st.lists(st.integers(0, 4), min_size=1, max_size=150), st.sampled_from([0.02, 0.05, 0.3]), st.integers(0, 99))
def test_no_held_out_row_serves_twice(labels, rate, seed):
    rows = torch.arange(len(labels)).float().unsqueeze(1)
    held = Examples(rows, torch.tensor(labels), tuple("abcde"))
    for_scores, for_rejector = divided(held, rate, seed)
    if for_scores is None:
        assert for_rejector is held
        return
    assert len(for_scores) >= 20
    assert len(for_rejector) >= examples_needed(rate)
    together = torch.cat([for_scores.inputs, for_rejector.inputs]).flatten().tolist()
    assert sorted(together) == rows.flatten().tolist()


def test_few_rows_are_rejected_by_the_distance_alone(known):
    X, y = known
    classifier = RadialClassifier(**OPEN).fit(X[:100], y[:100])
    assert not hasattr(classifier, "combination_")
    np.testing.assert_allclose(classifier.unknown_score(X), distance_alone(classifier, X), rtol=1e-9)
    assert classifier.rejector_._calibration.fewest == 20


@pytest.mark.parametrize(
    "options",
    [{"neighbours": False}, {"hidden": ()}, {"module": nn.Linear(4, 3)}, {"neighbours": np.False_}],
    ids=["switched off", "no hidden layer", "module", "switched off by NumPy"],
)
def test_without_a_hidden_layer_of_ours_or_without_the_wish_the_distance_decides(known, options):
    X, y = known
    classifier = RadialClassifier(**OPEN | {"max_epochs": 2} | options).fit(X, y)
    assert not hasattr(classifier, "scorers_")
    assert not hasattr(classifier, "_seen")
    np.testing.assert_allclose(classifier.unknown_score(X), distance_alone(classifier, X), rtol=1e-4)
    assert classifier.rejector_._calibration.fewest == 120


def test_where_no_row_is_rejected_no_training_row_is_kept(known):
    X, y = known
    closed = RadialClassifier(**OPEN | {"false_reject_rate": None, "max_epochs": 1}).fit(X[:300], y[:300])
    assert not hasattr(closed, "_seen")
    closed.set_params(false_reject_rate=0.1).calibrate(X[300:], y[300:])
    assert not hasattr(closed, "combination_")
    np.testing.assert_allclose(closed.unknown_score(X), distance_alone(closed, X), rtol=1e-9)


def test_one_hidden_layer_is_enough(known):
    classifier = RadialClassifier(**OPEN | {"hidden": (8,), "max_epochs": 1}).fit(*known)
    assert set(classifier.scorers_) == {"outputs", FIRST}


def test_parts_are_remembered_until_a_calibration(known):
    X, y = known
    classifier = RadialClassifier(**OPEN)
    for start in (0, 100, 200, 200):
        classifier.partial_fit(X[start : start + 100], y[start : start + 100], classes=[0, 1, 2])
    np.testing.assert_allclose(classifier.unknown_score(X), distance_alone(classifier, X), rtol=1e-9)
    classifier.calibrate(X[300:], y[300:])
    assert len(classifier.scorers_[FIRST].references) == 300
    assert classifier.rejector_._calibration.fewest == pytest.approx(200, abs=2)
    scores = classifier.unknown_score(X)
    assert not hasattr(classifier.partial_fit(X[:100], y[:100]), "combination_")
    assert not np.allclose(classifier.calibrate(X[300:], y[300:]).unknown_score(X), scores)


def test_the_same_rows_calibrate_alike(fitted, known):
    X, y = known
    first, second = (copy.deepcopy(fitted).calibrate(X[300:], y[300:]) for _ in range(2))
    np.testing.assert_array_equal(first.unknown_score(X), second.unknown_score(X))
    np.testing.assert_array_equal(first.calibrate(X[300:], y[300:]).unknown_score(X), second.unknown_score(X))


def test_the_references_are_bounded_and_drawn_with_the_seed(known, monkeypatch):
    monkeypatch.setattr(rejection, "REFERENCES", 50)
    one, same, other = (
        RadialClassifier(**OPEN | {"max_epochs": 1, "random_state": seed}).fit(*known).scorers_[FIRST].references
        for seed in (0, 0, 1)
    )
    assert one.shape == (50, 8)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_rows_of_all_parts_are_as_likely_to_be_remembered(monkeypatch):
    monkeypatch.setattr(rejection, "REFERENCES", 100)
    rows = torch.arange(2000.0).unsqueeze(1)
    seen = Seen.of(rows[:200], seed=0)
    for part in range(1, 10):
        seen = seen.joined(Seen.of(rows[200 * part : 200 * part + 200], seed=part))
    assert len(seen.rows) == 100
    late = int((seen.rows >= 1000).sum())
    assert 30 <= late <= 70  # half of them, 4 deviations


def test_rows_that_come_again_take_no_place_of_others(monkeypatch):
    monkeypatch.setattr(rejection, "REFERENCES", 40)
    rows = torch.arange(30.0).unsqueeze(1)
    seen = Seen.of(rows, seed=0)
    for seed in range(1, 5):
        seen = seen.joined(Seen.of(rows, seed))
    assert sorted(seen.rows.flatten().tolist()) == rows.flatten().tolist()


def test_rows_equal_to_trained_ones_are_scored_as_the_nearest_that_are_not(known):
    X, y = known[0].copy(), known[1].copy()
    X[::2], y[::2] = X[:6:2].repeat(100, 0), y[:6:2].repeat(100)  # every second row is one of three
    classifier = RadialClassifier(**OPEN, calibration_fraction=0.4).fit(X, y)
    smallest = classifier.combination_.columns[0, 1]
    assert smallest > 1e-6
    alone = np.concatenate([classifier.unknown_score(row[None]) for row in X[:20]])
    np.testing.assert_allclose(alone, classifier.unknown_score(X)[:20], rtol=1e-9)


def test_a_table_of_equal_rows_is_judged_by_the_distance_alone():
    X = np.tile(np.eye(3), (100, 1))
    y = X.argmax(1)
    classifier = RadialClassifier(**OPEN).fit(X, y)
    assert not hasattr(classifier, "combination_")
    # Not score(): whether these rows are rejected is a tie, because the calibration has the same rows.
    assert (classifier.predict_proba(X).argmax(1) == y).mean() > 0.8
    assert (classifier.predict([[50.0, 50.0, 50.0]]) == -1).all()


def test_a_network_that_tells_no_rows_apart_is_judged_by_the_distance_alone(fitted, known):
    X, y = known
    classifier = copy.deepcopy(fitted)
    nn.init.zeros_(classifier.network_.classifier.weight)
    assert not hasattr(classifier.calibrate(X[300:], y[300:]), "combination_")


def test_probabilities_know_nothing_of_neighbours(fitted, known):
    X = known[0]
    without = copy.deepcopy(fitted).set_params(neighbours=False).calibrate(X[300:], known[1][300:])
    assert not hasattr(without, "combination_")
    np.testing.assert_array_equal(fitted.predict_proba(X), without.predict_proba(X))


def test_a_classifier_with_neighbours_survives_pickle(fitted, known):
    X, y = known
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.unknown_score(X), fitted.unknown_score(X))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    assert hasattr(again.partial_fit(X[:300], y[:300]).calibrate(X[300:], y[300:]), "combination_")


def test_the_parts_of_the_recipe_can_be_searched(known):
    grid = {"outliers": np.array([0.0, 0.3]), "neighbours": [True, False]}
    search = GridSearchCV(RadialClassifier(**OPEN | {"max_epochs": 2}), grid, cv=2).fit(*known)
    assert set(search.best_params_) == {"outliers", "neighbours"}


def test_outliers_are_pulled_to_the_origin(known):
    X, y = known
    between = (X[y == 0][:100] + X[y == 1][:100]) / 2
    options = OPEN | {"false_reject_rate": None, "max_epochs": 30}
    without, with_ = (RadialClassifier(**options, outliers=weight).fit(X, y) for weight in (0, 0.3))
    norms = []
    for classifier in (without, with_):
        with torch.no_grad():
            norms.append(classifier.network_(classifier._rows(between)).norm(dim=1).mean().item())
    assert norms[1] < 0.8 * norms[0]
    assert with_.score(X, y) > without.score(X, y) - 0.03


def test_one_class_in_a_part_makes_no_outliers(known):
    X, y = known
    pair = [RadialClassifier(**OPEN, outliers=weight) for weight in (0, 0.3)]
    for classifier in pair:
        classifier.partial_fit(X[y == 1][:60], y[y == 1][:60], classes=[0, 1, 2])
    np.testing.assert_allclose(*(classifier.decision_function(X) for classifier in pair), rtol=1e-5)
