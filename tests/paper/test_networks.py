"""The large networks of the paper have the layers, the numbers of parameters and the start that were published."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from openradial.errors import ShapeError
from openradial.models import build, load_weights
from paper.networks import VGG19, AlexNet, vgg19_bn_fc8192, vgg19_bn_small

PAGE = (Path(__file__).parents[2] / "docs" / "networks.md").read_text()
SMALL = {
    AlexNet: lambda k=5: AlexNet(k, hidden=(8, 8)),
    VGG19: lambda k=5: VGG19(k, width=1 / 16, hidden=(8, 8)),
}
TORCHVISION = {  # our names and those of torchvision
    AlexNet: {
        "convolutions.": "features.", "hidden.fc1.": "classifier.1.", "hidden.fc2.": "classifier.4.",
        "classifier.": "classifier.6.",
    },
    VGG19: {
        "convolutions.": "features.", "hidden.fc1.": "classifier.0.", "hidden.fc2.": "classifier.3.",
        "classifier.": "classifier.6.",
    },
}  # fmt: skip
both_networks = pytest.mark.parametrize("kind", SMALL)


def count(factory, num_classes=1000):
    with torch.device("meta"):  # no memory: only shapes
        return sum(parameter.numel() for parameter in factory(num_classes).parameters())


def torchvision_state(model):
    pairs, state = TORCHVISION[type(model)], {}
    for name, value in model.state_dict().items():
        prefix = next((prefix for prefix in pairs if name.startswith(prefix)), "")
        state[pairs.get(prefix, "") + name.removeprefix(prefix)] = value
    return state


def test_parameter_counts_are_the_published_ones():
    assert count(AlexNet) == 61_100_840
    assert count(VGG19) == 143_678_248
    connected = (512 * 7 * 7 + 1) * 8192 + (8192 + 1) * 8192 + (8192 + 1) * 1000
    usual = (512 * 7 * 7 + 1) * 4096 + (4096 + 1) * 4096 + (4096 + 1) * 1000
    assert count(vgg19_bn_fc8192) - connected == count(VGG19) - usual


def test_the_page_has_the_right_numbers_of_parameters():
    rows = re.findall(r"^\| `paper\.networks:(\w+)` \| [^|]+ \| ([\d,]+) \|", PAGE, re.MULTILINE)
    factories = {"AlexNet": AlexNet, "VGG19": VGG19, "vgg19_bn_fc8192": vgg19_bn_fc8192}
    assert {name: number for name, number in rows if name in factories} == {
        name: f"{count(factory):,}" for name, factory in factories.items()
    }
    assert dict(rows)["vgg19_bn_small"] == f"{count(vgg19_bn_small, 10):,}"


def kind_of(layer):
    if isinstance(layer, nn.Linear):
        return f"FC-{layer.out_features}"
    if isinstance(layer, nn.Conv2d):
        return f"Conv{layer.kernel_size[0]}-{layer.out_channels}"
    names = {"BatchNorm2d": "BN", "MaxPool2d": "MaxPool", "AdaptiveAvgPool2d": "AvgPool"}
    return names.get(type(layer).__name__, type(layer).__name__)


def test_vgg_is_that_of_the_supplement():
    table = []
    for repeats, channels in ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512)):
        table += [f"Conv3-{channels}", "BN", "ReLU"] * repeats + ["MaxPool"]
    table += ["AvgPool", "FC-8192", "ReLU", "FC-8192", "ReLU", "FC-1000"]
    with torch.device("meta"):
        layers = [layer for layer in vgg19_bn_fc8192(1000).modules() if not list(layer.children())]
    assert [kind_of(layer) for layer in layers] == table


def test_the_poolings_of_vgg_end_the_runs_that_the_page_names():
    runs = [(int(a), int(b)) for a, b in re.findall(r"`convolutions\.(\d+)` to `(\d+)`", PAGE)]
    layers = SMALL[VGG19]().convolutions
    poolings = [i for i, layer in enumerate(layers) if isinstance(layer, nn.MaxPool2d)]
    assert [end for _, end in runs] == poolings
    assert [start for start, _ in runs] == [0, *(i + 1 for i in poolings[:-1])]


@both_networks
def test_gradients_reach_every_parameter(kind):
    torch.manual_seed(0)
    model = SMALL[kind]()
    model(torch.randn(4, 3, kind.least, kind.least)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


@both_networks
def test_the_smallest_image_works_and_one_pixel_less_names_the_least(kind):
    model, least = SMALL[kind]().eval(), kind.least
    assert model(torch.zeros(1, 3, least, least)).shape == (1, 5)
    assert model(torch.zeros(1, 3, least + 9, least)).shape == (1, 5)
    with pytest.raises(ShapeError, match=f"at least {least} x {least} pixels, got"):
        model(torch.zeros(1, 3, least, least - 1))
    with pytest.raises(ShapeError, match=r"expected images \(b, 3, h, w\)"):
        model(torch.zeros(1, 1, least, least))


@both_networks
def test_the_names_of_torchvision_are_understood(kind, tmp_path):
    torch.manual_seed(0)
    model = SMALL[kind]().eval()
    state = torchvision_state(model)
    last = "features.49.weight" if kind is VGG19 else "features.10.bias"
    assert {"features.0.weight", last, "classifier.6.bias"} <= set(state)
    torch.save(state, tmp_path / "imagenet.pth")
    other = load_weights(SMALL[kind](), tmp_path / "imagenet.pth").eval()
    x = torch.randn(2, 3, kind.least, kind.least)
    assert torch.equal(other(x), model(x))


def test_building_with_weights_resets_the_fully_connected_layers_as_in_the_paper(tmp_path):
    model = SMALL[VGG19]()
    torch.save(torchvision_state(model), tmp_path / "imagenet.pth")
    # Other widths, another number of layers and of classes: all belong to layers that are reset.
    options = {"width": 1 / 16, "hidden": (32,), "pool": 2}
    built = build("paper.networks:VGG19", 7, weights=tmp_path / "imagenet.pth", **options)
    assert torch.equal(built.convolutions[0].weight, model.convolutions[0].weight)
    assert built.classifier.out_features == 7


def test_layers_of_vgg_start_as_published():
    torch.manual_seed(0)
    model = VGG19(1000, hidden=(256, 256), width=0.25)
    model.reset_classifier(500)
    for layer in (model.hidden.fc1, model.classifier):
        assert layer.weight.std().item() == pytest.approx(0.01, rel=0.02)
        assert not layer.bias.any()
    layer = model.convolutions[-4]
    assert layer.weight.std().item() == pytest.approx((2 / (layer.out_channels * 9)) ** 0.5, rel=0.01)
