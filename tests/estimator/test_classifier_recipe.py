"""The radial recipe as the estimator's default: outliers in training, and the nearest row in the unknown-score."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from sklearn.model_selection import GridSearchCV
from torch import nn

from openradial.estimator import RadialClassifier
from openradial.estimator.rows import as_rows

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


def references(classifier):
    """The hidden activations of the training rows among which neighbours are searched."""
    return classifier.classifier_.layer_scorers()[-1][1].references


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
    columns = fitted.classifier_.combination.columns.T.tolist()
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
        assert classifier.classifier_.combination is not None
        shares.append((classifier.predict(X[order[75:375]]) == -1).mean())
    assert np.mean(shares) < 0.1 + 3 * np.std(shares) / math.sqrt(len(shares))
    assert np.mean(shares) > 0.05


def test_few_rows_are_rejected_by_the_distance_alone(known):
    X, y = known
    classifier = RadialClassifier(**OPEN).fit(X[:100], y[:100])
    assert classifier.classifier_.combination is None
    np.testing.assert_allclose(classifier.unknown_score(X), distance_alone(classifier, X), rtol=1e-9)
    assert classifier.classifier_.rejector._calibration.fewest == 20


@pytest.mark.parametrize(
    "options",
    [{"neighbours": False}, {"hidden": ()}, {"module": nn.Linear(4, 3)}, {"neighbours": np.False_}],
    ids=["switched off", "no hidden layer", "module", "switched off by NumPy"],
)
def test_without_a_hidden_layer_of_ours_or_without_the_wish_the_distance_decides(known, options):
    X, y = known
    classifier = RadialClassifier(**OPEN | {"max_epochs": 2} | options).fit(X, y)
    assert classifier.classifier_.layers == ()
    assert not hasattr(classifier, "_seen")
    np.testing.assert_allclose(classifier.unknown_score(X), distance_alone(classifier, X), rtol=1e-4)
    assert classifier.classifier_.rejector._calibration.fewest == 120


def test_where_no_row_is_rejected_no_training_row_is_kept(known):
    X, y = known
    closed = RadialClassifier(**OPEN | {"false_reject_rate": None, "max_epochs": 1}).fit(X[:300], y[:300])
    assert not hasattr(closed, "_seen")
    closed.set_params(false_reject_rate=0.1).calibrate(X[300:], y[300:])
    assert closed.classifier_.combination is None
    np.testing.assert_allclose(closed.unknown_score(X), distance_alone(closed, X), rtol=1e-9)


def test_one_hidden_layer_is_enough(known):
    classifier = RadialClassifier(**OPEN | {"hidden": (8,), "max_epochs": 1}).fit(*known)
    assert classifier.classifier_.layers == ("outputs", "classifier:input")


def test_parts_are_remembered_until_a_calibration(known):
    X, y = known
    classifier = RadialClassifier(**OPEN)
    for start in (0, 100, 200, 200):
        classifier.partial_fit(X[start : start + 100], y[start : start + 100], classes=[0, 1, 2])
    np.testing.assert_allclose(classifier.unknown_score(X), distance_alone(classifier, X), rtol=1e-9)
    classifier.calibrate(X[300:], y[300:])
    assert len(references(classifier)) == 300
    assert classifier.classifier_.rejector._calibration.fewest == pytest.approx(200, abs=2)
    scores = classifier.unknown_score(X)
    assert classifier.partial_fit(X[:100], y[:100]).classifier_.combination is None
    assert not np.allclose(classifier.calibrate(X[300:], y[300:]).unknown_score(X), scores)


def test_the_same_rows_calibrate_alike(fitted, known):
    X, y = known
    first, second = (copy.deepcopy(fitted).calibrate(X[300:], y[300:]) for _ in range(2))
    np.testing.assert_array_equal(first.unknown_score(X), second.unknown_score(X))
    np.testing.assert_array_equal(first.calibrate(X[300:], y[300:]).unknown_score(X), second.unknown_score(X))


def test_the_references_are_bounded_and_drawn_with_the_seed(known, monkeypatch):
    monkeypatch.setattr("openradial.estimator.rows.REFERENCES", 50)
    one, same, other = (
        references(RadialClassifier(**OPEN | {"max_epochs": 1, "random_state": seed}).fit(*known)) for seed in (0, 0, 1)
    )
    assert one.shape == (50, 8)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_rows_equal_to_trained_ones_are_scored_as_the_nearest_that_are_not(fitted, known):
    X = known[0]
    combination = fitted.classifier_.combination
    smallest = combination.columns[0, 1]
    assert smallest > 1e-6
    prototype, neighbour = fitted.classifier_.layer_scores([as_rows(X[:300], fitted.scaler_).double()]).T
    at_least = torch.stack([prototype, neighbour.clamp_min(smallest)], 1)
    assert (neighbour < smallest).sum() >= 200  # 240 of these rows were trained on
    np.testing.assert_allclose(fitted.unknown_score(X[:300]), combination.unknown_score(at_least), rtol=1e-9)
    scores = fitted.unknown_score(X[:20])
    np.testing.assert_allclose(np.concatenate([fitted.unknown_score(row[None]) for row in X[:20]]), scores, rtol=1e-9)


def test_a_network_that_does_not_tell_rows_apart_combines_p_values(fitted, known):
    X, y = known
    classifier = copy.deepcopy(fitted)
    nn.init.zeros_(classifier.network_.classifier.weight)
    assert classifier.calibrate(X[300:], y[300:]).classifier_.combination.method == "fisher"


def test_probabilities_know_nothing_of_neighbours(fitted, known):
    X = known[0]
    without = copy.deepcopy(fitted).set_params(neighbours=False).calibrate(X[300:], known[1][300:])
    assert without.classifier_.combination is None
    probs, others = fitted.predict_proba(X), without.predict_proba(X)
    beyond = (probs != others).any(1)  # the training rows: only a classifier that keeps rows has a far axis
    assert beyond.mean() < 0.02
    assert (probs[beyond] < others[beyond]).all()


def test_a_classifier_with_neighbours_survives_pickle(fitted, known):
    X, y = known
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.unknown_score(X), fitted.unknown_score(X))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    again.partial_fit(X[:300], y[:300]).calibrate(X[300:], y[300:])
    assert again.classifier_.combination is not None


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
            norms.append(classifier.network_(as_rows(between, classifier.scaler_)).norm(dim=1).mean().item())
    assert norms[1] < 0.8 * norms[0]
    assert with_.score(X, y) > without.score(X, y) - 0.03


def test_one_class_in_a_part_makes_no_outliers(known):
    X, y = known
    pair = [RadialClassifier(**OPEN, outliers=weight) for weight in (0, 0.3)]
    for classifier in pair:
        classifier.partial_fit(X[y == 1][:60], y[y == 1][:60], classes=[0, 1, 2])
    np.testing.assert_allclose(*(classifier.decision_function(X) for classifier in pair), rtol=1e-5)
