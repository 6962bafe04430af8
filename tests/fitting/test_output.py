"""Everything about the folder of a model that can be wrong is said before training begins."""

import os
import shutil
from types import SimpleNamespace

import pytest
from filelock import FileLock

from openradial.bundle import load
from openradial.errors import OptionError
from openradial.fitting import fit, training_folder
from openradial.fitting.output import is_first_process
from tests.fitting.fit_data import write_table


@pytest.fixture
def table(tmp_path):
    return write_table(tmp_path / "t.csv", rows=60)


def refusal(table, out, **options):
    """The message of a fit that ends before training, and before anything is computed."""

    def started(prepared, settings):
        pytest.fail("the folder was not checked before training")

    with pytest.raises(OptionError) as raised:
        fit(table, label="kind", out=out, on_start=started, show_progress=False, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def quick(table, out, **options):
    return fit(table, label="kind", out=out, baseline=False, show_progress=False, **options)


@pytest.mark.parametrize("options", [{}, {"overwrite": True}])
def test_foreign_files_are_named_before_training(table, tmp_path, options):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    message = refusal(table, tmp_path / "mine", **options)
    assert ("only a bundle is overwritten" if options else "exists already; choose another folder") in message
    assert os.listdir(tmp_path / "mine") == ["thesis.txt"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("t.csv/below/model", "Not a directory"), ("n" * 250, "File name too long"), ("n" * 300, "File name too long")],
)
def test_a_path_that_cannot_be_written_is_one_sentence(table, tmp_path, name, reason):
    out = tmp_path / name
    assert refusal(table, out) == f"{out} cannot be written ({reason}); choose another path"


def test_the_root_is_no_folder_for_a_model(table):
    assert refusal(table, "/") == "/ is the root of the file system; name a path below it"


def test_a_disk_that_is_nearly_full_is_named(table, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10**5))
    expected = "needs about 1 MB, and the disk has 0 MB left; free some, or choose another path"
    assert refusal(table, tmp_path / "m").endswith(expected)


def test_checkpoints_of_a_network_need_space_for_several_copies(table, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=4 * 10**7))
    options = {"method": "gradient", "model": "mlp", "model_options": {"hidden": [2000, 2000]}, "epochs": 1}
    epochs = []
    with pytest.raises(OptionError, match=r"needs about 1\d\d MB, and the disk has 40 MB left"):
        quick(table, tmp_path / "m", on_epoch=epochs.append, **options)
    assert not epochs


def test_a_second_run_to_the_same_folder_is_refused(table, tmp_path):
    with FileLock(tmp_path / ".model.lock"):  # as another process holds it
        message = refusal(table, tmp_path / "model", overwrite=True)
    expected = f"another process is writing to {tmp_path / 'model'}; wait until it ends, or choose another folder"
    assert message == expected
    quick(table, tmp_path / "model", overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["model", "t.csv"]


def test_the_folder_is_held_while_a_model_is_fitted(table, tmp_path):
    messages = []
    quick(table, tmp_path / "model", on_start=lambda *_: messages.append(refusal(table, tmp_path / "model")))
    assert messages[0].startswith("another process is writing to")
    assert load(tmp_path / "model").classes


def test_a_run_that_failed_releases_the_folder(table, tmp_path):
    with pytest.raises(ZeroDivisionError):
        quick(table, tmp_path / "model", on_start=lambda *_: 1 / 0)
    assert quick(table, tmp_path / "model").classes
    assert sorted(os.listdir(tmp_path)) == ["model", "t.csv"]


def test_a_stopped_run_is_neither_lost_nor_forgotten(table, tmp_path):
    stopped = training_folder(tmp_path / "model")
    stopped.mkdir()
    (stopped / "last.safetensors").touch()
    message = refusal(table, tmp_path / "model")
    assert message.startswith(f"{stopped} has the checkpoint of a run that was stopped; resume it (--resume), or")
    assert (stopped / "last.safetensors").exists()
    quick(table, tmp_path / "model", overwrite=True)
    assert not stopped.exists()


def test_what_a_run_left_that_was_killed_before_its_first_checkpoint_is_removed(table, tmp_path):
    stopped = training_folder(tmp_path / "model")
    stopped.mkdir()
    (stopped / ".last.safetensors.part").touch()
    left = []
    quick(table, tmp_path / "model", on_start=lambda prepared, settings: left.append(stopped.exists()))
    assert left == [False]  # before training, not only at its end
    assert sorted(os.listdir(tmp_path)) == ["model", "t.csv"]


def test_a_replacement_that_was_interrupted_is_undone_before_training(table, tmp_path):
    quick(table, tmp_path / "model")
    (tmp_path / "model").rename(tmp_path / ".model.old")
    assert "exists already" in refusal(table, tmp_path / "model")
    assert load(tmp_path / "model").classes


def test_only_the_first_of_several_processes_writes(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert is_first_process()  # no launcher has set it
    monkeypatch.setenv("MASTER_PORT", "29500")
    assert not is_first_process()
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert is_first_process()


@pytest.mark.parametrize("name", ["overwrite", "resume", "tensorboard"])
def test_a_text_is_neither_true_nor_false(table, tmp_path, name):
    assert refusal(table, tmp_path / "m", **{name: "false"}) == f"{name} must be true or false, got 'false'"
