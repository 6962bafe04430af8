import errno
import subprocess
import sys

import pytest
import torch
from torch import nn, optim

from openradial import files
from openradial.errors import TrainingError
from openradial.training import checkpoint
from openradial.training.devices import load_optimiser, optimiser_tensors

TENSORS = {"model.a": torch.arange(6.0).view(2, 3), "model.b": torch.tensor([True, False]), "step": torch.tensor(7)}


def test_a_checkpoint_comes_back_as_it_was(tmp_path):
    path = tmp_path / "new" / "last.safetensors"
    checkpoint.save(path, TENSORS, {"epoch": 3, "best": float("inf")})
    tensors, metadata = checkpoint.load(path)
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in tensors)
    assert metadata == {"epoch": 3, "best": float("inf")}


def test_tensors_that_share_memory_are_saved(tmp_path):
    shared = torch.arange(4.0)
    checkpoint.save(tmp_path / "c", {"a": shared, "b": shared.view(2, 2).T}, {})
    assert torch.equal(checkpoint.load(tmp_path / "c")[0]["b"], shared.view(2, 2).T)


@pytest.mark.parametrize("keep", [0, 5, 60, -1])
def test_a_truncated_checkpoint_is_named(tmp_path, keep):
    path = tmp_path / "last.safetensors"
    checkpoint.save(path, TENSORS, {})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(TrainingError, match=r"last\.safetensors is not a complete checkpoint .*; delete it"):
        checkpoint.load(path)


@pytest.mark.parametrize("text", ["{", "1" + "0" * 5000, "[" * 100_000], ids=["half", "digits", "brackets"])
def test_metadata_that_cannot_be_read_are_named(tmp_path, text):
    path = tmp_path / "last.safetensors"
    files.write_tensors(path, TENSORS, {"format": "1", "metadata": text})
    with pytest.raises(TrainingError, match=r"last\.safetensors is not a complete checkpoint .*; delete it"):
        checkpoint.load(path)


def test_metadata_that_are_no_object_are_named(tmp_path):
    files.write_tensors(tmp_path / "c", TENSORS, {"format": "1", "metadata": "[]"})
    with pytest.raises(TrainingError, match="must be a checkpoint of format 1"):
        checkpoint.load(tmp_path / "c")


def test_a_file_of_something_else_is_named(tmp_path):
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(1)}, tmp_path / "other")
    with pytest.raises(TrainingError, match="must be a checkpoint of format 1, got format None"):
        checkpoint.load(tmp_path / "other")


def test_a_missing_checkpoint_is_named(tmp_path):
    with pytest.raises(TrainingError, match=r"there is no checkpoint .*; start the run without --resume"):
        checkpoint.load(tmp_path / "none")


def test_a_full_disk_keeps_the_previous_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "last.safetensors"
    checkpoint.save(path, TENSORS, {"epoch": 1})

    def full(tensors, scratch, metadata):
        scratch.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "save_file", full)
    with pytest.raises(
        TrainingError, match=r"is full \(\d+ MB left\): no checkpoint was written; the previous checkpoint is complete"
    ):
        checkpoint.save(path, TENSORS, {"epoch": 2})
    assert checkpoint.load(path)[1] == {"epoch": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["last.safetensors"]


@pytest.mark.slow
def test_a_really_full_disk_keeps_the_previous_checkpoint(tmp_path):
    """The kernel refuses to write beyond a limit on file sizes, in the middle of the file."""
    program = """
import resource, signal, sys, torch
from pathlib import Path
from openradial.errors import TrainingError
from openradial.training import checkpoint
path = Path(sys.argv[1])
checkpoint.save(path, {"a": torch.zeros(10)}, {"epoch": 1})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    checkpoint.save(path, {"a": torch.zeros(100_000)}, {"epoch": 2})
except TrainingError as error:
    print(error)
"""
    path = tmp_path / "last.safetensors"
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
    assert "the previous checkpoint is complete" in done.stdout, done.stderr
    assert checkpoint.load(path)[1] == {"epoch": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["last.safetensors"]


@pytest.mark.parametrize(
    "make",
    [
        lambda p: optim.Adam(p, 0.01, fused=True),
        lambda p: optim.AdamW(p, 0.01),
        lambda p: optim.SGD(p, 0.01, momentum=0.9),
        lambda p: optim.RMSprop(p, 0.01, momentum=0.5),
    ],
)
def test_a_restored_optimiser_takes_the_same_steps(make):
    def net_and_optimiser():
        torch.manual_seed(0)
        net = nn.Linear(3, 2)
        return net, make(net.parameters())

    def step(net, optimiser, seed):
        torch.manual_seed(seed)
        optimiser.zero_grad()
        net(torch.randn(4, 3)).square().sum().backward()
        optimiser.step()

    net, optimiser = net_and_optimiser()
    for seed in range(3):
        step(net, optimiser, seed)
    other, again = net_and_optimiser()
    other.load_state_dict(net.state_dict())
    load_optimiser(other, again, optimiser_tensors(net, optimiser))
    for seed in range(3, 6):
        step(net, optimiser, seed)
        step(other, again, seed)
    assert torch.equal(net.weight, other.weight)
