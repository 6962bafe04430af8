"""An estimator as a bundle, and back."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
import torch
from rounding import tolerance
from sklearn.base import clone
from sklearn.datasets import make_blobs
from torch import nn

import openradial.bundle
from openradial.classifier import OpenClassifier
from openradial.data.inputs import ImageInputs, TableInputs
from openradial.data.table_encoder import NumberFeature, TableEncoder, WordFeature
from openradial.errors import BundleError, OptionError
from openradial.estimator import RadialClassifier
from openradial.fitting import fit
from openradial.heads import RadialHead, SoftmaxHead
from openradial.models import build

QUICK = {"hidden": (12, 8), "max_epochs": 5, "learning_rate": 1e-2, "random_state": 0, "false_reject_rate": None}
CLOSED = {"method": "closed-form", "random_features": 50, "random_state": 0, "false_reject_rate": 0.1}
NAMES = ["length", "width, cm", "height", "weight"]
KINDS = {
    "int": np.array([3, 5, 2**53 + 1]),
    "int8": np.array([0, 1, 2], dtype=np.int8),
    "float": np.array([1.0, 2.0, 30.0]),
    "str": np.array(["cat", "dog", "Öl, 5 %"]),
    "object": np.array(["cat", "dog", "owl"], dtype=object),
}


def frame(rows, names):
    """A table with named columns, as scikit-learn takes one from several libraries."""
    return pa.table(dict(zip(names, rows.T, strict=True)))


@pytest.fixture(scope="module")
def known():
    X, y = make_blobs(400, n_features=4, centers=3, cluster_std=2.0, random_state=0)
    return X * [1.0, 100.0, 1e-3, 1.0] + [0.0, 5000.0, 0.0, 1.0], y


@pytest.fixture(scope="module")
def fresh(known):
    """Known rows, rows between the classes and rows far away."""
    X = known[0]
    return np.concatenate([X[:100], (X[:50] + X[50:100]) / 2, X[:20] * 50])


def as_dicts(rows, names):
    return [dict(zip(names, row, strict=True)) for row in rows.tolist()]


def check_round_trip(classifier, path, rows, names=None):
    """The bundle and the estimator from it predict as the first estimator does."""
    saved = classifier.to_bundle(path)
    names = [f"x{i}" for i in range(rows.shape[1])] if names is None else names
    model = openradial.bundle.load(saved)
    answers = model.predict(as_dicts(rows, names))
    given = rows if not hasattr(classifier, "feature_names_in_") else frame(rows, names)
    assert answers.names == [str(label) for label in unknown_as_text(classifier, given)]
    close = tolerance(4 * 12)  # rows are rounded to float32 in the same way; what follows is computed in float64
    np.testing.assert_allclose(answers.unknown_score, classifier.unknown_score(given), **close)
    again = RadialClassifier.from_bundle(saved)
    for loaded in (again, pickle.loads(pickle.dumps(again))):
        np.testing.assert_array_equal(loaded.predict(given), classifier.predict(given))
        assert loaded.predict(given).dtype == classifier.predict(given).dtype
        for method in ("decision_function", "predict_proba", "unknown_score"):
            np.testing.assert_allclose(
                getattr(loaded, method)(given), getattr(classifier, method)(given), rtol=1e-9, atol=1e-12
            )
    return again


def unknown_as_text(classifier, rows):
    labels = classifier.predict(rows)
    if classifier.false_reject_rate is None or labels.dtype.kind in "OU":
        return labels
    return ["unknown" if label == -1 else label for label in labels.tolist()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", [None, 0.1])
def test_a_bundle_predicts_as_the_estimator_does(known, fresh, tmp_path, kind, rate):
    X, y = known
    classifier = RadialClassifier(**QUICK | {"false_reject_rate": rate}).fit(X, KINDS[kind][y])
    again = check_round_trip(classifier, tmp_path / "model", fresh)
    np.testing.assert_array_equal(again.classes_, classifier.classes_)
    assert again.classes_.dtype == classifier.classes_.dtype
    assert set(again.predict(fresh)) == set(classifier.predict(fresh))


def test_two_classes_of_booleans_come_back(known, fresh, tmp_path):
    X, y = known
    again = check_round_trip(RadialClassifier(**QUICK).fit(X, y > 0), tmp_path / "model", fresh)
    assert again.predict(fresh).dtype == bool


@pytest.mark.parametrize(
    "options",
    [
        {"neighbours": False},
        {"standardise": False},
        {"hidden": ()},
        {"hidden": (6,), "beta": "fit"},
        {"beta": 7.0, "scale": 3.0, "loss": "distance"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_the_options_of_a_prediction_come_back(known, fresh, tmp_path, options):
    X, y = (known[0] - known[0].mean(0)) / known[0].std(0), known[1]
    classifier = RadialClassifier(**QUICK | options | {"false_reject_rate": 0.1}).fit(X, y)
    again = check_round_trip(classifier, tmp_path / "model", X)
    for name in ("hidden", "scale", "loss", "standardise", "false_reject_rate"):
        assert again.get_params()[name] == classifier.get_params()[name]
    assert again.neighbours == bool(classifier.classifier_.layers)
    assert again.beta_ == again.beta == classifier.beta_
    assert clone(again).set_params(max_epochs=1).fit(X, y).classifier_.rejector.is_fitted


@pytest.mark.parametrize(
    "options",
    [
        {"false_reject_rate": None},
        {"false_reject_rate": None, "random_features": 0, "standardise": False, "beta": "fit"},
        {"neighbours": False, "class_weight": {0: 2.0, 1: 0.5}},
        {"calibration": "split", "calibration_fraction": 0.4, "class_weight": "balanced"},
        {"scale": 3.0, "beta": "fit", "class_weight": "auto"},
    ],
    ids=lambda options: "-".join(options),
)
def test_a_classifier_in_closed_form_comes_back_and_learns_on(known, tmp_path, options):
    X, y = (known[0] - known[0].mean(0)) / known[0].std(0), known[1]
    classifier = RadialClassifier(**CLOSED | options).fit(X[:200], y[:200])
    again = check_round_trip(classifier, tmp_path / "model", X)
    for name in ("method", "random_features", "scale", "standardise", "false_reject_rate"):
        assert again.get_params()[name] == classifier.get_params()[name]
    weight = {0: 2.0, 1: 0.5, 2: 1.0} if isinstance(classifier.class_weight, dict) else classifier.class_weight
    assert again.class_weight == weight
    assert again.beta_ == again.beta == classifier.beta_
    for each in (classifier, again):
        before = each.head_.counts.numpy()
        each.partial_fit(X[200:300], y[200:300])
        np.testing.assert_array_equal(each.head_.counts.numpy(), before + np.bincount(y[200:300]))
        if each.false_reject_rate is not None:
            each._seed = 0  # divides the rows
            each.set_params(beta="safe").calibrate(X[300:], y[300:])
    assert again.classifier_.layers == classifier.classifier_.layers
    for method in ("predict_proba", "unknown_score"):
        np.testing.assert_allclose(getattr(again, method)(X), getattr(classifier, method)(X), rtol=1e-7)
    np.testing.assert_array_equal(again.predict(X), classifier.predict(X))
    check_round_trip(again, tmp_path / "again", X)


def test_classes_and_columns_of_a_closed_form_come_back(known, fresh, tmp_path):
    classifier = RadialClassifier(**CLOSED).fit(frame(known[0], NAMES), KINDS["int"][known[1]])
    again = check_round_trip(classifier, tmp_path / "model", fresh, NAMES)
    assert again.feature_names_in_.tolist() == NAMES
    assert again.classes_.tolist() == KINDS["int"].tolist()


def test_columns_are_found_by_name(known, fresh, tmp_path):
    classifier = RadialClassifier(**QUICK | {"false_reject_rate": 0.1}).fit(frame(known[0], NAMES), known[1])
    again = check_round_trip(classifier, tmp_path / "model", fresh, NAMES)
    assert again.feature_names_in_.tolist() == NAMES
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame(fresh, NAMES[::-1]))


def test_two_columns_with_one_name_are_refused(known, tmp_path):
    classifier = RadialClassifier(**QUICK).fit(*known)
    classifier.feature_names_in_ = np.array(["length", "width", "length", "weight"], dtype=object)
    with pytest.raises(OptionError, match=r"^a bundle finds columns by name, and two columns .* have the same; .*$"):
        classifier.to_bundle(tmp_path / "model")


def test_a_bundle_decides_at_the_current_rate(known, fresh, tmp_path):
    classifier = RadialClassifier(**QUICK | {"false_reject_rate": 0.1}).fit(*known)
    for rate in (0.3, None):
        classifier.set_params(false_reject_rate=rate)
        again = check_round_trip(classifier, tmp_path / f"rate {rate}", fresh)
        assert again.false_reject_rate == rate
    with pytest.raises(OptionError, match=r"0\.001"):
        classifier.set_params(false_reject_rate=0.001).to_bundle(tmp_path / "small")


def test_an_existing_bundle_is_kept_unless_it_is_to_be_overwritten(known, tmp_path):
    classifier = RadialClassifier(**QUICK).fit(*known)
    classifier.to_bundle(tmp_path / "model")
    with pytest.raises(OptionError, match="exists already"):
        classifier.to_bundle(tmp_path / "model")
    assert classifier.to_bundle(tmp_path / "model", overwrite=True) == (tmp_path / "model").resolve()


def test_what_cannot_be_a_bundle_is_refused(known, tmp_path):
    with_module = RadialClassifier(**QUICK, module=nn.Linear(4, 3)).fit(*known)
    with pytest.raises(OptionError, match=r"^a bundle builds its network again by name, and this estimator has .*$"):
        with_module.to_bundle(tmp_path / "model")
    uncalibrated = RadialClassifier(**QUICK | {"false_reject_rate": 0.1}).fit(*known).partial_fit(*known)
    with pytest.raises(OptionError, match=r"^rows can be rejected only after a calibration"):
        uncalibrated.to_bundle(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def number(name):
    return NumberFeature(name, 0.0, 0.0, 1.0)


@pytest.mark.parametrize("kind", ["images", "words", "softmax", "another network"])
def test_a_bundle_of_another_kind_is_refused(tmp_path, kind):
    classes = ("a", "b")
    features = (number("x"), WordFeature("colour", ("red",), (1.0,))) if kind == "words" else (number("x"), number("y"))
    network, options = ("mnist_radial", {}) if kind == "another network" else ("mlp", {"inputs": 2, "hidden": [3]})
    preprocessing = TableInputs(TableEncoder(features, classes))
    if kind == "images":
        network, options, preprocessing = "mlp", {"inputs": 4, "hidden": [3]}, ImageInputs(2, 1)
    head = SoftmaxHead(2) if kind == "softmax" else RadialHead(2)
    model = OpenClassifier(
        build(network, 2, **options), head, classes=classes, preprocessing=preprocessing, network=(network, options)
    )
    path = model.save(tmp_path / "model")
    with pytest.raises(BundleError, match=r"^an estimator needs a bundle of a table of numbers .* openradial\.load\("):
        RadialClassifier.from_bundle(path)


def test_without_neighbours_a_loaded_estimator_learns_on_and_is_calibrated_again(known, tmp_path):
    X, y = known
    path = (
        RadialClassifier(**QUICK | {"false_reject_rate": 0.1}, neighbours=False).fit(X, y).to_bundle(tmp_path / "model")
    )
    again = RadialClassifier.from_bundle(path)
    before = again.predict_proba(X)
    assert (again.calibrate(X, y).predict(X) == -1).mean() == pytest.approx(0.1, abs=0.01)
    np.testing.assert_array_equal(again.predict_proba(X), before)
    again.partial_fit(X, y)
    assert again.network_.classifier.weight.dtype == torch.float32
    assert len(again.history_) == 1
    assert (again.calibrate(X, y).predict(X) == -1).mean() == pytest.approx(0.1, abs=0.01)
    assert not np.allclose(again.predict_proba(X), before)
    again.to_bundle(path, overwrite=True)


def test_with_neighbours_a_loaded_estimator_predicts_and_refuses_to_learn_on(known, tmp_path):
    X, y = known
    path = RadialClassifier(**QUICK | {"false_reject_rate": 0.1}).fit(X, y).to_bundle(tmp_path / "model")
    again = RadialClassifier.from_bundle(path)
    wanted = again.predict(X)
    for method in (again.partial_fit, again.calibrate):
        with pytest.raises(OptionError, match=r"^neighbours are searched among the training rows, which a bundle .*$"):
            method(X, y)
    np.testing.assert_array_equal(again.predict(X), wanted)
    again.set_params(neighbours=False).partial_fit(X, y).calibrate(X, y)
    assert again.classifier_.layers == ()
    again.set_params(neighbours=True, max_epochs=2, hidden=(4,)).fit(X, y)
    assert again.classifier_.combination is not None


@pytest.mark.parametrize("options", [{"epochs": 2}, {"method": "closed-form"}], ids=["trained", "closed form"])
def test_a_model_that_was_fitted_to_a_table_of_numbers_becomes_an_estimator(known, tmp_path, options):
    X, y = known[0][:, :3], np.array(["red", "green", "blue"])[known[1]]
    lines = [",".join([*map(repr, row), label]) for row, label in zip(X.tolist(), y, strict=True)]
    (tmp_path / "table.csv").write_text("\n".join(["length,width,height,colour", *lines]))
    model = fit(tmp_path / "table.csv", label="colour", **options)
    classifier = RadialClassifier.from_bundle(model.save(tmp_path / "model"))
    names = ["length", "width", "height"]
    assert classifier.predict(frame(X, names)).tolist() == model.predict(as_dicts(X, names)).names
    again = check_round_trip(classifier, tmp_path / "again", X, names)
    assert again.classifier_.metadata.items() >= classifier.classifier_.metadata.items()
