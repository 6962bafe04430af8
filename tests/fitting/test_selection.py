"""The choice between closed form and gradient training."""

import re

import numpy as np
import pytest
from safetensors.torch import save_file
from torch import nn

import openradial
from openradial import models
from openradial.data import progress
from openradial.errors import OptionError
from openradial.fitting import FitOptions, selection
from openradial.fitting.cross import FeatureSet
from openradial.fitting.pipeline import build_network
from openradial.fitting.preparation import prepare
from openradial.heads import ClosedFormRadialHead
from tests.fitting.fit_data import had, write_images


def blobs(rows=240, seed=0):
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, rows)
    return 3 * np.eye(3)[y] + random.normal(size=(rows, 3)), y


def fit(**options):
    return openradial.fit(blobs(), method="best", false_reject_rate=0.1, show_progress=False, **options)


def test_a_tie_or_a_better_closed_form_is_fitted_again_on_all_examples():
    model = fit(epochs=1)
    assert model.network == ("features", {})
    assert model.report.examples["train"] == 240
    assert "method closed-form is chosen by the accuracy on" in model.report.notes[-1]
    assert model.metadata["notes"][-1] == model.report.notes[-1]


def test_split_calibration_keeps_the_model_that_was_compared():
    model = fit(epochs=1, calibration="split")
    assert model.report.examples["train"] < 240
    assert model.report.guarantee.startswith("split conformal")


def test_the_more_accurate_method_wins(monkeypatch):
    shares = iter([0.8, 0.9])
    monkeypatch.setattr(selection, "_accuracy", lambda model, prepared: next(shares))
    model = fit(
        epochs=1, random_features=30, class_weight="auto"
    )  # what only one of them takes is left out for the other
    assert model.network[0] == "mlp"
    assert "method gradient is chosen" in model.report.notes[-1]
    assert "closed-form 80.0 %, gradient 90.0 %" in model.report.notes[-1]


def test_the_model_is_saved(tmp_path):
    fit(epochs=1, out=tmp_path / "model")
    assert "is chosen by" in openradial.load(tmp_path / "model").metadata["notes"][-1]


def test_only_tables_with_enough_rows_are_compared():
    x, y = blobs(15)
    with pytest.raises(OptionError, match="method='best' compares two models on held-out examples, and 15 are too few"):
        openradial.fit((x, y), method="best", false_reject_rate=0.3)
    with pytest.raises(OptionError, match="method='best' is for tables, and digits holds images"):
        openradial.fit("digits", method="best")


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.setattr("openradial.encoders.cache.features_folder", lambda: tmp_path / "features")
    return write_images(tmp_path / "photos", each=40, size=40, grey=False)


def test_a_network_starts_with_the_ridge_solution_on_its_features(photos, tmp_path):
    save_file(models.build("resnet18", 7, width=4).state_dict(), tmp_path / "w.safetensors")
    given = FitOptions(
        str(photos),
        model="resnet18",
        weights=str(tmp_path / "w.safetensors"),
        reset="closed-form",
        size=32,
        scale=2.0,
        model_options={"width": 4, "stem": "imagenet"},
    )
    prepared = prepare(given)
    net, _ = build_network(given, prepared)
    last, net.classifier = net.classifier, nn.Identity()
    known = FeatureSet.of(net, prepared.batches(prepared.train, 32))
    z, y = known.z.double().numpy(), known.y.numpy()
    alpha = ClosedFormRadialHead(3, z.shape[1], scale=2.0).fit(known.z, known.y).fitted_alpha
    centred, targets = z - z.mean(0), 2.0 * np.eye(3)[y]
    weight = np.linalg.solve(centred.T @ centred + alpha * np.eye(z.shape[1]), centred.T @ targets).T
    np.testing.assert_allclose(last.weight.detach(), weight, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(last.bias.detach(), targets.mean(0) - weight @ z.mean(0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kept", ["frozen", "fine-tuned"])
def test_a_fine_tuned_encoder_is_kept_if_it_is_better(photos, tmp_path, monkeypatch, kept):
    had("efficientnet_lite0")
    shares = iter([0.8, 0.8 if kept == "frozen" else 0.9])  # a tie keeps the frozen one
    measured, accuracy = [], selection._accuracy

    def given(model, prepared):
        measured.append((accuracy(model, prepared), len(prepared.combination)))
        return next(shares)

    monkeypatch.setattr(selection, "_accuracy", given)
    options = {"false_reject_rate": 0.1, "size": 32, "epochs": 1, "learning_rate": 1e-5, "show_progress": False}
    model = openradial.fit(photos, finetune=True, out=tmp_path / "model", **options)
    assert f"the {kept} encoder is kept by the accuracy on" in model.report.notes[-1]
    assert re.search(r"on \d\d held-out known examples: frozen 80\.0 %, fine-tuned [89]0\.0 %$", model.report.notes[-1])
    assert all(0 <= share <= 1 for share, _ in measured)
    assert measured[0][1] == measured[1][1]  # both were measured on the same examples
    assert model.network[0] == ("encoder" if kept == "frozen" else "efficientnet_lite0")
    assert model.report.examples["train"] == (120 if kept == "frozen" else 63)
    loaded, images = openradial.load(tmp_path / "model"), sorted(photos.rglob("*.png"))[::8]
    assert loaded.predict(images).names == model.predict(images).names
    assert loaded.metadata["notes"][-1] == model.report.notes[-1]
    assert loaded.preprocessing == model.preprocessing
    if kept == "fine-tuned":
        loaded.export(tmp_path / "model.onnx", check=images[::5])  # raises if another runtime answers differently
        assert (tmp_path / "model.onnx").stat().st_size > 1e6


def test_what_cannot_be_fine_tuned_is_refused(photos):
    for data, kind in ((blobs(), "table"), ((["a b", "c d"] * 30, ["x", "y"] * 30), "texts"), ("digits", "images")):
        with pytest.raises(
            OptionError, match=f"^finetune is for photographs in files, and .* holds {kind}; leave it out"
        ):
            openradial.fit(data, finetune=True)
    for options in ({"method": "gradient"}, {"model": "resnet18"}, {"weights": "imagenet"}):
        with pytest.raises(OptionError, match="finetune trains the encoder"):
            openradial.fit(photos, finetune=True, **options)
    for options in ({"finetune": True, "head": "softmax"}, {"reset": "closed-form", "random_features": 9}):
        with pytest.raises(OptionError, match="without random features"):
            FitOptions("photos", **options)


def test_the_time_left_is_that_before_training_and_then_includes_another_fit():
    seen = []
    with progress.whole_run():
        run = progress.current()
        fit(epochs=1, on_start=lambda prepared, settings: seen.append((run.scope, run.later > 0)))
    assert seen == [("before training", False), ("in all", True)]
