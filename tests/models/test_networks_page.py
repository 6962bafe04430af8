import re
from pathlib import Path

import pytest
import torch
from torch import nn

from openradial import models

PAGE = (Path(__file__).parents[2] / "docs" / "networks.md").read_text()
ROWS = re.findall(r"^\| `(\w+)` \| [^|]+ \| `(build\([^`]+\))` \| ([\d,]+) \|", PAGE, re.MULTILINE)


def test_the_page_lists_every_network_once():
    assert [name for name, _, _ in ROWS] == models.names()


@pytest.mark.parametrize(("name", "call", "number"), ROWS)
def test_the_page_has_the_right_number_of_parameters(name, call, number):
    assert call.startswith(f'build("{name}", ')
    with torch.device("meta"):
        model = eval(call, {"build": models.build})
    assert f"{sum(parameter.numel() for parameter in model.parameters()):,}" == number


@pytest.mark.parametrize(
    ("make", "places"),
    [
        (lambda: models.build("spiral_softmax", 3), re.findall(r"`(hidden\.fc\d|classifier)`", PAGE)),
        (
            lambda: models.build("mnist_radial", 10),
            ["conv1", "conv2", "pool", "relu", "drop", "fc1", "fc2", "classifier"],
        ),
    ],
)
def test_the_layers_that_the_page_names_exist(make, places):
    model = make()
    assert places
    for place in places:
        model.get_submodule(place)


def test_the_poolings_of_vgg_end_the_runs_that_the_page_names():
    runs = [(int(a), int(b)) for a, b in re.findall(r"`convolutions\.(\d+)` to `(\d+)`", PAGE)]
    layers = models.VGG19(5, width=1 / 16, hidden=(8, 8)).convolutions
    poolings = [i for i, layer in enumerate(layers) if isinstance(layer, nn.MaxPool2d)]
    assert [end for _, end in runs] == poolings
    assert [start for start, _ in runs] == [0, *(i + 1 for i in poolings[:-1])]


def test_the_network_that_the_page_writes_works():
    code = re.search(r"```python\n(class Net.*?)```", PAGE, re.DOTALL)[1]
    namespace = {"models": models, "nn": nn}
    exec(code, namespace)
    model = namespace["Net"](3)
    assert model(torch.zeros(2, 8)).shape == (2, 3)
