import pytest
import torch
from small_networks import SMALL, small
from torch import nn

from openradial.errors import OptionError
from openradial.models import Network, build, names

every_network = pytest.mark.parametrize("name", SMALL)


def test_every_network_is_tested_small_or_is_a_size_of_one_that_is():
    assert set(names()) - set(SMALL) == {"features"}  # which has no layers, see test_features


@every_network
def test_outputs_have_one_column_per_class(name):
    model, inputs = small(name, num_classes=7)
    assert model(inputs(3)).shape == (3, 7)
    assert model(inputs(1)).shape == (1, 7)
    assert model(inputs(0)).shape == (0, 7)


@every_network
def test_features_then_classifier_is_forward(name):
    model, inputs = small(name)
    x = inputs(3)
    assert isinstance(model, Network)
    assert isinstance(model.get_classifier(), nn.Linear)
    assert model.forward_features(x).shape == (3, model.num_features)
    assert torch.equal(model.get_classifier()(model.forward_features(x)), model(x))


@every_network
def test_a_reset_classifier_has_the_new_number_of_outputs_and_keeps_the_features(name):
    model, inputs = small(name)
    model.double()
    x = inputs(3)
    x = x.double() if x.is_floating_point() else x
    z = model.forward_features(x)
    model.reset_classifier(9)
    assert model(x).shape == (3, 9)
    assert model.classifier.weight.dtype == torch.float64
    assert model.num_features == model.classifier.in_features
    assert torch.equal(model.forward_features(x), z)


@every_network
def test_networks_return_outputs_and_not_log_probabilities(name):
    model, inputs = small(name)
    with torch.no_grad():
        model.classifier.weight.zero_()
        model.classifier.bias.copy_(torch.tensor([3.0, -1.0, 0.0, 0.5, 2.0]))
    torch.testing.assert_close(model(inputs(2)), model.classifier.bias.expand(2, -1))


def test_a_reset_classifier_is_initialised_as_published():
    torch.manual_seed(0)
    model = build("efficientnet_lite0", 10)
    model.reset_classifier(400)
    assert model.classifier.weight.abs().max().item() == pytest.approx(400**-0.5, rel=0.01)
    assert not model.classifier.bias.any()


def test_a_reset_classifier_needs_at_least_one_output():
    with pytest.raises(OptionError, match=r"^num_classes must be a whole number of at least 1, got 0$"):
        build("spiral_radial", 3).reset_classifier(0)


@every_network
def test_gradients_reach_every_parameter(name):
    model, inputs = small(name, seed=1)  # with seed 0 both units of spiral_softmax's last layer are dead
    model.train()
    model(inputs(4)).square().sum().backward()
    for parameter_name, parameter in model.named_parameters():
        if not parameter.requires_grad:  # a fixed layer
            continue
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.any(), parameter_name


@every_network
def test_a_seed_fixes_the_start(name):
    first, other = small(name, seed=1)[0].state_dict(), small(name, seed=2)[0].state_dict()
    again = small(name, seed=1)[0].state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["classifier.weight"], other["classifier.weight"])


@every_network
def test_the_result_for_one_input_does_not_depend_on_the_batch(name):
    model, inputs = small(name)
    x = inputs(5)
    if x.is_floating_point():  # in float32 the order of sums shows
        x = x.double()
    model.double()
    torch.testing.assert_close(torch.cat([model(x[i : i + 1]) for i in range(5)]), model(x))


@every_network
def test_the_state_can_be_saved_and_loaded(name):
    model, inputs = small(name, seed=1)
    other = small(name, seed=2)[0]
    other.load_state_dict(model.state_dict())
    x = inputs(2)
    assert torch.equal(other(x), model(x))


@every_network
def test_one_class_is_enough(name):
    assert small(name, num_classes=1)[0].classifier.out_features == 1


@pytest.mark.parametrize("name", ["resnet18", "efficientnet_lite0"])
def test_convolutions_start_as_published(name):
    torch.manual_seed(0)
    model = build(name, 10)
    layer = max((m for m in model.modules() if isinstance(m, nn.Conv2d)), key=lambda m: m.weight.numel())
    fan_out = layer.out_channels * layer.kernel_size[0] * layer.kernel_size[1]
    assert layer.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.01)
    assert layer.weight.mean().item() == pytest.approx(0, abs=0.001)


def test_the_classifier_of_efficientnet_starts_uniform():
    torch.manual_seed(0)
    weight = build("efficientnet_lite0", 400).classifier.weight
    assert weight.abs().max().item() == pytest.approx(400**-0.5, rel=0.01)
    assert weight.std().item() == pytest.approx(400**-0.5 / 3**0.5, rel=0.01)
