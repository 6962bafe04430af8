import pytest
import torch
from torch import nn

import openradial
from openradial import models
from openradial.data import Batches
from openradial.data.sets.spiral import spiral
from openradial.errors import OptionError
from openradial.training import Devices, Objective, Settings, fit, limited_threads, threads_for


@pytest.fixture
def two_threads():
    with limited_threads(2):
        yield


def images(size, channels=3):
    return torch.zeros(1, channels, size, size)


def tokens(length):
    return torch.zeros(1, length, dtype=torch.int64)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(
    ("name", "options", "x", "batch_size", "threads"),
    [
        ("spiral_radial", {}, torch.zeros(1, 2), 50, 1),
        ("mlp", {"inputs": 64, "hidden": (100, 100)}, torch.zeros(1, 64), 64, 1),
        ("mlp", {"inputs": 64, "hidden": (100, 100)}, torch.zeros(1, 1, 8, 8), 64, 1),  # flattened images
        ("mlp", {"inputs": 64, "hidden": (100, 100)}, torch.zeros(1, 64), 512, 2),
        ("mnist_radial", {}, images(28, 1), 64, 2),
        ("resnet18", {"stem": "small"}, images(32), 64, 2),
        ("gru", {"channels": 3, "hidden": 64}, torch.zeros(1, 10, 3), 32, 1),  # one step at a time: 32 * 3 * 64 * 64
        ("gru", {"channels": 12, "hidden": 64}, torch.zeros(1, 200, 12), 32, 2),
        ("text_cnn", {"vocabulary": 100_000, "embedding": 8, "filters": 4}, tokens(20), 32, 1),  # a lookup
        ("text_cnn", {"vocabulary": 1000}, tokens(20), 32, 2),
    ],
)
def test_small_networks_get_one_thread_and_large_ones_all(name, options, x, batch_size, threads):
    with torch.device("meta"):
        net = models.build(name, 10, **options)
    assert threads_for(net, x, batch_size) == threads


def test_no_more_threads_than_torch_uses():
    with limited_threads(1):
        assert threads_for(nn.Linear(5000, 5000), torch.zeros(1, 5000), 64) == 1


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(("width", "threads"), [(16, 1), (1200, 2)])
@pytest.mark.parametrize("fails", [False, True])
def test_training_uses_the_threads_of_its_size_and_restores_them(width, threads, fails):
    seen = []

    class Watching(Objective):
        def __call__(self, model, x, y):
            seen.append(torch.get_num_threads())
            if fails:
                raise RuntimeError("the objective failed")
            return super().__call__(model, x, y)

    net = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 3))
    batches = Batches(spiral(n=90), 45), Batches(spiral(n=30, seed=1), 30)
    settings = Settings(epochs=1, batch_size=1200)
    try:
        fit(net, Watching(openradial.RadialLoss()), *batches, settings=settings, show_progress=False)
    except RuntimeError:
        assert fails
    assert set(seen) == {threads}
    assert torch.get_num_threads() == 2


def test_a_device_that_does_not_exist_is_named():
    with pytest.raises(OptionError, match="training cannot start with accelerator='abacus', devices=1: "):
        Devices(Settings(), accelerator="abacus", devices=1)


@pytest.mark.parametrize("devices", [0, -1, "-1", "x", "1.5", "1000000", 10**30])
def test_devices_are_a_number_that_this_machine_can_have(devices):
    with pytest.raises(OptionError, match=r"devices must be auto or a number from 1 to \d+ on this machine, got "):
        Devices(Settings(), devices=devices)


def test_there_is_at_least_one_node():
    with pytest.raises(OptionError, match="nodes must be a whole number of at least 1, got 0"):
        Devices(Settings(), nodes=0)


def test_a_strategy_that_does_not_exist_is_refused():
    with pytest.raises(OptionError, match="strategy must be one of 'auto', 'ddp', 'fsdp', got 'dp'"):
        Devices(Settings(), strategy="dp")
