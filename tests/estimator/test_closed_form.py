"""The estimator in closed form: its head is solved on random features of the columns."""

import copy
import pickle

import numpy as np
import pytest
import torch
from rounding import tolerance
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from torch import nn

from openradial.errors import OptionError, TargetError
from openradial.estimator import RadialClassifier
from openradial.fitting.cross import assign_folds
from openradial.functional import safe_beta
from openradial.heads import ClosedFormRadialHead
from openradial.recipe import Recipe, closed_form_recipe

CLOSED = {"method": "closed-form", "random_features": 60, "random_state": 0, "false_reject_rate": None}
EQUAL = 1e-8  # relative: sums over parts, and ridge systems with a small penalty


@pytest.fixture(scope="module")
def known():
    return make_blobs(600, n_features=4, centers=3, cluster_std=2.5, random_state=0)


@pytest.fixture(scope="module")
def fitted(known):
    return RadialClassifier(**CLOSED).fit(known[0][:300], known[1][:300])


def in_parts(X, y, sizes, **options):
    classifier, start = RadialClassifier(**CLOSED | options), 0
    for size in sizes:
        classifier.partial_fit(X[start : start + size], y[start : start + size], classes=[0, 1, 2])
        start += size
    return classifier


def naive_features(classifier, X):
    """Random Fourier features of standardised float32 rows, in float64."""
    rows = ((X - classifier.scaler_.mean_) / classifier.scaler_.scale_).astype(np.float32).astype(np.float64)
    made = classifier.head_.features
    frequencies, phases = made.frequencies.double().numpy(), made.phases.double().numpy()
    return np.sqrt(2 / len(phases)) * np.cos(rows @ frequencies + phases)


def naive_far_axis(classifier, X, fresh):
    """How much farther than the farthest known row a row lies from the mean of standardised rows."""
    known, rows = (
        ((each - classifier.scaler_.mean_) / classifier.scaler_.scale_).astype(np.float32).astype(np.float64)
        for each in (X, fresh)
    )
    variances = 0.9 * known.var(0) + 0.1 * known.var(0).mean()
    norms, largest = (np.sqrt(((each - known.mean(0)) ** 2 / variances).sum(1)) for each in (rows, known))
    return np.maximum(0, norms / largest.max() - 1)


def naive_distances(classifier, X, y, fresh, weight=(1.0, 1.0, 1.0)):
    """Distances to the prototypes of ridge regression on all rows with the alpha of the classifier."""
    z, targets, w = naive_features(classifier, X), np.eye(3)[y], np.asarray(weight)[y]
    centre, target_centre = w @ z / w.sum(), w @ targets / w.sum()
    classifier.head_.solve()
    gram = (z - centre).T @ (w[:, None] * (z - centre)) + classifier.head_.fitted_alpha * np.eye(z.shape[1])
    W = np.linalg.solve(gram, (z - centre).T @ (w[:, None] * (targets - target_centre)))
    outputs = (naive_features(classifier, fresh) - centre) @ W + target_centre
    return np.linalg.norm(outputs[:, None] - np.eye(3), axis=2)


def test_the_answers_are_those_of_ridge_regression_on_random_features(fitted, known):
    X, y = known
    d = np.hypot(naive_distances(fitted, X[:300], y[:300], X), naive_far_axis(fitted, X[:300], X)[:, None])
    np.testing.assert_allclose(fitted.decision_function(X), -fitted.beta_ * d, rtol=1e-7)
    np.testing.assert_allclose(fitted.unknown_score(X), d.min(1), rtol=1e-7)
    np.testing.assert_array_equal(fitted.predict(X), d.argmin(1))
    assert fitted.beta_ == safe_beta(3)
    assert fitted.score(X[300:], y[300:]) > 0.8
    assert fitted.history_ == []
    assert isinstance(fitted.head_, ClosedFormRadialHead)
    assert fitted.network_(torch.zeros(2, 4)).dtype == torch.float64


def test_the_parts_add_up_to_one_fit_on_all_rows(known):
    X, y = known
    classifier = in_parts(X, y, [100, 1, 399, 100])
    head, first = classifier.head_, RadialClassifier(**CLOSED).fit(X[:100], y[:100])
    np.testing.assert_array_equal(classifier.scaler_.mean_, first.scaler_.mean_)
    assert head.width == float(first.head_.features.width)
    d = naive_distances(classifier, X, y, X)
    np.testing.assert_allclose(classifier.decision_function(X), -classifier.beta_ * d, rtol=1e-7)

    rows = torch.tensor(classifier.scaler_.transform(X)).float().double()
    settings = head.settings() | {"alpha": head.fitted_alpha}
    fresh = ClosedFormRadialHead(**settings).fit(rows, torch.tensor(y))
    made = torch.tensor(classifier.decision_function(X))
    torch.testing.assert_close(made, fresh.log_probs(rows), rtol=EQUAL, atol=EQUAL)
    assert head.counts.tolist() == np.bincount(y).tolist()


def test_later_parts_may_come_in_any_order_and_choose_alpha_together(known):
    X, y = known
    order = np.r_[:100, np.arange(599, 99, -1)]
    one, other = in_parts(X, y, [100, 250, 250]), in_parts(X[order], y[order], [100, 499, 1])
    np.testing.assert_allclose(one.decision_function(X), other.decision_function(X), rtol=EQUAL)
    assert one.head_.fitted_alpha == pytest.approx(other.head_.fitted_alpha)


def test_rows_are_added_to_what_was_fitted(fitted, known):
    X, y = known
    again = copy.deepcopy(fitted)
    alpha = again.head_.fitted_alpha
    again.partial_fit(X[300:], y[300:])
    d = naive_distances(again, X, y, X)
    assert again.head_.fitted_alpha == alpha
    np.testing.assert_allclose(again.decision_function(X), -again.beta_ * d, rtol=1e-7)


def test_a_first_part_of_one_row_or_one_class_can_be_continued(known):
    X, y = known
    one = in_parts(X, y, [1, 599])  # of which no scale of the columns can be learnt
    np.testing.assert_allclose(one.decision_function(X), -one.beta_ * naive_distances(one, X, y, X), rtol=1e-7)
    only = y == 1
    classifier = RadialClassifier(**CLOSED).partial_fit(X[only], y[only], classes=[0, 1, 2])
    assert set(classifier.predict(X)) == {1}
    assert classifier.partial_fit(X[~only], y[~only]).score(X, y) > 0.8


def test_a_part_that_is_refused_changes_nothing(fitted, known):
    X, y = known
    again = copy.deepcopy(fitted)
    with pytest.raises(TargetError, match="labels must be among the classes"):
        again.partial_fit(X, y + 1)
    np.testing.assert_array_equal(again.decision_function(X), fitted.decision_function(X))
    fresh = RadialClassifier(**CLOSED | {"random_features": -1})
    with pytest.raises(OptionError, match="random_features"):
        fresh.partial_fit(X, y, classes=[0, 1, 2])
    assert fresh.set_params(random_features=60).partial_fit(X, y, classes=[0, 1, 2]).score(X, y) > 0.8


def test_the_parameters_of_training_are_ignored(fitted, known):
    X, y = known
    other = {"hidden": (3,), "module": nn.Linear(1, 1), "loss": "distance", "outliers": -1, "max_epochs": -1}
    other |= {"batch_size": 0, "learning_rate": -1, "early_stopping": True, "patience": 0, "device": "tpu"}
    same = RadialClassifier(**CLOSED, **other).fit(X[:300], y[:300])
    np.testing.assert_array_equal(same.decision_function(X), fitted.decision_function(X))


@pytest.mark.parametrize("rows", [100, 1_500])
def test_the_number_of_random_features_is_that_of_the_recipe(rows):
    X, y = make_blobs(rows, n_features=3, centers=3, random_state=0)
    for made in (
        RadialClassifier(method="closed-form").fit(X, y),
        RadialClassifier(method="closed-form").partial_fit(X, y, classes=[0, 1, 2]),
    ):
        assert made.head_.random_features == closed_form_recipe("table", rows).random_features


def test_without_random_features_the_columns_themselves_count(known):
    X, y = known
    linear = RadialClassifier(**CLOSED | {"random_features": 0, "standardise": False}).fit(X, y)
    assert linear.head_.features is None
    assert linear.scaler_ is None
    assert linear.head_.weight.shape == (3, 4)


def test_one_row_is_answered_as_it_is_among_others(known):
    X, y = known
    for options in ({}, {"false_reject_rate": 0.1}):
        classifier = RadialClassifier(**CLOSED | options).fit(X[:300], y[:300])
        alone = np.concatenate([classifier.unknown_score(row[None]) for row in X[300:400]])
        np.testing.assert_allclose(alone, classifier.unknown_score(X)[300:400], **tolerance(1000, torch.float64))


def test_the_same_seed_gives_the_same_classifier_and_leaves_torch_alone(known):
    X, y = known
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    first, same, other = (
        RadialClassifier(**CLOSED | {"random_state": seed, "false_reject_rate": 0.1, "beta": "fit"}).fit(X, y)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.unknown_score(X), same.unknown_score(X))
    assert first.beta_ == same.beta_
    assert not np.allclose(first.unknown_score(X), other.unknown_score(X))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_a_classifier_survives_pickle_and_clone(known):
    X, y = known
    classifier = RadialClassifier(**CLOSED | {"false_reject_rate": 0.1}).fit(X[:300], y[:300])
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.unknown_score(X), classifier.unknown_score(X))
    again.partial_fit(X[300:450], y[300:450]).calibrate(X[450:], y[450:])
    assert again.classifier_.combination is not None
    assert clone(classifier).get_params() == classifier.get_params()
    np.testing.assert_array_equal(clone(classifier).fit(X[:300], y[:300]).predict(X), classifier.predict(X))


def test_weights_of_classes_are_those_of_ridge_regression(known):
    X, y = known
    rare = np.flatnonzero((y > 0) | (np.arange(len(y)) % 8 == 0))
    X, y = X[rare], y[rare]
    by_hand = dict(enumerate(len(y) / (3 * np.bincount(y))))
    options = {"balanced": "balanced", "by hand": by_hand, "some": {0: 5.0}, "none": None, "auto": "auto"}
    made = {name: RadialClassifier(**CLOSED, class_weight=weight).fit(X, y) for name, weight in options.items()}
    for name, weight in (("balanced", tuple(by_hand.values())), ("some", (5.0, 1.0, 1.0))):
        d = naive_distances(made[name], X, y, X, weight)
        np.testing.assert_allclose(made[name].decision_function(X), -made[name].beta_ * d, rtol=1e-7)
    np.testing.assert_allclose(made["by hand"].decision_function(X), made["balanced"].decision_function(X), rtol=1e-9)
    assert (made["balanced"].predict(X) == 0).sum() > (made["none"].predict(X) == 0).sum()
    errors = {name: macro_error(made[name], X, y) for name in ("balanced", "none", "auto")}
    assert errors["auto"] == min(errors.values())
    added = made["balanced"].partial_fit(X[:1], y[:1])  # the weights stay
    assert added.head_.sums.class_weight.tolist() == pytest.approx(list(by_hand.values()))


def macro_error(classifier, X, y):
    rows = torch.tensor(classifier.scaler_.transform(X)).float().double()
    return classifier.head_.macro_error(rows, torch.tensor(y))


def test_a_search_compares_methods_and_numbers_of_features(known):
    grid = [
        {"method": ["closed-form"], "random_features": np.array([0, 60])},
        {"method": ["gradient"], "hidden": [(8,)], "max_epochs": [2]},
    ]
    search = GridSearchCV(RadialClassifier(random_state=0), grid, cv=2).fit(*known)
    assert search.best_params_["method"] == "closed-form"


def test_beta_is_fitted_to_each_row_without_its_fold(known):
    X, y = known
    fitted = RadialClassifier(**CLOSED, beta="fit").fit(X[:300], y[:300])
    safe = RadialClassifier(**CLOSED).fit(X[:300], y[:300])
    head, rows = fitted.head_, torch.tensor(fitted.scaler_.transform(X[:300])).float().double()
    labels = torch.tensor(y[:300])
    folds = assign_folds(labels, groups=torch.arange(300), seed=head.seed)
    settings = head.settings() | {"alpha": head.fitted_alpha, "width": float(head.features.width)}
    d = torch.empty(300, 3, dtype=torch.float64)
    for fold in range(10):
        here = folds == fold
        d[here] = ClosedFormRadialHead(**settings).fit(rows[~here], labels[~here]).distances(rows[here])
    betas = np.linspace(0.9, 1.1, 401) * fitted.beta_
    losses = [float(nn.functional.cross_entropy(-beta * d, labels)) for beta in betas]
    assert betas[np.argmin(losses)] == pytest.approx(fitted.beta_, rel=0.01)
    fresh = [log_loss(y[300:], classifier.predict_proba(X[300:])) for classifier in (fitted, safe)]
    assert fresh[0] < fresh[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "newton"}, "method must be one of 'gradient', 'closed-form', got 'newton'"),
        ({"calibration": "fold"}, "calibration must be one of 'auto', 'split', 'cross', got 'fold'"),
        ({"method": "gradient", "calibration": "cross"}, "calibration='cross' is for method='closed-form'"),
        ({"method": "gradient", "class_weight": "auto"}, "class_weight='auto' is for method='closed-form'"),
        ({"random_features": "many"}, "random_features must be a whole number of at least 0, got 'many'"),
        ({"class_weight": "heavy"}, "class_weight must be one of 'balanced', 'sqrt', 'auto', got 'heavy'"),
        ({"class_weight": {0: 0.0}}, "class_weight must be a finite number above 0, got 0.0"),
        ({"false_reject_rate": 1.5}, "false_reject_rate must be a number above 0 and below 1, got 1.5"),
        ({"false_reject_rate": 0.001}, "a false-reject rate of 0.001 takes 999 examples to calibrate with, and of 600"),
        (
            {"false_reject_rate": 0.005, "calibration": "split"},
            "a false_reject_rate of 0.005 needs at least 199 held-out rows, got 120",
        ),
        ({"neighbours": 5}, "neighbours must be True or False, got 5"),
    ],
)
def test_an_impossible_option_is_refused(known, options, message):
    with pytest.raises(OptionError, match=f"^{message}"):
        RadialClassifier(**CLOSED | options).fit(*known)


def test_a_weight_per_class_is_for_closed_form():
    assert closed_form_recipe("table", 10, class_weight=(1.0, 2.0)).class_weight == (1.0, 2.0)
    with pytest.raises(
        OptionError, match=r"^class_weight=\(1.0, 2.0\) is for method='closed-form'; use 'balanced', 'sqrt' or"
    ):
        Recipe(class_weight=(1.0, 2.0))


def test_what_cannot_be_continued_is_refused(fitted, known):
    for weight in ("auto", "balanced"):
        with pytest.raises(OptionError, match=f"^class_weight='{weight}' needs all labels at once; give partial_fit a"):
            in_parts(*known, [100], class_weight=weight)
    switched = copy.deepcopy(fitted).set_params(method="gradient")
    with pytest.raises(OptionError, match=r"^this classifier was fitted with another method than 'gradient'; call fit"):
        switched.partial_fit(*known)
    assert switched.set_params(max_epochs=1, hidden=(4,)).fit(*known).history_


def test_a_beta_without_anything_to_fit_it_to_is_refused():
    with pytest.raises(OptionError, match=r"^beta='fit' needs at least 2 different rows, got 1; add rows"):
        RadialClassifier(**CLOSED, beta="fit").fit(np.ones((6, 2)), [0, 1] * 3)
    with pytest.raises(OptionError, match=r"^beta='fit' needs .* 40 rows; add rows, hold out more of them"):
        RadialClassifier(**CLOSED, beta="fit").fit([[0.0], [0.1], [5.0], [5.1]] * 10, [0, 0, 1, 1] * 10)
