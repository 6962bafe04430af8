import json
import os
import signal

import numpy as np
import pytest
import torch
from fit_data import write_images, write_table
from openradial.fitting.material import prepare
from openradial.fitting.running import StoppedError, training_folder

from openradial.bundle import load
from openradial.data.examples import Examples
from openradial.data.sources import DataSource
from openradial.errors import DataError, OptionError, TrainingError
from openradial.fitting import FitJob, fit_job
from openradial.fitting.report import Said, confused, confusion_matrix, hardest, make_report


def quick(data, **values):
    return FitJob(str(data), training={"epochs": values.pop("epochs", 12), "learning_rate": 0.01}, **values)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table, the job on it, and what was fitted."""
    root = tmp_path_factory.mktemp("table")
    job = quick(write_table(root / "t.csv", rows=240), label="kind", novel="c2", epochs=15)
    return root, job, fit_job(job, root / "model", show_progress=False)


def test_a_table_becomes_a_bundle_that_predicts_as_was_measured(table):
    root, job, fitted = table
    bundle = load(root / "model")
    material = prepare(job)
    said = bundle.predict(material.report.inputs)
    assert bundle.classes == ("c0", "c1")
    assert (said.nearest == material.report.labels.numpy()).mean() == fitted.report.accuracy == 1.0
    rejected = bundle.predict(material.novel.inputs).labels == -1
    # Batches of another size may move one row over the threshold.
    assert (said.labels == -1).mean() == pytest.approx(fitted.report.false_rejects.measured, abs=1.5 / len(said))
    assert rejected.mean() == pytest.approx(fitted.report.novel.detected, abs=1.5 / len(rejected))


def test_the_facts_of_a_bundle_tell_data_training_and_numbers(table):
    _, _, fitted = table
    facts = fitted.bundle.facts
    assert facts["data"]["name"] == "t.csv"
    assert facts["data"]["label"] == "kind"
    assert facts["data"]["novel_classes"] == ["c2"]
    assert facts["training"]["epochs"] == 15
    assert facts["measured"]["false_reject_rate"]["asked"] == 0.05
    assert json.dumps(fitted.report.as_dict())


def test_checkpoints_are_gone_when_the_bundle_is_written(table):
    root, _, fitted = table
    assert sorted(path.name for path in root.iterdir()) == ["model", "t.csv"]
    assert fitted.folder == root / "model"


def test_no_example_serves_twice(table):
    _, job, _ = table
    material = prepare(job)
    parts = [material.train, material.combination, material.calibration, material.report]
    rows = torch.cat([part.inputs for part in parts])
    assert len(rows) == 160
    assert len(torch.unique(rows, dim=0)) == 160


def test_inputs_are_learnt_from_the_training_part_alone(table):
    _, job, _ = table
    material = prepare(job)
    numbers = material.train.inputs[:, :2].double()
    torch.testing.assert_close(numbers.mean(0), torch.zeros(2, dtype=torch.float64), atol=1e-5, rtol=0)
    assert [feature.name for feature in material.inputs.encoder.features] == ["length", "width", "colour"]
    assert material.inputs.encoder.features[2].categories == ("green", "red")  # blue is the novel class's


def test_the_same_job_gives_the_same_weights(tmp_path):
    job = quick(write_table(tmp_path / "t.csv", rows=120), label="kind", epochs=2)
    first, again = (fit_job(job, show_progress=False).bundle.classifier.state_dict() for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_a_folder_of_images_becomes_a_bundle_that_takes_files(tmp_path):
    root = write_images(tmp_path / "shapes", each=60)
    fitted = fit_job(quick(root, novel="ring", size=8), tmp_path / "model", show_progress=False)
    bundle = load(tmp_path / "model")
    said = bundle.predict([str(root / "bar" / "003.png"), str(root / "dot" / "003.png")])
    assert [bundle.classes[k] for k in said.nearest] == ["bar", "dot"]
    assert fitted.report.accuracy == 1.0
    assert fitted.report.novel.auroc > 0.8


def test_images_too_many_for_the_memory_are_read_from_their_files(tmp_path, monkeypatch):
    root = write_images(tmp_path / "shapes", each=40)
    in_memory = fit_job(quick(root, size=8, epochs=2), show_progress=False)
    monkeypatch.setattr("openradial.data.sources.free_memory", lambda: 1)
    from_files = fit_job(quick(root, size=8, epochs=2), show_progress=False)
    assert from_files.report.examples == in_memory.report.examples
    assert from_files.bundle.preprocessing.mean == (0.5,)


def test_very_few_examples_still_give_a_model_and_say_so(tmp_path):
    job = quick(write_table(tmp_path / "t.csv", rows=24), label="kind", false_reject_rate=0.2, epochs=3)
    report = fit_job(job, show_progress=False).report
    assert "few" in report.notes[0]
    bare = fit_job(quick(tmp_path / "t.csv", label="kind", false_reject_rate=0.11, epochs=3), show_progress=False)
    assert bare.bundle.classifier.combination is None


def test_equal_rows_of_a_table_are_no_obstacle(tmp_path):
    lines = [f"{k},{k % 2},c{k}" for k in range(3) for _ in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,kind", *lines]) + "\n")
    bundle = fit_job(quick(tmp_path / "t.csv", label="kind", epochs=3), show_progress=False).bundle
    assert bundle.classifier.combination.method == "fisher"


def test_a_run_that_was_stopped_goes_on_to_the_same_model(tmp_path):
    job = quick(write_table(tmp_path / "t.csv", rows=120), label="kind", epochs=4)
    whole = fit_job(job, show_progress=False)

    def stop(record):
        if record["epoch"] == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(StoppedError, match="stopped by SIGINT after 2 epochs; go on with --resume"):
        fit_job(job, tmp_path / "model", report=stop, show_progress=False)
    assert (training_folder(tmp_path / "model") / "last.safetensors").exists()
    resumed = fit_job(job, tmp_path / "model", resume=True, show_progress=False)
    first, again = whole.bundle.classifier.state_dict(), resumed.bundle.classifier.state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not training_folder(tmp_path / "model").exists()


def test_a_run_goes_on_with_the_same_data_only(tmp_path):
    job = quick(write_table(tmp_path / "t.csv", rows=120), label="kind", epochs=4)
    with pytest.raises(TrainingError, match="there is no run to go on with in"):
        fit_job(job, tmp_path / "model", resume=True, show_progress=False)
    with pytest.raises(StoppedError):
        fit_job(job, tmp_path / "model", report=lambda _: os.kill(os.getpid(), signal.SIGINT), show_progress=False)
    other = quick(write_table(tmp_path / "t.csv", rows=150), label="kind", epochs=4)
    with pytest.raises(
        TrainingError, match=r"was started with another examples: .* set it back, or choose another folder"
    ):
        fit_job(other, tmp_path / "model", resume=True, show_progress=False)


def test_a_model_that_is_there_is_not_replaced_unasked(table):
    root, job, _ = table
    with pytest.raises(OptionError, match=r"is there already; name another folder, or replace it with overwrite"):
        fit_job(job, root / "model")
    with pytest.raises(OptionError, match=r"a bundle is a folder, and .* is a file"):
        fit_job(job, root / "t.csv")


def test_a_test_part_must_have_the_classes_of_the_training_part(tmp_path):
    write_images(tmp_path / "set" / "train", each=30)
    write_images(tmp_path / "set" / "test", classes=("ring",), each=2)
    with pytest.raises(DataError, match="there is no folder for 2 of 3 classes: bar, dot"):
        prepare(quick(tmp_path / "set", novel="ring"))


def test_confusions_and_hard_classes_are_counted_as_by_hand():
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    nearest = torch.tensor([0, 1, 1, 1, 0, 2])
    said = Said(labels, torch.tensor([0, -1, 1, 1, 0, 2]), nearest, torch.arange(6.0))
    matrix = np.zeros((3, 3), int)
    for true, got in zip(labels.tolist(), nearest.tolist(), strict=True):
        matrix[true, got] += 1
    assert (confusion_matrix(labels, nearest, 3) == matrix).all()
    assert [tuple(pair) for pair in confused(said, ("a", "b", "c"))] == [("a", "b", 2), ("b", "a", 1)]
    hard = hardest(said, ("a", "b", "c"))
    assert [(each.name, each.examples) for each in hard] == [("a", 3), ("b", 2)]
    assert (hard[0].accuracy, hard[0].rejected) == pytest.approx((1 / 3, 1 / 3))


def test_without_examples_to_measure_with_there_are_no_numbers(table):
    _, _, fitted = table
    report = make_report(fitted.bundle.classifier, ("a", "b"), None, None, (), examples={"train": 3}, seconds=1.0)
    assert (report.accuracy, report.false_rejects, report.confused) == (None, None, ())


def test_sequences_of_different_lengths_can_be_fitted(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(120) % 2
    x = torch.randn(120, 9, 2, generator=generator) * 0.3 + y.view(-1, 1, 1)
    for row, length in enumerate(torch.randint(3, 10, (120,), generator=generator).tolist()):
        x[row, length:] = torch.nan
    found = DataSource("walks", "sequences", Examples(x, y, ("up", "down")))
    monkeypatch.setattr("openradial.fitting.material.sources.open", lambda data, label: found)
    fitted = fit_job(quick("walks", model_options={"hidden": 8}, epochs=30), show_progress=False)
    assert fitted.report.accuracy > 0.8
    assert len(fitted.bundle.predict([x[0, :3].numpy(), x[1, :3].numpy()])) == 2
