import json
import random
import signal
from pathlib import Path

import pytest
import torch
from torch import nn

from openradial import RadialLoss
from openradial.data import Batches, Examples
from openradial.errors import TrainingError
from openradial.training import Objective, Settings, checkpoint, fit
from openradial.training.sharding import load_optimiser

PROGRAM = Path(__file__).with_name("run_spiral.py")
STEPS = 21  # 3 epochs of 7 batches


@pytest.fixture(scope="module")
def run(programs):
    """Train in a process of its own; what it prints."""

    def call(folder, *options, expect=0):
        done = programs.run(PROGRAM, folder, *options, strict=True)
        assert done.returncode == expect, done.stderr
        return done.stdout.strip()

    return call


def weights(folder, name="last"):
    return checkpoint.load(folder / f"{name}.safetensors")[0]


def records(folder):
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [{name: value for name, value in json.loads(line).items() if "second" not in name} for line in lines]


def assert_same_run(folder, whole):
    for name in ("last", "best"):
        mine, theirs = weights(folder, name), weights(whole, name)
        assert mine.keys() == theirs.keys()
        for key in mine:
            assert torch.equal(mine[key], theirs[key]), key
    mine, theirs = records(folder), records(whole)
    assert mine == theirs


@pytest.fixture(scope="module")
def whole(tmp_path_factory, run):
    """A run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    assert run(folder, "--seconds", 1000) == "None True"
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_run_killed_at_random_points_ends_with_the_same_bits(tmp_path, run, whole, seed):
    draw = random.Random(seed)
    kills = (
        ["--die-at", draw.randrange(1, 8)],
        ["--die-writing", draw.randrange(1, 8)],
        ["--die-at", draw.randrange(1, 5)],
    )
    for kill in kills:
        run(tmp_path, "--resume", *kill, expect=-signal.SIGKILL)
    assert run(tmp_path, "--resume") == "None True"
    assert_same_run(tmp_path, whole)
    assert not list(tmp_path.glob(".*.part"))


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path, run, whole):
    run(tmp_path, "--die-writing", 0, expect=-signal.SIGKILL)
    assert [path.name for path in tmp_path.glob("*.safetensors")] == []
    run(tmp_path, "--resume")
    assert_same_run(tmp_path, whole)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_saves_and_ends_the_run_cleanly(tmp_path, run, whole, name):
    assert run(tmp_path, "--signal-at", 9, "--signal", name, "--seconds", 1000) == f"{name} False"
    metadata = checkpoint.load(tmp_path / "last.safetensors")[1]
    assert (metadata["position"]["epoch"], metadata["position"]["batch"]) == (1, 3)
    assert run(tmp_path, "--resume") == "None True"
    assert_same_run(tmp_path, whole)


def test_a_finished_run_that_is_resumed_changes_nothing(tmp_path, run, whole):
    run(tmp_path)
    assert run(tmp_path, "--resume") == "None True"
    assert_same_run(tmp_path, whole)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_a_run_with_channels_innermost_is_resumed_with_the_same_bits(tmp_path, optimiser):
    x = torch.randn(24, 3, 5, 5, generator=torch.Generator().manual_seed(1))
    batches = Batches(Examples(x, torch.arange(24) % 3, tuple("abc")), 8)
    options = {"optimiser": optimiser, "channels_last": True, "momentum": 0.9 if optimiser == "sgd" else 0.0}

    def train(folder, epochs, *, resume=False):
        torch.manual_seed(0)
        convolutions = (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 3, 3), nn.Flatten())
        net, settings = nn.Sequential(*convolutions), Settings(epochs=epochs, **options)
        fit(net, Objective(RadialLoss()), batches, settings=settings, folder=folder, resume=resume)
        return net

    whole = train(tmp_path / "whole", 4)
    train(tmp_path / "two", 2)
    resumed = train(tmp_path / "two", 4, resume=True)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name


def test_the_state_of_an_optimiser_of_other_parameters_is_refused():
    net = nn.Linear(2, 3)
    optimiser = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for tensors in ({"0.momentum_buffer": torch.zeros(2, 2)}, {"2.momentum_buffer": torch.zeros(3)}):
        with pytest.raises(TrainingError, match="trained other parameters; start a new run"):
            load_optimiser(net, optimiser, tensors)
