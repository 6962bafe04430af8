import pytest
import torch
from torch import nn

from openradial import OpenRadialError
from openradial.models import MLP, MnistCNN, build


def count(name, num_classes=1000, **options):
    with torch.device("meta"):  # no memory: only shapes
        return sum(parameter.numel() for parameter in build(name, num_classes, **options).parameters())


PUBLISHED = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "efficientnet_lite0": 4_652_008,
    "efficientnet_lite1": 5_416_680,
    "efficientnet_lite2": 6_092_072,
    "mobilenetv2": 3_504_872,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_counts_are_the_published_ones(name):
    assert count(name) == PUBLISHED[name]


def test_the_mnist_network_has_the_parameters_of_the_table():
    convolutions = (25 * 1 + 1) * 10 + (25 * 10 + 1) * 20
    connected = (20 * 4 * 4 + 1) * 100 + (100 + 1) * 100 + (100 + 1) * 10
    for name in ("mnist_softmax", "mnist_radial", "mnist_radial_dropout"):
        assert count(name, 10) == convolutions + connected


def kinds(module):
    """Layers that compute something, in order, as the paper writes them."""
    words = []
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            words.append(f"FC-{layer.out_features}")
        elif isinstance(layer, nn.Conv2d):
            words.append(f"Conv{layer.kernel_size[0]}-{layer.out_channels}")
        elif not list(layer.children()):
            names = {"BatchNorm2d": "BN", "MaxPool2d": "MaxPool", "AdaptiveAvgPool2d": "AvgPool"}
            words.append(names.get(type(layer).__name__, type(layer).__name__))
    return words


def test_spiral_networks_are_those_of_the_table():
    softmax = ["FC-50", "ReLU", "FC-50", "ReLU", "FC-2", "ReLU", "FC-3"]
    radial = ["FC-50", "ReLU", "FC-50", "ReLU", "FC-50", "ReLU", "FC-3"]
    assert kinds(build("spiral_softmax", 3)) == softmax
    assert kinds(build("spiral_radial", 3)) == radial


def trace(model, x):
    """Layers in the order in which they run."""
    ran = []
    for name, layer in model.named_children():
        layer.register_forward_hook(lambda *_, name=name: ran.append(name))
    model(x)
    return ran


def test_the_mnist_network_runs_in_the_order_of_the_table():
    table = "conv1 pool relu conv2 drop pool relu fc1 relu drop fc2 relu classifier"
    assert trace(MnistCNN(10, dropout=0.5), torch.zeros(1, 1, 28, 28)) == table.split()


def test_the_third_mnist_variant_drops_half_and_the_others_nothing():
    assert build("mnist_radial_dropout", 10).drop.p == 0.5
    assert build("mnist_softmax", 10).drop.p == build("mnist_radial", 10).drop.p == 0


def test_the_mnist_network_equals_the_paper_written_as_functions():
    torch.manual_seed(0)
    model, x = MnistCNN(10), torch.randn(3, 1, 28, 28)
    f = nn.functional
    z = f.relu(f.max_pool2d(f.conv2d(x, model.conv1.weight, model.conv1.bias), 2))
    z = f.relu(f.max_pool2d(f.conv2d(z, model.conv2.weight, model.conv2.bias), 2))
    z = f.relu(f.linear(z.reshape(3, 320), model.fc1.weight, model.fc1.bias))
    z = f.relu(f.linear(z, model.fc2.weight, model.fc2.bias))
    torch.testing.assert_close(model(x), f.linear(z, model.classifier.weight, model.classifier.bias))


@pytest.mark.parametrize(("channels", "size"), [(1, 16), (3, 32), (1, (28, 20))])
def test_the_mnist_network_takes_other_images(channels, size):
    height, width = (size, size) if isinstance(size, int) else size
    assert MnistCNN(10, channels=channels, size=size)(torch.zeros(2, channels, height, width)).shape == (2, 10)


def test_a_network_without_hidden_layers_is_affine():
    model = MLP(3, inputs=4, hidden=())
    x = torch.randn(2, 4)
    assert torch.equal(model.forward_features(x), x)


def test_dropout_of_an_mlp_follows_each_hidden_layer():
    assert kinds(MLP(3, inputs=4, hidden=(8, 6), dropout=0.2)) == [
        "FC-8", "ReLU", "Dropout", "FC-6", "ReLU", "Dropout", "FC-3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MLP(3, inputs=0), "inputs must be a whole number of at least 1, got 0"),
        (
            lambda: MLP(3, inputs=2, hidden=(5, -1)),
            "hidden must be a tuple of whole numbers of at least 1, got (5, -1)",
        ),
        (lambda: MLP(3, inputs=2, dropout=1.0), "dropout must be at least 0 and below 1, got 1.0"),
        (lambda: MnistCNN(10, dropout="half"), "dropout must be at least 0 and below 1, got 'half'"),
        (lambda: MLP(3, inputs=2, hidden=50), "hidden must be a tuple of whole numbers of at least 1, got 50"),
        (lambda: MnistCNN(10, size=12), "size must be a whole number of at least 16 pixels, or two, got 12"),
        (lambda: MnistCNN(10, size="28"), "size must be a whole number of at least 16 pixels, or two, got '28'"),
        (lambda: MnistCNN(10, size=(28,)), "size must be a whole number of at least 16 pixels, or two, got (28,)"),
    ],
)
def test_a_bad_setting_is_named(make, message):
    with pytest.raises(OpenRadialError) as caught:
        make()
    assert str(caught.value) == message
