from pathlib import Path

import numpy as np
import pytest
import torch
from openradial.training.execution import make_net, run_job
from openradial.training.job import Job
from openradial.training.preparation import prepare
from PIL import Image
from safetensors.torch import save_file

from openradial import models
from openradial.errors import DataError, OptionError, WeightsError
from openradial.training import Devices, Settings

PAGE = Path(__file__).parents[2] / "docs" / "training.md"
SHORT = {"epochs": 1, "batch_size": 16}


def job(data, training=SHORT, **values):
    return Job.from_mapping({"data": data, "training": training, **values})


@pytest.fixture
def photos(tmp_path):
    """Three classes of small images, in train and val."""
    random = np.random.default_rng(0)
    for part in ("train", "val"):
        for name in ("cat", "cow", "dog"):
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(10):
                pixels = random.integers(0, 255, (40, 50, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / part / name / f"{i}.png")
    return tmp_path


def test_a_job_survives_json():
    made = job("digits", known="random:6", model_options={"hidden": [8]}, beta=2.0)
    assert Job.from_mapping(made.as_dict()) == made


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"head": "sigmoid"}, "head must be"),
        ({"beta": 0}, "beta must be a finite number above 0"),
        ({"validation": 1.0}, r"validation must be a share from 0 to below 1, got 1\.0"),
        ({"size": 0}, "size must be a number of pixels above 0, got 0"),
        ({"training": {"epoch": 3}}, "there is no setting 'epoch'; did you mean 'epochs'?"),
    ],
)
def test_impossible_jobs_are_refused(values, message):
    with pytest.raises(OptionError, match=message):
        Job.from_mapping({"data": "digits", **values})


def test_validation_is_taken_from_known_training_data_alone():
    prepared = prepare(job("digits", known="random:6", validation=0.2))
    kept, held = prepared.train.examples, prepared.validation.examples
    assert len(kept) + len(held) == 863
    assert len(held) == pytest.approx(0.2 * 863, abs=3)
    assert held.classes == kept.classes == prepared.split.known
    rows = {tuple(row) for row in kept.inputs.flatten(1).tolist()}
    assert not rows & {tuple(row) for row in held.inputs.flatten(1).tolist()}


def test_images_are_normalised_by_the_known_training_data():
    prepared = prepare(job("digits", known="random:6"))
    x = torch.cat([x for x, _ in prepared.train.epoch(0)])
    assert x.mean().item() == pytest.approx(0, abs=1e-3)
    assert x.std().item() == pytest.approx(1, abs=1e-3)


def test_sequences_are_normalised_without_their_padding():
    from openradial.training.preparation import _normalisation

    inputs = torch.tensor([[[1.0], [3.0]], [[5.0], [float("nan")]]])
    transform, numbers = _normalisation(job("digits"), inputs, "sequences")
    assert numbers["mean"] == [3.0]
    made = transform(inputs)
    assert made[1, 1].isnan().all()
    assert made[0, 1].item() == 0


def test_a_folder_of_images_is_trained_and_tested(photos):
    result = run_job(job(f"folder:{photos}", known="names:cat,dog", size=16, model="mlp", augment=True))
    assert result.test["known_examples"] == 20
    assert result.test["novel_examples"] == 10
    assert result.prepared.split.known == ("cat", "dog")


def test_a_broken_image_stops_or_is_left_out(photos):
    (photos / "train" / "cat" / "3.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"3\.png"):
        prepare(job(f"folder:{photos}", size=16))
    prepared = prepare(job(f"folder:{photos}", size=16, skip_broken=True, validation=0.0))
    assert len(prepared.train.labels) == 29


def test_a_folder_without_parts_says_what_is_expected(tmp_path):
    with pytest.raises(DataError, match=r"must have the folders train and val \(or test\)"):
        prepare(job(f"folder:{tmp_path}"))


def test_a_table_is_trained_with_novel_classes(tmp_path):
    random = np.random.default_rng(0)
    rows = [
        f"{x[0]},{x[1]},{name}" for name, c in zip("abc", (-2, 0, 2), strict=True) for x in random.normal(c, 1, (30, 2))
    ]
    (tmp_path / "t.csv").write_text("x,y,kind\n" + "\n".join(rows))
    result = run_job(job(f"table:{tmp_path / 't.csv'}", label="kind", known="names:a,c"))
    assert (result.test["known_examples"], result.test["novel_examples"]) == (12, 6)
    assert '"x"' in result.prepared.preprocessing["table"]


def test_augmenting_what_is_no_image_is_refused():
    with pytest.raises(OptionError, match="augment is for images, and spiral holds points"):
        prepare(job("spiral", augment=True))


def test_a_batch_must_divide_among_the_processes():
    with pytest.raises(OptionError, match="must be a multiple of 3, their number, got 16"):
        prepare(job("digits"), rank=0, world=3)


def test_the_usual_network_fits_the_data(photos):
    for values in ({"data": "digits"}, {"data": "spiral"}):
        made = Job.from_mapping(values)
        prepared = prepare(made)
        x, _ = next(prepared.test.epoch(0))
        assert make_net(made, prepared)(x).shape == (len(x), len(prepared.split.known))


def test_softmax_is_a_head_too():
    result = run_job(job("digits", head="softmax", known="random:6", training={"epochs": 3, "batch_size": 64}))
    assert 0.5 < result.test["auroc"] <= 1


def test_a_finished_run_is_used_like_any_weights(tmp_path):
    result = run_job(job("digits", known="random:6"), tmp_path / "run")
    for name in ("last", "best"):
        net = models.load_weights(models.build("mlp", 6, inputs=64), tmp_path / "run" / f"{name}.safetensors")
        assert torch.equal(net.classifier.weight, result.net.classifier.weight)
    facts = (tmp_path / "run" / "result.json").read_text()
    assert '"model": "mlp"' in facts


def test_weights_of_which_nothing_would_be_used_are_refused(tmp_path):
    run_job(job("digits"), tmp_path / "run")
    weights = str(tmp_path / "run" / "best.safetensors")
    with pytest.raises(
        WeightsError, match="all layers of MLP are fully connected and are reset; use reset='classifier'"
    ):
        run_job(job("digits", weights=weights))
    assert run_job(job("digits", weights=weights, reset="none")).history.records[0]["loss"] < 0.95


@pytest.mark.parametrize(
    ("data", "values", "message"),
    [
        ("digits", {"size": 28}, "size is for folders of images; digits has its own"),
        ("digits", {"known": "six"}, "known must be all, random:N, names:A,B,..., file:PATH or not:WNID, got 'six'"),
        ("folder:nowhere", {}, "there is no folder nowhere"),
    ],
)
def test_data_that_cannot_be_prepared_say_why(data, values, message):
    with pytest.raises((OptionError, DataError), match=message):
        prepare(job(data, **values))


def test_a_training_setting_at_the_top_of_a_file_is_sent_to_its_section():
    with pytest.raises(OptionError, match=r"the setting 'epochs' belongs into the section \[training\]"):
        Job.from_mapping({"data": "digits", "epochs": 3})


def test_an_accelerator_that_is_not_there_is_named():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(OptionError, match="training cannot start with accelerator='cuda', devices=1"):
        Devices(Settings(), accelerator="cuda")


@pytest.mark.parametrize("head", ["doc", "cac"])
def test_the_loop_trains_and_tests_every_head(head):
    result = run_job(job("digits", head=head, known="random:6", training={"epochs": 15, "batch_size": 64}))
    assert result.test["accuracy"] > 0.9
    assert result.test["auroc"] > 0.7


@pytest.mark.parametrize("head", ["radial", "softmax"])
def test_a_radial_layer_on_trained_features_starts_near_zero(tmp_path, photos, head):
    saved = tmp_path / "resnet.safetensors"
    save_file(models.build("resnet18", 7).state_dict(), saved)
    made = job(f"folder:{photos}", model="resnet18", weights=str(saved), head=head)
    last = make_net(made, prepare(made)).classifier
    assert (last.weight.std() < 2e-3) == (head == "radial")
    assert (last.bias.abs().max() == 0) == (head == "radial")
