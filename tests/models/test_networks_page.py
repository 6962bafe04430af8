import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from openradial import models
from openradial.models import pretrained

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
    ("make", "layers"),
    [
        (lambda: models.build("spiral_softmax", 3), re.findall(r"`(hidden\.fc\d|classifier)`", PAGE)),
        (
            lambda: models.build("mnist_radial", 10),
            ["conv1", "conv2", "pool", "relu", "drop", "fc1", "fc2", "classifier"],
        ),
    ],
)
def test_the_layers_that_the_page_names_exist(make, layers):
    model = make()
    assert layers
    for layer in layers:
        model.get_submodule(layer)


@pytest.fixture
def offline_weights(monkeypatch):
    """Random weights instead of the published ones."""
    for name in ("efficientnet_lite0", "resnet50"):
        known = models.imagenet_weights(name)
        state = models.build(name, 1000, **known.options).state_dict()
        own = replace(known, read=lambda folder, state=state: state, installed=lambda: "anywhere")
        monkeypatch.setitem(pretrained.IMAGENET, name, own)


@pytest.mark.usefixtures("offline_weights")
def test_the_snippets_of_the_page_run_one_after_the_other(python_blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for block in python_blocks("networks.md"):
        exec(block, namespace)
    shapes = [tuple(namespace[name].shape) for name in ("x", "z", "o")]
    assert shapes == [(5, 1, 28, 28), (5, 100), (5, 3)]
    assert namespace["model"](namespace["x"]).shape == (5, 3)
    net = namespace["Net"](4, width=6)
    net.reset_classifier(2)
    assert (net.num_features, net(torch.zeros(2, 8)).shape) == (6, (2, 2))
