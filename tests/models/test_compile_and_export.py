import pytest
import torch
from small_networks import SMALL, small
from torch.export import Dim, export

from openradial.models import imagenet

pytestmark = pytest.mark.compile

# resnet34 has the blocks of resnet18 twice, and EfficientNets repeat those of the smallest; the others differ in sizes.
ALIKE = {
    "spiral_radial",
    "mnist_radial",
    "mnist_radial_dropout",
    "resnet34",
    "efficientnet_lite1",
    "efficientnet_lite2",
}
every_network = pytest.mark.parametrize("name", [name for name in SMALL if name not in ALIKE])


@pytest.fixture(autouse=True)
def one_repeated_block(monkeypatch):
    """Repeat blocks in one stage alone: tracing the same block again takes long."""
    for network in (imagenet.EfficientNetLite, imagenet.MobileNetV2):
        stages = tuple((min(repeats, 2 if i == 1 else 1), *kind) for i, (repeats, *kind) in enumerate(network.stages))
        monkeypatch.setattr(network, "stages", stages)
    for depth in imagenet.DEPTHS:
        monkeypatch.setitem(imagenet.DEPTHS, depth, (2, 1, 1, 1))


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@every_network
def test_the_exported_program_takes_any_batch_and_gives_the_same(name):
    model, inputs = small(name)
    program = export(model, (inputs(3),), dynamic_shapes=({0: Dim("b")},)).module()
    for b in (1, 3, 7):
        x = inputs(b)
        torch.testing.assert_close(program(x), model(x))


@every_network
def test_the_network_is_one_graph_for_the_compiler(name):
    # The backend "eager" runs the captured graph as it is: inductor would compile C++ for minutes.
    model, inputs = small(name)
    x = inputs(3)
    torch.testing.assert_close(torch.compile(model, backend="eager", fullgraph=True)(x), model(x))


@pytest.mark.parametrize("name", ["mlp", "mnist_radial", "resnet18", "gru", "lstm", "text_cnn"])
def test_compiled_training_has_the_same_gradients(name):
    # "aot_eager" also traces the backward pass, without compiling kernels; one network of each kind.
    model, inputs = small(name)
    x = inputs(3)
    found = []
    for run in (model, torch.compile(model, backend="aot_eager", fullgraph=True)):
        model.zero_grad()
        run(x).square().sum().backward()
        found.append([parameter.grad.clone() for parameter in model.parameters()])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_the_default_compiler_takes_the_spiral_network():
    model, inputs = small("spiral_radial")
    x = inputs(3)
    torch.testing.assert_close(torch.compile(model)(x), model(x))


def test_a_traced_network_still_works_and_trains():
    model, inputs = small("lstm")
    export(model, (inputs(3),))
    torch.compile(model, backend="eager")(inputs(3))
    model(inputs(3)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
