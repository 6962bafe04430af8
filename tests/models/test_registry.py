import inspect
import sys

import pytest
import torch
from torch import nn

from openradial.errors import OptionError
from openradial.models import build, names, options

OWN_NETWORKS = """
import torch
from torch import nn

SIZE = 3

def net(num_classes, width=4):
    return nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, num_classes))

def other_name(k):
    return nn.Linear(2, k)

def anything(**settings):
    return nn.Linear(settings["inputs"], settings["num_classes"])

def not_a_network(num_classes):
    return [num_classes]

class Shop:
    @staticmethod
    def net(num_classes):
        return nn.Linear(2, num_classes)
"""


@pytest.fixture
def own_networks(tmp_path, monkeypatch):
    """A module of a user's, on the path."""
    (tmp_path / "own_networks.py").write_text(OWN_NETWORKS)
    (tmp_path / "half_installed.py").write_text("import a_package_that_is_missing")
    (tmp_path / "outdated.py").write_text("from torch import no_such_name")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("own_networks", "half_installed", "outdated"):
        sys.modules.pop(name, None)


def message_of(name, num_classes=3, **settings):
    with pytest.raises(OptionError) as caught:
        build(name, num_classes, **settings)
    return str(caught.value)


def test_names_are_unique_and_each_has_options():
    assert len(names()) == len(set(names()))
    for name in names():
        assert "num_classes" not in options(name)


def test_options_are_those_of_the_network_without_what_the_name_fixes():
    assert options("spiral_softmax") == {}
    assert options("resnet50") == {
        "channels": 3,
        "stem": "imagenet",
        "stride_in": "3x3",
        "norm_eps": 1e-5,
        "width": 64,
    }
    assert options("mlp") == {"inputs": inspect.Parameter.empty, "hidden": (50, 50, 50), "dropout": 0.0}


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        (
            "resnet51",
            {},
            "there is no network 'resnet51'; did you mean 'resnet50'?; your own",
        ),
        ("mnist_radal", {}, "there is no network 'mnist_radal'; did you mean 'mnist_radial'"),
        ("resnet18", {"chanels": 1}, "the network 'resnet18' has no option 'chanels'; did you mean 'channels'"),
        ("resnet18", {"depth": 34}, "the network 'resnet18' has no option 'depth'"),
        ("spiral_radial", {"zzz": 1}, "the network 'spiral_radial' has no option 'zzz'; its options are: none"),
        ("mlp", {}, "the network 'mlp' needs the option 'inputs'; call build('mlp', ..., inputs=...)"),
        ("gru", {}, "the network 'gru' needs the option 'channels'; call build('gru', ..., channels=...)"),
    ],
)
def test_a_wrong_name_or_option_is_answered_with_the_nearest(name, settings, message):
    assert message_of(name, **settings).startswith(message)


def test_a_name_like_no_other_is_answered_with_all():
    assert message_of("qqqq").startswith(f"there is no network 'qqqq'; the networks are: {', '.join(names())}")


@pytest.mark.parametrize("number", [0, -1, 2.5, True, "10"])
def test_the_number_of_classes_must_be_a_positive_whole_number(number):
    assert message_of("spiral_radial", number) == f"num_classes must be a whole number of at least 1, got {number!r}"


@pytest.mark.usefixtures("own_networks")
def test_a_network_of_the_users_is_built():
    assert build("own_networks:net", 3, width=7)[0].out_features == 7
    assert build("own_networks:other_name", 3).out_features == 3
    assert build("own_networks:anything", 3, inputs=5).in_features == 5
    assert build("own_networks:Shop.net", 3).out_features == 3
    assert build("torch.nn:LazyLinear", 3).out_features == 3


@pytest.mark.usefixtures("own_networks")
@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        (
            "own_nets:net",
            {},
            "there is no module 'own_nets'; install its package, or add its folder to PYTHONPATH",
        ),
        (
            "own_networks.deeper:net",
            {},
            "there is no module 'own_networks.deeper'; install its package, or add its folder to PYTHONPATH",
        ),
        (
            "half_installed:net",
            {},
            "'half_installed' cannot be imported: No module named 'a_package_that_is_missing'; install what it needs",
        ),
        ("outdated:net", {}, "'outdated' cannot be imported: cannot import name 'no_such_name' from 'torch'"),
        (
            "own_networks:nett",
            {},
            "'own_networks' has no 'nett'; it has: Shop, anything, net, not_a_network, other_name",
        ),
        (
            "own_networks:SIZE",
            {},
            "expected 'own_networks:SIZE' to be a function or class",
        ),
        (
            "own_networks:SIZE.real.x",
            {},
            "'own_networks' has no 'SIZE.real.x'; it has: Shop, anything, net, not_a_network, other_name",
        ),
        (
            "own_networks:not_a_network",
            {},
            "expected 'own_networks:not_a_network' to return an nn.Module",
        ),
        (
            "own_networks:net",
            {"depth": 3},
            "'own_networks:net' cannot be called with these options: got an unexpected keyword argument 'depth'; "
            "it takes (num_classes, width=4)",
        ),
        (":net", {}, "expected a factory as package.module:factory, got ':net'"),
        ("own_networks:", {}, "expected a factory as package.module:factory, got 'own_networks:'"),
        (".own:net", {}, "expected a factory as package.module:factory, got '.own' for the module"),
    ],
)
def test_what_is_wrong_with_a_network_of_the_users_is_said(name, settings, message):
    assert message_of(name, **settings).startswith(message)


@pytest.mark.usefixtures("own_networks")
def test_weights_of_a_network_of_the_users_are_loaded(tmp_path):
    torch.manual_seed(0)
    saved = build("own_networks:net", 3)
    torch.save(saved.state_dict(), tmp_path / "own.pth")
    loaded = build("own_networks:net", 3, weights=tmp_path / "own.pth", reset="none")
    x = torch.randn(2, 2)
    assert torch.equal(loaded(x), saved(x))
    assert isinstance(loaded, nn.Sequential)
