import os
import signal
import threading
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from rounding import tolerance
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import train_test_split
from torch import nn

from openradial.errors import TrainingError
from openradial.estimator import RadialClassifier
from openradial.functional import radial_distances, safe_beta

QUICK = {"hidden": (16,), "max_epochs": 20, "learning_rate": 1e-2, "random_state": 0, "false_reject_rate": None}


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(150, n_features=4, centers=3, random_state=0)


@pytest.fixture(scope="module")
def fitted(blobs):
    return RadialClassifier(**QUICK).fit(*blobs)


def weights(classifier):
    return torch.cat([parameter.detach().flatten() for parameter in classifier.network_.parameters()])


def linear(num_features, num_classes):
    return nn.Linear(num_features, num_classes)


def test_digits_are_told_apart():
    X, y = load_digits(return_X_y=True)
    train_X, test_X, train_y, test_y = train_test_split(X, y, test_size=0.2, stratify=y, random_state=0)
    assert RadialClassifier(random_state=0, false_reject_rate=None).fit(train_X, train_y).score(test_X, test_y) >= 0.97


def test_the_answers_are_those_of_the_distances(fitted, blobs):
    X, _ = blobs
    rows = torch.tensor((X - X.mean(0)) / X.std(0)).float().double()
    with torch.no_grad():
        d = radial_distances(fitted.network_.double()(rows)).numpy()
    fitted.network_.float()
    assert fitted.beta_ == safe_beta(3)
    np.testing.assert_allclose(fitted.decision_function(X), -fitted.beta_ * d, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(fitted.unknown_score(X), d.min(1), rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(fitted.predict(X), d.argmin(1))
    odds = np.exp(-fitted.beta_ * d)
    np.testing.assert_allclose(fitted.predict_proba(X), odds / odds.sum(1, keepdims=True), rtol=1e-6, atol=1e-9)


def test_one_row_is_answered_as_it_is_among_others(fitted, blobs):
    X, _ = blobs
    alone = np.concatenate([fitted.unknown_score(row[None]) for row in X])
    np.testing.assert_allclose(alone, fitted.unknown_score(X), rtol=1e-12)


def test_more_rows_than_fit_into_one_pass_are_answered_alike(fitted, blobs):
    X, _ = blobs
    many = np.tile(X, (15, 1))  # 2250 rows
    np.testing.assert_allclose(fitted.unknown_score(many).reshape(15, -1)[14], fitted.unknown_score(X), rtol=1e-12)


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.float64, np.str_, object, np.bool_])
def test_labels_keep_their_type(blobs, kind):
    X, y = blobs
    labels = (y > 0).astype(str).astype(object) if kind is object else (y > 0).astype(kind)
    classifier = RadialClassifier(**QUICK).fit(X, labels)
    assert classifier.predict(X).dtype == labels.dtype
    assert classifier.score(X, labels) > 0.9


def test_two_classes_have_one_decision_value(blobs):
    X, y = blobs[0][blobs[1] < 2], blobs[1][blobs[1] < 2]
    classifier = RadialClassifier(**QUICK).fit(X, y)
    np.testing.assert_array_equal(classifier.decision_function(X) > 0, classifier.predict(X) == 1)


def test_the_same_random_state_gives_the_same_classifier(fitted, blobs):
    again, other = RadialClassifier(**QUICK).fit(*blobs), RadialClassifier(**QUICK | {"random_state": 1}).fit(*blobs)
    assert torch.equal(weights(again), weights(fitted))
    assert not torch.equal(weights(other), weights(fitted))


def test_a_random_state_that_is_a_generator_moves_on(blobs):
    classifier = RadialClassifier(**QUICK | {"random_state": np.random.RandomState(0)})
    first = weights(classifier.fit(*blobs))
    assert not torch.equal(weights(classifier.fit(*blobs)), first)


def test_fitting_leaves_the_random_numbers_of_torch_and_numpy_alone(blobs):
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    RadialClassifier(**QUICK | {"false_reject_rate": 0.1}, early_stopping=True, module=linear).fit(*blobs)
    drawn = torch.rand(3), np.random.rand(3)  # noqa: NPY002
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    assert torch.equal(drawn[0], torch.rand(3))
    np.testing.assert_array_equal(drawn[1], np.random.rand(3))  # noqa: NPY002


def test_fits_in_several_threads_do_not_disturb_each_other(fitted, blobs):
    classifiers = [RadialClassifier(**QUICK) for _ in range(4)]
    threads = [threading.Thread(target=classifier.fit, args=blobs) for classifier in classifiers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for classifier in classifiers:  # 60 steps with sums over 64 rows; another thread may use other kernels
        torch.testing.assert_close(weights(classifier), weights(fitted), **tolerance(60 * 16))


def test_columns_of_any_size_and_place_are_standardised(fitted, blobs):
    X, y = blobs
    moved = RadialClassifier(**QUICK).fit(X * [1e-9, 1.0, 1e6, 1e12] + [0.0, 1e4, -1e9, 0.0], y)
    np.testing.assert_allclose(weights(moved), weights(fitted), atol=1e-3)


def test_a_constant_column_does_no_harm(blobs):
    X, y = np.column_stack([blobs[0], np.full(150, 7.0)]), blobs[1]
    assert RadialClassifier(**QUICK).fit(X, y).score(X, y) > 0.9


def test_without_standardising_the_network_gets_the_rows_as_they_are(blobs):
    X, y = blobs
    classifier = RadialClassifier(**QUICK, standardise=False).fit(X, y)
    assert classifier.scaler_ is None
    with torch.no_grad():
        o = classifier.network_(torch.tensor(X).float())
    np.testing.assert_array_equal(o.argmax(1), classifier.predict(X))


@pytest.mark.parametrize("standardise", [True, False])
def test_rows_far_beyond_all_numbers_of_float32_are_far_away_and_finite(blobs, standardise):
    classifier = RadialClassifier(**QUICK, standardise=standardise).fit(*blobs)
    far = np.array([[1e300, 0, 0, 0], [-1e300, 1e300, 1e40, -1e40]])
    assert (classifier.unknown_score(far) > 1e6).all()
    assert np.isfinite(classifier.unknown_score(far)).all()
    np.testing.assert_allclose(classifier.predict_proba(far).sum(1), 1)


def test_a_function_makes_the_network(blobs):
    asked = []

    def make(num_features, num_classes):
        asked.append((num_features, num_classes))
        return nn.Sequential(nn.Linear(num_features, 20), nn.Tanh(), nn.Linear(20, num_classes))

    classifier = RadialClassifier(**QUICK, module=make).fit(*blobs)
    assert asked == [(4, 3)]
    assert classifier.score(*blobs) > 0.8
    assert classifier.predict_proba(blobs[0]).dtype == np.float32


def test_a_network_is_copied_and_starts_with_its_weights(blobs):
    network = nn.Linear(4, 3)
    before = network.weight.detach().clone()
    classifier = RadialClassifier(**QUICK | {"learning_rate": 1e-9, "max_epochs": 1}, module=network).fit(*blobs)
    assert torch.equal(network.weight, before)
    torch.testing.assert_close(classifier.network_.weight, before)


def test_dropout_is_off_when_rows_are_answered(blobs):
    network = nn.Sequential(nn.Linear(4, 20), nn.Dropout(0.5), nn.Linear(20, 3))
    classifier = RadialClassifier(**QUICK, module=network).fit(*blobs)
    np.testing.assert_array_equal(classifier.unknown_score(blobs[0]), classifier.unknown_score(blobs[0]))


def test_no_hidden_layer_is_a_linear_classifier(blobs):
    assert len(list(RadialClassifier(**QUICK | {"hidden": ()}).fit(*blobs).network_.parameters())) == 2


def test_training_can_stop_early_and_keeps_the_best_weights(blobs):
    options = QUICK | {"max_epochs": 200, "learning_rate": 0.3, "schedule": "constant"}
    classifier = RadialClassifier(**options, early_stopping=True, patience=2).fit(*blobs)
    losses = [record["validation_loss"] for record in classifier.history_]
    assert len(losses) < 200
    assert len(losses) - 1 - int(np.argmin(losses)) == 2


def test_without_early_stopping_nothing_is_held_out(fitted):
    assert len(fitted.history_) == 20
    assert "validation_loss" not in fitted.history_[0]


@pytest.mark.parametrize("option", [{"loss": "distance"}, {"outliers": 0}])
def test_the_paper_s_loss_and_no_outliers_are_other_choices(fitted, blobs, option):
    other = RadialClassifier(**QUICK, **option).fit(*blobs)
    assert other.score(*blobs) > 0.8
    assert not torch.equal(weights(other), weights(fitted))


def test_beta_and_what_is_predicted_have_nothing_to_do_with_each_other(fitted, blobs):
    steep = RadialClassifier(**QUICK, beta=50.0).fit(*blobs)
    torch.testing.assert_close(weights(steep), weights(fitted), **tolerance(60 * 16))  # 60 steps: it may be rounded
    np.testing.assert_array_equal(steep.predict(blobs[0]), fitted.predict(blobs[0]))
    assert steep.beta_ == 50
    assert (steep.predict_proba(blobs[0]).max(1) >= fitted.predict_proba(blobs[0]).max(1)).all()


def test_a_larger_scale_puts_the_prototypes_farther_apart(blobs):
    classifier = RadialClassifier(**QUICK, scale=5.0).fit(*blobs)
    assert classifier.beta_ == pytest.approx(safe_beta(3) / 5)
    assert classifier.score(*blobs) > 0.8


def test_a_heavy_class_wins_where_classes_overlap():
    X, y = make_blobs(100, centers=[[0.0], [0.5]], random_state=0)
    light, heavy = (
        RadialClassifier(**QUICK, class_weight=weight).fit(X, y).predict(X).mean()
        for weight in ({0: 10.0, 1: 1.0}, {0: 1.0, 1: 10.0})
    )
    assert light < 0.3 < 0.7 < heavy


def test_balanced_weights_are_those_of_rare_classes(blobs):
    X, y = blobs[0][:, :1], (np.arange(150) % 10 == 0).astype(int)
    for rule, power in (("balanced", 1.0), ("sqrt", 0.5)):
        found = RadialClassifier(**QUICK, class_weight=rule).fit(X, y)
        by_hand = {0: (150 / (2 * 135)) ** power, 1: (150 / (2 * 15)) ** power}
        torch.testing.assert_close(weights(found), weights(RadialClassifier(**QUICK, class_weight=by_hand).fit(X, y)))


def test_numbers_of_numpy_are_taken_as_options(blobs):
    options = {"max_epochs": np.int64(2), "batch_size": np.int32(50), "learning_rate": np.float32(0.01)}
    assert len(RadialClassifier(**QUICK | options).fit(*blobs).history_) == 2


def test_a_second_fit_starts_again(fitted, blobs):
    classifier = RadialClassifier(**QUICK).fit(blobs[0][:, :2], blobs[1] > 0).fit(*blobs)
    assert torch.equal(weights(classifier), weights(fitted))
    assert classifier.n_features_in_ == 4


def test_parts_are_learnt_one_after_the_other(blobs):
    X, y = blobs
    classifier = RadialClassifier(**QUICK)
    for start in [*range(0, 150, 50)] * 20:
        classifier.partial_fit(X[start : start + 50], y[start : start + 50], classes=[0, 1, 2])
    assert classifier.score(X, y) > 0.9
    assert len(classifier.history_) == 60


def test_learning_goes_on_after_fit(fitted, blobs):
    X, y = blobs
    classifier = RadialClassifier(**QUICK).fit(X, y)
    classifier.partial_fit(X[:50], y[:50])
    assert len(classifier.history_) == 21
    assert not torch.equal(weights(classifier), weights(fitted))


def test_partial_fits_are_repeatable_and_differ_in_their_random_numbers(blobs):
    X, y = blobs

    def run(calls):
        network = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 3))
        classifier = RadialClassifier(random_state=0, module=network, learning_rate=1e-12)
        for _ in range(calls):
            classifier.partial_fit(X, y, classes=[0, 1, 2])
        return [record["loss"] for record in classifier.history_]

    torch.manual_seed(0)
    first = run(2)
    torch.manual_seed(0)
    assert run(2) == first
    assert first[0] != first[1]


@pytest.mark.parametrize("verbose", [False, True])
def test_progress_is_shown_to_those_who_ask(blobs, verbose, monkeypatch):
    titles = []

    @contextmanager
    def bar(title, total, *, unit=""):
        titles.append(title)
        yield lambda amount: None

    monkeypatch.setattr("openradial.data.progress.bar", bar)
    RadialClassifier(**QUICK | {"max_epochs": 2}, verbose=verbose).fit(*blobs)
    assert titles == (["epoch 1 of 2", "epoch 2 of 2"] if verbose else [])


class Stopping(nn.Linear):
    """Sends this process a signal in the middle of its training."""

    def __init__(self, number):
        super().__init__(4, 3)
        self.number = number

    def forward(self, x):
        if self.training:
            os.kill(os.getpid(), self.number)
        return super().forward(x)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_fit_and_leaves_it_unfitted(blobs):
    classifier = RadialClassifier(**QUICK).fit(*blobs).set_params(module=Stopping(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        classifier.fit(*blobs)
    with pytest.raises(NotFittedError):
        classifier.predict(blobs[0])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_somebody_else_handles_is_passed_on_and_ends_the_fit_too(blobs):
    came = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        with pytest.raises(TrainingError, match=r"^training was stopped by SIGTERM before its end; fit again$"):
            RadialClassifier(**QUICK, module=Stopping(signal.SIGTERM)).fit(*blobs)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == [signal.SIGTERM]
