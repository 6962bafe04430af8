import os
import shutil
from pathlib import Path

import pytest
import torch
from made_bundles import CLASSES, image_bundle, point_bundle

from openradial.bundle import load, save
from openradial.bundle import saving as steps
from openradial.classifier import OpenClassifier
from openradial.conformal import Rejector
from openradial.data.inputs import PointInputs
from openradial.errors import BundleError, OptionError
from openradial.heads import DOCHead, RadialHead
from openradial.models import build
from openradial.scorers import NormScorer


def changed(bundle):
    """Another bundle of the same kind."""
    return bundle.replace(classes=CLASSES[::-1])


def test_something_that_is_there_is_left_alone(tmp_path):
    folder = save(point_bundle(), tmp_path / "model")
    message = f"{folder} exists already; choose another folder, or replace it with overwrite (--overwrite)"
    with pytest.raises(OptionError) as raised:
        save(changed(point_bundle()), folder)
    assert str(raised.value) == message
    assert load(folder).classes == CLASSES


def test_a_bundle_is_replaced_where_that_is_allowed(tmp_path):
    folder = save(point_bundle(), tmp_path / "model")
    save(changed(point_bundle()), folder, overwrite=True)
    assert load(folder).classes == CLASSES[::-1]
    assert os.listdir(tmp_path) == ["model"]


def test_an_empty_folder_may_become_a_bundle(tmp_path):
    (tmp_path / "model").mkdir()
    assert load(save(point_bundle(), tmp_path / "model")).classes == CLASSES


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_folder_that_is_no_bundle_is_never_replaced(tmp_path, overwrite):
    (tmp_path / "thesis.txt").write_text("all of it")
    with pytest.raises(OptionError):
        save(point_bundle(), tmp_path, overwrite)
    assert (tmp_path / "thesis.txt").read_text() == "all of it"


def test_a_bundle_with_other_files_in_it_is_not_replaced(tmp_path):
    folder = save(point_bundle(), tmp_path / "model")
    (folder / "report.html").touch()
    message = f"only a bundle is overwritten, and {folder} also holds report.html; move it first"
    with pytest.raises(OptionError) as raised:
        save(point_bundle(), folder, overwrite=True)
    assert str(raised.value) == message


def test_a_file_is_no_place_for_a_bundle(tmp_path):
    (tmp_path / "model").touch()
    with pytest.raises(OptionError, match=r"a model is a folder, and .*model is a file; choose another path$"):
        save(point_bundle(), tmp_path / "model", overwrite=True)


class Interrupted(BaseException):
    """A key press, at the worst time."""


def interrupt(*arguments, **options):
    raise Interrupted


@pytest.mark.parametrize("step", ["write_tensors", "checksum", "write_text", "card", "sync", "_replace"])
def test_an_interrupted_save_leaves_the_old_bundle_whole(tmp_path, monkeypatch, step):
    folder = save(point_bundle(), tmp_path / "model")
    monkeypatch.setattr(steps, step, interrupt)
    with pytest.raises(Interrupted):
        save(changed(point_bundle()), folder, overwrite=True)
    assert load(folder).classes == CLASSES
    assert os.listdir(tmp_path) == ["model"]


def test_an_interrupt_between_the_two_renames_brings_the_old_bundle_back(tmp_path, monkeypatch):
    folder = save(point_bundle(), tmp_path / "model")
    rename = Path.rename

    def once(self, target):
        if self.name == ".model.part":
            raise Interrupted
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", once)
    with pytest.raises(Interrupted):
        save(changed(point_bundle()), folder, overwrite=True)
    assert load(folder).classes == CLASSES
    assert os.listdir(tmp_path) == ["model"]


def test_a_power_cut_between_the_two_renames_is_made_good(tmp_path):
    folder = save(point_bundle(), tmp_path / "model")
    folder.rename(tmp_path / ".model.old")
    with pytest.raises(
        BundleError, match=r"does not exist; a save was interrupted, and the bundle before it is .*\.old$"
    ):
        load(folder)
    with pytest.raises(OptionError, match="exists already"):
        save(changed(point_bundle()), folder)
    assert load(folder).classes == CLASSES


def test_a_disk_that_fails_is_one_sentence(tmp_path, monkeypatch):
    folder = save(point_bundle(), tmp_path / "model")

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(steps, "write_tensors", full)
    with pytest.raises(BundleError) as raised:
        save(point_bundle(), folder, overwrite=True)
    assert str(raised.value) == (
        f"the bundle cannot be written to {folder} ([Errno 28] No space left on device); an existing one is unchanged"
    )


def test_left_overs_of_a_killed_save_are_cleared_away(tmp_path):
    (tmp_path / ".model.part").mkdir()
    (tmp_path / ".model.part" / "weights.safetensors").touch()
    save(point_bundle(), tmp_path / "model")
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_half_precision_come_back_as_float32(tmp_path, dtype):
    bundle = point_bundle()
    bundle.net.to(dtype)
    bias = load(save(bundle, tmp_path / "model")).net.classifier.bias
    assert bias.dtype == torch.float32
    assert torch.equal(bias, bundle.net.classifier.bias.float())


def test_a_network_that_went_wrong_is_not_saved(tmp_path):
    bundle = point_bundle()
    bundle.net.classifier.bias.data[1] = torch.nan
    message = "finite, and 'network.classifier.bias' holds nan: training went wrong; train again$"
    with pytest.raises(BundleError, match=message):
        save(bundle, tmp_path / "model")
    assert os.listdir(tmp_path) == []


class UserHead(RadialHead):
    """A head that no file can name."""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head": DOCHead(3)}, "all parts of a bundle must be fitted, and DOCHead is not; see OpenClassifier"),
        ({"head": UserHead(3)}, "a bundle holds heads and scorers of openradial, got UserHead"),
        ({"rejector": Rejector()}, "the rejector of a bundle must be calibrated; see OpenClassifier.calibrate"),
    ],
)
def test_parts_that_could_not_be_loaded_are_not_saved(options, message, tmp_path):
    made = OpenClassifier(build("spiral_radial", 3), **{"head": RadialHead(3), **options})
    with pytest.raises(OptionError, match=message):
        save(
            made.replace(network=("spiral_radial", {}), classes=CLASSES, preprocessing=PointInputs(2)),
            tmp_path / "model",
        )


@pytest.mark.parametrize(
    ("network", "options", "message"),
    [
        ("spiral_radial", {"hidden": 3}, "the network 'spiral_radial' has no option 'hidden'"),
        ("spiral_softmax", {}, r"the weights do not fit the MLP: 'hidden.fc3.weight' should be"),
        (
            "mlp",
            {"inputs": 2, "hidden": [50]},
            r"the weights .*: 'hidden.fc2.weight' should be missing and is \(50, 50\)",
        ),
    ],
)
def test_a_network_that_its_name_does_not_make_is_not_saved(network, options, message, tmp_path):
    odd = point_bundle().replace(network=(network, options))
    with pytest.raises(OptionError, match=f"^network and options must build the network of the model again: {message}"):
        save(odd, tmp_path / "model")


@pytest.mark.parametrize("metadata", [{"loss": float("nan")}, {"net": object()}, {"labels": {1, 2}}])
def test_metadata_that_json_cannot_hold_is_not_saved(metadata, tmp_path):
    odd = point_bundle().replace(metadata=metadata)
    with pytest.raises(OptionError, match=r"^metadata must be JSON values: strings, finite numbers, lists, dicts"):
        save(odd, tmp_path / "model")


def test_a_link_to_a_bundle_is_followed(tmp_path):
    folder = save(image_bundle(), tmp_path / "model")
    (tmp_path / "link").symlink_to(folder)
    assert load(tmp_path / "link").classes == CLASSES
    save(changed(image_bundle()), tmp_path / "link", overwrite=True)
    assert load(folder).classes == CLASSES[::-1]
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"preprocessing": PointInputs(2)}, r"saved with the name of its network.*set network=\(name, options\)"),
        (
            {"network": ("spiral_radial", {})},
            r"saved with its preprocessing, and this one has none; set preprocessing=",
        ),
    ],
)
def test_a_model_that_lacks_network_name_or_preprocessing_is_not_saved(given, message, tmp_path):
    with pytest.raises(OptionError, match=message):
        OpenClassifier(build("spiral_radial", 3), RadialHead(3), **given).save(tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_a_model_saves_itself(tmp_path):
    folder = point_bundle().save(tmp_path / "model")
    assert load(folder).classes == CLASSES
    with pytest.raises(OptionError, match="exists already"):
        point_bundle().save(folder)
    changed(point_bundle()).save(folder, overwrite=True)
    assert load(folder).classes == CLASSES[::-1]


@pytest.mark.parametrize("layer", ["inputs", "outputs"])
def test_a_far_axis_is_saved_with_its_layer(tmp_path, layer):
    model = point_bundle()
    x = torch.randn(50, 2)
    rows = x if layer == "inputs" else model(x).detach()
    model = model.replace(far_axis=NormScorer().fit(rows), far_layer=layer)
    again = load(save(model, tmp_path / "model"))
    assert again.far_layer == layer
    for mine, theirs in zip(again.decide(100 * x), model.decide(100 * x), strict=True):
        assert torch.equal(mine, theirs)
    assert "far axis" in (tmp_path / "model" / "card.md").read_text()
    assert load(save(point_bundle(), tmp_path / "other")).far_axis is None
