import json
import os
import re
import signal

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn

from openradial import models
from openradial.bundle import load
from openradial.data import progress
from openradial.data.examples import Examples
from openradial.data.sources import DataSource
from openradial.errors import DataError, OptionError, TrainingError, WeightsError
from openradial.export import OnnxModel
from openradial.fitting import FitOptions, StoppedError, fit, prepare, training_folder
from openradial.fitting.pipeline import build_network
from tests.fitting.fit_data import write_images, write_table


def quick(data, epochs=12, **options):
    return fit(data, **{"epochs": epochs, "learning_rate": 0.01, "show_progress": False, **options})


def assert_equal_weights(model, other):
    tensors = other.state_dict()
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in model.state_dict().items())


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """The folder of a table and its model, the options, and the model."""
    root = tmp_path_factory.mktemp("table")
    options = {"label": "kind", "novel": "c2", "epochs": 15}
    path = write_table(root / "t.csv", rows=240)
    return root, options, quick(path, out=root / "model", **options)


def test_a_table_becomes_a_bundle_that_predicts_as_was_measured(table):
    root, _, model = table
    loaded = load(root / "model")
    prepared = prepare(FitOptions(str(root / "t.csv"), label="kind", novel="c2", method="gradient"))
    predictions = loaded.predict(prepared.report.inputs)
    assert loaded.classes == model.classes == ("c0", "c1")
    assert (predictions.nearest == prepared.report.labels.numpy()).mean() == model.report.accuracy == 1.0
    rejected, detected = predictions.labels == -1, loaded.predict(prepared.novel.inputs).labels == -1
    # batches of another size may move one row over the threshold
    assert rejected.mean() == pytest.approx(model.report.false_rejects.measured, abs=1.5 / len(rejected))
    assert detected.mean() == pytest.approx(model.report.novel.detected, abs=1.5 / len(detected))


def test_the_metadata_of_a_bundle_tell_data_training_and_measured_rates(table):
    root, _, model = table
    metadata = load(root / "model").metadata
    assert metadata == model.metadata
    assert metadata["data"]["name"] == "t.csv"
    assert metadata["data"]["label"] == "kind"
    assert metadata["data"]["novel_classes"] == ["c2"]
    assert metadata["training"]["epochs"] == 15
    assert metadata["training"]["settings"]["learning_rate"] == 0.01
    assert metadata["measured"]["false_reject_rate"]["asked"] == 0.05
    assert metadata["recipe"]["head"] == "radial"
    assert json.dumps(model.report.as_dict())


def test_checkpoints_are_gone_when_the_bundle_is_written(table):
    root, _, _ = table
    assert sorted(path.name for path in root.iterdir()) == ["model", "t.csv"]


def test_the_same_options_give_the_same_weights(tmp_path):
    path = write_table(tmp_path / "t.csv", rows=120)
    first, again, other = (quick(path, label="kind", epochs=2, seed=seed) for seed in (0, 0, 1))
    assert_equal_weights(first, again)
    assert not torch.equal(first.net.classifier.weight, other.net.classifier.weight)


HEADS = ("radial", "softmax", "doc", "cac")


@pytest.mark.parametrize("head", HEADS)
def test_every_head_gives_a_model_that_loads_and_predicts(head, tmp_path):
    options = {"head": head, "known": "random:6", "batch_size": 64, "epochs": 15}
    model = quick("digits", out=tmp_path / "model", **options)
    assert model.report.accuracy > 0.9
    assert model.report.novel.auroc > 0.7
    loaded = load(tmp_path / "model")
    prepared = prepare(FitOptions("digits", known="random:6"))
    predictions = loaded.predict(prepared.report.inputs)
    assert (predictions.nearest == prepared.report.labels.numpy()).mean() == pytest.approx(model.report.accuracy)
    assert (predictions.distance is None) == (head in ("softmax", "doc"))
    assert loaded.metadata["recipe"]["head"] == head


@pytest.mark.parametrize(
    ("options", "check"),
    [
        ({"beta": 3.0}, lambda model: model.head.layer.beta == 3.0),
        ({"scale": 2.0}, lambda model: model.head.layer.prototypes.scale == 2.0),
        ({"loss": "distance"}, lambda model: model.head.settings()["loss"] == "distance"),
        ({"neighbours": False}, lambda model: model.layers == () and model.combination is None),
        ({"outliers": 0.0}, lambda model: model.metadata["recipe"]["outlier_weight"] == 0.0),
        ({"model": "mlp", "model_options": {"hidden": [7]}}, lambda model: model.net.classifier.in_features == 7),
    ],
)
def test_options_of_recipe_and_network_reach_the_model(tmp_path, options, check):
    assert check(quick(write_table(tmp_path / "t.csv", rows=120), label="kind", epochs=2, **options))


def test_a_folder_of_images_becomes_a_bundle_that_predicts_files(tmp_path):
    root = write_images(tmp_path / "shapes", each=60)
    model = quick(root, novel="ring", size=8, out=tmp_path / "model")
    predictions = load(tmp_path / "model").predict([str(root / "bar" / "003.png"), str(root / "dot" / "003.png")])
    assert [each.nearest for each in predictions] == ["bar", "dot"]
    assert model.report.accuracy == 1.0
    assert model.report.novel.auroc > 0.8


def test_images_too_many_for_the_memory_are_read_from_their_files(tmp_path, monkeypatch):
    root = write_images(tmp_path / "shapes", each=40)
    in_memory = quick(root, size=8, epochs=2)
    monkeypatch.setattr("openradial.data.sources.free_memory", lambda: 1)
    from_files = quick(root, size=8, epochs=2)
    assert from_files.report.examples == in_memory.report.examples
    assert from_files.preprocessing.mean == (0.5,)


def test_very_few_examples_still_give_a_model_with_a_note(tmp_path):
    path = write_table(tmp_path / "t.csv", rows=24)
    report = quick(path, label="kind", false_reject_rate=0.2, epochs=3).report
    assert report.weak[0].startswith("accuracy ")  # of three examples nothing is clear
    assert "few" in report.notes[len(report.weak)]
    assert quick(path, label="kind", false_reject_rate=0.11, epochs=3).combination is None


def test_sequences_of_different_lengths_can_be_fitted():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(120) % 2
    x = torch.randn(120, 9, 2, generator=generator) * 0.3 + y.view(-1, 1, 1)
    for row, length in enumerate(torch.randint(3, 10, (120,), generator=generator).tolist()):
        x[row, length:] = torch.nan
    source = DataSource("walks", "sequences", Examples(x, y, ("up", "down")))
    model = quick(source, model_options={"hidden": 8}, epochs=30)
    assert model.report.accuracy > 0.8
    assert len(model.predict([x[0, :3].numpy(), x[1, :3].numpy()])) == 2


def stop_at(epoch):
    def stop(record):
        if record["epoch"] == epoch:
            os.kill(os.getpid(), signal.SIGINT)

    return stop


@pytest.mark.usefixtures("interruptible")
def test_a_run_that_was_stopped_is_resumed_to_the_same_model(tmp_path):
    options = {"data": write_table(tmp_path / "t.csv", rows=120), "label": "kind", "epochs": 4}
    complete = quick(**options)
    with pytest.raises(StoppedError, match="stopped by SIGINT after 2 epochs; resume with --resume"):
        quick(**options, out=tmp_path / "model", on_epoch=stop_at(2))
    assert (training_folder(tmp_path / "model") / "last.safetensors").exists()
    resumed = quick(**options, out=tmp_path / "model", resume=True)
    assert_equal_weights(resumed, complete)
    assert not training_folder(tmp_path / "model").exists()


@pytest.mark.usefixtures("interruptible")
def test_a_run_is_resumed_with_the_same_data_and_options_only(tmp_path):
    options = {"data": write_table(tmp_path / "t.csv", rows=120), "label": "kind", "epochs": 4, "out": tmp_path / "m"}
    with pytest.raises(TrainingError, match="there is no run to resume in"):
        quick(**options, resume=True)
    with pytest.raises(StoppedError):
        quick(**options, on_epoch=stop_at(1))
    with pytest.raises(TrainingError, match=r"was started with other options: .* set it back"):
        quick(**options, resume=True, head="softmax")
    write_table(tmp_path / "t.csv", rows=150)
    with pytest.raises(TrainingError, match=r"was started with other examples: .* or choose another folder"):
        quick(**options, resume=True)


@pytest.mark.usefixtures("interruptible")
def test_a_resumed_run_may_have_more_epochs(tmp_path):
    options = {"data": write_table(tmp_path / "t.csv", rows=120), "label": "kind", "out": tmp_path / "model"}
    with pytest.raises(StoppedError):
        quick(**options, epochs=4, on_epoch=stop_at(2), schedule="constant")
    epochs = []
    quick(**options, epochs=5, resume=True, schedule="constant", on_epoch=lambda record: epochs.append(record["epoch"]))
    assert epochs == [3, 4, 5]


def test_an_existing_model_is_not_replaced_unless_asked(table):
    root, options, _ = table
    with pytest.raises(OptionError, match=r"exists already; choose another folder, or replace it with overwrite"):
        quick(root / "t.csv", out=root / "model", **options)
    with pytest.raises(OptionError, match=r"a model is a folder, and .* is a file"):
        quick(root / "t.csv", out=root / "t.csv", **options)


def test_missing_data_are_named_before_the_folder(table):
    root, _, _ = table
    with pytest.raises(DataError, match=r"nothere\.csv"):
        quick(root / "nothere.csv", label="kind", out=root / "model")


@pytest.mark.parametrize(("rate", "asked"), [(1e-300, "more than 9e+18"), (0.01, "99")])
def test_a_rate_that_needs_more_examples_is_refused_before_anything_is_encoded(tmp_path, monkeypatch, rate, asked):
    monkeypatch.setattr("openradial.fitting.pipeline.encode_source", lambda *_: pytest.fail("too late"))
    expected = f"a false-reject rate of {rate:g} takes {asked} examples to calibrate with, and there are 60; use a rate"
    for method in ("closed-form", "gradient"):
        with pytest.raises(OptionError, match=re.escape(f"{expected} of at least 0.017")):
            fit(write_table(tmp_path / "t.csv", rows=60), label="kind", method=method, false_reject_rate=rate)


def test_data_without_out_leave_no_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quick(write_table(tmp_path / "t.csv", rows=120), label="kind", epochs=1)
    assert os.listdir(tmp_path) == ["t.csv"]


def test_the_weights_of_a_model_are_a_start_for_another_one(tmp_path):
    net = models.build("mlp", 3, inputs=5, hidden=(7, 7))
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    path = write_table(tmp_path / "t.csv", rows=120)
    options = {"model": "mlp", "model_options": {"hidden": [7, 7]}, "weights": str(tmp_path / "w.safetensors")}
    given = FitOptions(str(path), label="kind", reset="none", **options)
    made, _ = build_network(given, prepare(given))
    assert all(torch.equal(tensor, made.state_dict()[name]) for name, tensor in net.state_dict().items())
    given = FitOptions(str(path), label="kind", **options)
    made, _ = build_network(given, prepare(given))
    assert torch.equal(made.hidden.fc1.weight, net.hidden.fc1.weight)
    assert not torch.equal(made.classifier.weight, net.classifier.weight)
    with pytest.raises(WeightsError, match="fully connected"):
        quick(path, label="kind", reset="fully_connected", **options)


@pytest.mark.parametrize("head", ["radial", "softmax"])
def test_a_radial_layer_on_trained_features_starts_near_zero(tmp_path, head):
    weights = tmp_path / "resnet.safetensors"
    save_file(models.build("resnet18", 7, width=4).state_dict(), weights)
    root = write_images(tmp_path / "photos", each=30, size=40, grey=False)
    options = {"size": 32, "model_options": {"width": 4, "stem": "imagenet"}, "model": "resnet18"}
    given = FitOptions(str(root), weights=str(weights), head=head, **options)
    last = build_network(given, prepare(given))[0].classifier
    assert isinstance(last, nn.Linear)
    assert (last.weight.std() < 2e-3) == (head == "radial")
    assert (last.bias.abs().max() == 0) == (head == "radial")


def test_a_batch_must_divide_among_the_processes(tmp_path, monkeypatch):
    from openradial.fitting.pipeline import _training_batches
    from openradial.training import Settings

    given = FitOptions("digits")
    machine = type("Three", (), {"world": 3, "world_size": 3, "rank": 0})()
    with pytest.raises(OptionError, match="must be a multiple of 3, their number, got 16"):
        _training_batches(given, prepare(given), Settings(batch_size=16), machine)


def test_the_numbers_on_start_are_those_of_the_data(tmp_path):
    seen = []
    model = quick(
        write_table(tmp_path / "t.csv", rows=120),
        label="kind",
        epochs=1,
        on_start=lambda prepared, settings: seen.append((prepared.counts(), settings.epochs)),
    )
    assert seen == [(dict(model.report.examples), 1)]
    assert np.isfinite(model.report.seconds)


@pytest.mark.parametrize("head", HEADS)
def test_every_head_can_be_exported_and_evaluated(head, tmp_path):
    path = write_table(tmp_path / "t.csv", rows=180)
    model = quick(path, label="kind", novel="c2", head=head, epochs=3)
    model.export(tmp_path / "model.onnx")
    rows = [{"length": 0.1, "width": 5.0, "colour": "red"}, {"length": 90.0, "width": 9.0, "colour": "green"}]
    assert OnnxModel(tmp_path / "model.onnx").predict(rows).names == model.predict(rows).names
    evaluation = model.evaluate(path, path, label="kind")
    assert evaluation.accuracy.value > 0.5
    assert evaluation.novel_metrics[0].examples == 60


def test_a_time_limit_ends_training_with_a_note(tmp_path):
    path = write_table(tmp_path / "t.csv", rows=120)
    model = quick(path, label="kind", epochs=30, time_limit=1e-6, out=tmp_path / "model")
    assert model.report.notes[-1] == "the time limit ended training after 1 of 30 epochs; there is no baseline"
    assert load(tmp_path / "model").metadata["training"]["epochs"] == 1
    assert quick(path, label="kind", epochs=2, time_limit=60).metadata["training"]["epochs"] == 2
    with pytest.raises(OptionError, match="time_limit must be"):
        FitOptions("t.csv", time_limit=0)


def test_a_time_limit_leaves_out_what_is_optional_in_closed_form(tmp_path):
    path = write_table(tmp_path / "t.csv", rows=240, classes=6)
    short, long = (fit(path, label="kind", time_limit=limit, show_progress=False) for limit in (1e-6, 60))
    assert short.report.expected_detection is None is short.report.baseline
    assert [note.split(",")[0] for note in short.report.notes[-2:]] == [
        "no time was left for leaving known classes out",
        "no time was left for a baseline",
    ]
    assert long.report.expected_detection is not None is not long.report.baseline
    assert not any("no time" in note for note in long.report.notes)
    assert short.report.accuracy > 0.9


@pytest.mark.parametrize("method", ["closed-form", "gradient"])
def test_random_labels_are_near_chance_and_a_baseline_shows_that_it_is_not_the_method(method):
    x, _ = load_digits(return_X_y=True)
    labels = np.random.default_rng(0).integers(0, 4, 400)
    options = {"epochs": 2} if method == "gradient" else {}
    report = fit((x[:400], labels), method=method, show_progress=False, **options).report
    assert any(sentence.endswith("the share of the most frequent class: near chance") for sentence in report.weak)
    assert report.baseline.accuracy < 0.45
    assert report.baseline.name == "logistic regression" + (" on the inputs" if method == "gradient" else "")


def test_a_trained_network_has_the_accuracy_of_logistic_regression_beside_it(table):
    root, options, model = table
    assert model.report.baseline.accuracy > 0.9
    assert model.report.baseline.auroc is not None
    assert load(root / "model").metadata["measured"]["baseline"]["examples"] == model.report.examples["report"]
    without = quick(root / "t.csv", baseline=False, **options | {"epochs": 1})
    assert without.report.baseline is None


@pytest.mark.parametrize(
    ("options", "classes"),
    [({}, 6), ({}, 3), ({"calibration": "split"}, 6), ({"random_features": 1_100}, 6), ({"baseline": True}, 6)],
)
def test_the_expected_work_of_a_closed_form_is_about_what_is_counted(tmp_path, options, classes):
    path = write_table(tmp_path / "t.csv", rows=600, classes=classes)
    with progress.whole_run():
        run = progress.current()
        fit(path, label="kind", show_progress=False, **{"baseline": False} | options)
    assert run.total / 1.5 < run.done < 1.1 * run.total


def test_the_work_after_the_epochs_is_counted(tmp_path):
    path = write_table(tmp_path / "t.csv", rows=600)
    with progress.whole_run():
        run = progress.current()
        quick(path, label="kind", epochs=1, far_axis=False)
    assert run.total == run.after > 0
    assert run.total / 1.5 < run.done < 1.5 * run.total


def test_with_a_time_limit_no_longer_time_is_shown(tmp_path):
    path = write_table(tmp_path / "t.csv", rows=240)
    with progress.whole_run():
        run = progress.current()
        fit(path, label="kind", time_limit=10, show_progress=False)
        run.begin(1, pace=1e9)
        assert 0 < run.left() <= 600


def test_only_the_first_process_shows_stages(tmp_path, monkeypatch):
    titles, bar = [], progress.bar
    monkeypatch.setattr(
        "openradial.fitting.pipeline.bar", lambda title, total: titles.append(title) or bar(title, total)
    )
    path = write_table(tmp_path / "t.csv", rows=240)
    fit(path, label="kind")
    assert titles == ["reading", "fitting and calibrating"]
    for name, value in {"MASTER_PORT": "1", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    fit(path, label="kind")
    assert titles == ["reading", "fitting and calibrating"]
