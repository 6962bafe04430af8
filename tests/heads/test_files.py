import errno
import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from openradial import files
from openradial.errors import DataError, HeadError
from openradial.heads import CACHead, DOCHead, RadialHead, SoftmaxHead, load_head, make_head, save_head
from openradial.scorers import Combination, NeighbourScorer


@pytest.fixture
def head():
    return DOCHead(3).fit(3 * torch.eye(3) - 1, torch.arange(3))


def write(path, facts, tensors=None, file_format="1"):
    """A head file with the given facts in its header."""
    save_file(tensors or {}, path, metadata={"format": file_format, "facts": json.dumps(facts)})
    return path


def test_a_head_comes_back_bit_for_bit(head, tmp_path):
    path = tmp_path / "new" / "folder" / "head.safetensors"
    save_head(head, path)
    loaded = load_head(str(path))
    assert type(loaded) is DOCHead
    assert loaded.settings() == head.settings() == {"num_classes": 3, "alpha": 3.0}
    assert torch.equal(loaded.sigma, head.sigma)
    assert torch.equal(loaded.counts, head.counts)


def test_numbers_in_the_settings_come_back_to_the_last_bit(tmp_path):
    save_head(CACHead(3, magnitude=1 / 3, anchor_weight=0.1 + 0.2), tmp_path / "head")
    loaded = load_head(tmp_path / "head")
    assert (loaded.magnitude, loaded.anchor_weight) == (1 / 3, 0.1 + 0.2)


def test_a_head_without_tensors_is_saved(tmp_path):
    save_head(RadialHead(3, beta=7.0), tmp_path / "head")
    assert load_head(tmp_path / "head").layer.beta == 7.0


def test_numbers_of_numpy_are_saved(tmp_path):
    save_head(RadialHead(np.int64(3), np.float32(0.5), cutoff=np.float32(0.25)), tmp_path / "head")
    layer = load_head(tmp_path / "head").layer
    assert (layer.num_classes, layer.beta, layer.cutoff) == (3, 0.5, 0.25)


def test_saving_again_replaces_the_file_and_leaves_nothing_else(head, tmp_path):
    save_head(SoftmaxHead(2), tmp_path / "head")
    save_head(head, tmp_path / "head")
    assert type(load_head(tmp_path / "head")) is DOCHead
    assert [file.name for file in tmp_path.iterdir()] == ["head"]


def test_the_file_is_safetensors_and_its_header_can_be_read(head, tmp_path):
    save_head(head, tmp_path / "head")
    tensors, header = files.read_tensors(tmp_path / "head")
    assert sorted(tensors) == ["counts", "sigma"]
    assert json.loads(header["facts"]) == {"head": "DOCHead", "settings": {"num_classes": 3, "alpha": 3.0}}


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=f"^{re.escape(f'there is no file {tmp_path}/none')}$"):
        load_head(tmp_path / "none")


@pytest.mark.parametrize("keep", [0, 5, 60, -1])
def test_a_truncated_file_is_named(head, tmp_path, keep):
    path = tmp_path / "head"
    save_head(head, path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(
        DataError, match=rf"^{re.escape(str(path))} is not a complete head file \(.*\); use another copy"
    ):
        load_head(path)


def test_a_folder_is_no_head(tmp_path):
    with pytest.raises(DataError, match="is a folder; name the file in it"):
        load_head(tmp_path)


def test_a_pickle_is_refused_unread(tmp_path):
    torch.save({"a": torch.zeros(1)}, tmp_path / "head.pt")
    with pytest.raises(DataError, match="is not a complete head file"):
        load_head(tmp_path / "head.pt")


def test_tensors_of_something_else_are_named(tmp_path):
    save_file({"a": torch.zeros(1)}, tmp_path / "other")
    with pytest.raises(DataError, match=r"other must be a head file of format 1, got format None$"):
        load_head(tmp_path / "other")


def test_another_format_is_named(tmp_path):
    path = write(tmp_path / "head", {"head": "DOCHead", "settings": {"num_classes": 3}}, file_format="2")
    with pytest.raises(DataError, match=r"head must be a head file of format 1, got format '2'$"):
        load_head(path)


@pytest.mark.parametrize("facts", ["{", "[]", "1", "[" * 100_000], ids=["half", "list", "number", "brackets"])
def test_a_damaged_header_is_named(tmp_path, facts):
    save_file({}, tmp_path / "head", metadata={"format": "1", "facts": facts})
    with pytest.raises(DataError, match=f"^{re.escape(str(tmp_path))}/head (is not a complete|must be a) head file"):
        load_head(tmp_path / "head")


def test_a_header_without_facts_is_named(tmp_path):
    save_file({}, tmp_path / "head", metadata={"format": "1"})
    with pytest.raises(DataError, match="is not a complete head file"):
        load_head(tmp_path / "head")


@pytest.mark.parametrize(
    ("name", "hint"), [("DOCHaed", "; did you mean 'DOCHead'?"), ("Oracle", ""), ("", ""), (["DOCHead"], "")]
)
def test_an_unknown_head_is_named_with_the_nearest_one(tmp_path, name, hint):
    path = write(tmp_path / "head", {"head": name, "settings": {"num_classes": 3}})
    with pytest.raises(DataError, match=f"^{re.escape('there is no head ')}.*{re.escape(hint)}$"):
        load_head(path)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"num_classes": 3, "beta": 1.0}, "got an unexpected keyword argument 'beta'"),
        ({}, "missing 1 required positional argument: 'num_classes'"),
        ({"num_classes": 3, "alpha": -1}, "alpha must be a finite number above 0, got -1"),
        ({"num_classes": "three"}, "num_classes must be a whole number of at least 1, got 'three'"),
        ([3], "argument after ** must be a mapping, not list"),
    ],
)
def test_settings_of_another_version_are_named(tmp_path, settings, reason):
    path = write(tmp_path / "head", {"head": "DOCHead", "settings": settings})
    message = "the settings of a DOCHead do not fit this version of openradial ("
    with pytest.raises(DataError, match=f"^{re.escape(message)}.*{re.escape(reason)}"):
        load_head(path)


@pytest.mark.parametrize(
    ("prototypes", "reason"),
    [
        (None, "'prototypes'"),
        ({"kind": "FixedPrototypes"}, "'prototypes.points'"),
        ({"kind": "AxisPrototypes"}, "'scale'"),
        ({"kind": "HelixPrototypes"}, "there are no prototypes 'HelixPrototypes'"),
    ],
)
def test_prototypes_of_another_version_are_named(prototypes, reason):
    settings = {"num_classes": 3} | ({} if prototypes is None else {"prototypes": prototypes})
    tensors = {"prototypes.points": torch.eye(3)} if reason.startswith("there") else {}
    with pytest.raises(DataError, match=rf"^the settings of a RadialHead do not fit .*\({re.escape(reason)}\)$"):
        make_head("RadialHead", settings, tensors)


def test_a_head_is_made_from_its_parts(head):
    made = make_head("DOCHead", head.settings(), head.tensors())
    assert torch.equal(made.thresholds, head.thresholds)


def test_a_full_disk_is_named_and_leaves_the_previous_head_whole(head, tmp_path, monkeypatch):
    path = tmp_path / "head"
    save_head(SoftmaxHead(2), path)

    def full(tensors, scratch, metadata):
        scratch.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "save_file", full)
    message = (
        f"the head cannot be written to {path} ([Errno 28] No space left on device); the previous file is unchanged"
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        save_head(head, path)
    assert type(load_head(path)) is SoftmaxHead
    assert [file.name for file in tmp_path.iterdir()] == ["head"]


def test_a_really_full_disk_leaves_the_previous_head_whole(tmp_path):
    """The kernel refuses to write beyond a limit on file sizes, in the middle of the file."""
    program = """
import resource, signal, sys, torch
from openradial.errors import DataError, HeadError
from openradial.heads import RadialHead, save_head
save_head(RadialHead(3, beta=7.0), sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    save_head(RadialHead(300, prototypes=torch.eye(300)), sys.argv[1])
except DataError as error:
    print(error)
"""
    path = tmp_path / "head"
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
    assert f"the head cannot be written to {path}" in done.stdout, done.stderr
    assert "the previous file is unchanged" in done.stdout
    assert load_head(path).layer.beta == 7.0
    assert [file.name for file in tmp_path.iterdir()] == ["head"]


def test_what_is_no_head_is_neither_saved_nor_loaded(tmp_path):
    with pytest.raises(DataError, match=r"only heads and scorers of openradial can be saved, got Linear"):
        save_head(torch.nn.Linear(2, 2), tmp_path / "net")
    files.write_tensors(tmp_path / "run", {}, {"format": "1", "facts": "{}"})
    with pytest.raises(DataError, match=r"run is not a head file, perhaps the checkpoint"):
        load_head(tmp_path / "run")


@pytest.mark.parametrize(("kind", "call"), [(Combination, "fit(scores)"), (NeighbourScorer, "fit(features)")])
def test_a_scorer_that_is_not_fitted_says_what_it_takes(kind, call):
    with pytest.raises(HeadError, match=f"must be fitted first: call {re.escape(call)} with known data"):
        kind().unknown_score(torch.zeros(2, 2))
