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
from openradial.training.devices import load_optimiser

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


@pytest.mark.parametrize("optimiser", ["sgd", "adam", "muon"])
def test_a_run_with_channels_innermost_is_resumed_with_the_same_bits(tmp_path, optimiser):
    x = torch.randn(24, 3, 5, 5, generator=torch.Generator().manual_seed(1))
    batches = Batches(Examples(x, torch.arange(24) % 3, tuple("abc")), 8)
    options = {"optimiser": optimiser, "channels_last": True, "momentum": 0.0 if optimiser == "adam" else 0.9}

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


def train_line(folder, epochs, **options):
    x, y = torch.arange(8.0)[:, None], torch.arange(8) % 2
    batches, settings = Batches(Examples(x, y, ("a", "b")), 4), Settings(epochs=epochs, **options)
    torch.manual_seed(0)
    objective = Objective(RadialLoss(), {"one": lambda o, y: torch.ones(len(y))})
    fit(nn.Linear(1, 2), objective, batches, batches, settings=settings, folder=folder, resume=True)


def without(values, key):
    return {name: value for name, value in values.items() if name != key}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t, m: (t, without(m, "settings")), "has no 'settings'"),
        (lambda t, m: (t, without(m, "scaler")), "has no 'scaler'"),
        (lambda t, m: (t, m | {"settings": []}), "settings.* must be a JSON object"),
        (lambda t, m: (t, m | {"settings": without(m["settings"], "learning_rate")}), "learning_rate = None, now it"),
        (lambda t, m: (t, m | {"position": [1, 2]}), r"position.* must be a JSON object, got \[1, 2\]"),
        (lambda t, m: (t, m | {"position": without(m["position"], "step")}), "position.* has no 'step'"),
        (lambda t, m: (t, m | {"position": m["position"] | {"epoch": "1"}}), "epoch.* must be a JSON whole number"),
        (lambda t, m: (t, m | {"position": m["position"] | {"sums": [0.0]}}), "1 sums, this run has 3"),
        (lambda t, m: (t, m | {"position": m["position"] | {"sums": [0.0, None, 0.0]}}), "must be a JSON number"),
        (lambda t, m: (t, m | {"position": m["position"] | {"other": 1}}), "other"),
        (lambda t, m: (t, m | {"processes": None}), "processes.* must be a JSON whole number, got None"),
        (lambda t, m: (t, m | {"sharded": 0}), "sharded.* must be a JSON boolean, got 0"),
        (lambda t, m: (t, m | {"metadata": 5}), "metadata.* must be a JSON object, got 5"),
        (lambda t, m: (without(t, "random.cpu"), m), "of .* tensors"),
        (lambda t, m: (without(t, "optimiser.0.exp_avg"), m), "of .* tensors"),
        (lambda t, m: (t | {"random.cpu": torch.zeros(1, 9, dtype=torch.uint8)}, m), "does not fit this run"),
        (lambda t, m: (t | {"random.cpu": torch.zeros(0)}, m), "does not fit this run"),
        (lambda t, m: (without(t, "random.cpu") | {"random.gpu": t["random.cpu"]}, m), "does not fit this run"),
        (lambda t, m: (without(t, "optimiser.0.step") | {"optimiser.a.step": torch.ones(())}, m), "does not fit"),
    ],
)
def test_a_checkpoint_with_other_contents_is_refused_in_one_sentence(tmp_path, change, reason):
    train_line(tmp_path, 1)
    path = tmp_path / "last.safetensors"
    checkpoint.save(path, *change(*checkpoint.load(path)))
    with pytest.raises(TrainingError, match=rf"last\.safetensors .*{reason}.*; (delete|change) it") as caught:
        train_line(tmp_path, 2)
    assert "\n" not in str(caught.value)


def test_best_weights_of_another_network_are_refused(tmp_path):
    train_line(tmp_path, 1, patience=1)
    checkpoint.save(tmp_path / "best.safetensors", {"model.weight": torch.zeros(2, 1)}, {})
    with pytest.raises(TrainingError, match=r"best\.safetensors holds another network"):
        train_line(tmp_path, 1, patience=1)


@pytest.mark.parametrize("line", ["5", "[1]", "null", "{"])
def test_a_log_of_other_lines_is_refused(tmp_path, line):
    train_line(tmp_path, 1)
    (tmp_path / "log.jsonl").write_text(f"{line}\n")
    with pytest.raises(TrainingError, match=r"log\.jsonl is damaged \(.*\); delete it and resume again"):
        train_line(tmp_path, 2)


def test_the_state_of_an_optimiser_of_other_parameters_is_refused():
    net = nn.Linear(2, 3)
    optimiser = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for tensors in ({"0.momentum_buffer": torch.zeros(2, 2)}, {"2.momentum_buffer": torch.zeros(3)}):
        with pytest.raises(TrainingError, match="trained other parameters; start a new run"):
            load_optimiser(net, optimiser, tensors)
