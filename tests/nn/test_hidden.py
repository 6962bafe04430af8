import pytest
import torch

from openradial.errors import HeadError
from openradial.models import build
from openradial.nn import hidden_layers


def test_layers_come_as_rows_from_one_pass():
    net, x = build("mnist_radial", 10).eval(), torch.randn(3, 1, 28, 28)
    found = hidden_layers(net, x, ["outputs", "conv2", "fc1", "inputs", "classifier:input"])
    assert list(found) == ["outputs", "conv2", "fc1", "inputs", "classifier:input"]
    assert torch.equal(found["classifier:input"], net.forward_features(x))
    assert torch.equal(found["outputs"], net(x))
    assert torch.equal(found["inputs"], x.flatten(1))
    assert found["conv2"].shape == (3, 20 * 8 * 8)
    expected = torch.nn.functional.relu(net.fc2(torch.relu(found["fc1"])))
    torch.testing.assert_close(net.classifier(expected), net(x))


def test_the_network_is_left_without_hooks_even_after_an_error():
    net = build("mnist_radial", 10)
    with pytest.raises(Exception, match="expected images"):
        hidden_layers(net, torch.randn(3, 5), ["fc1"])
    assert not net.fc1._forward_hooks


def test_a_layer_that_does_not_exist_is_named_with_those_that_do():
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    with pytest.raises(HeadError, match=r"the network has no layer 'fc1'; its layers are: 0, 1"):
        hidden_layers(net, torch.zeros(1, 2), ["fc1"])
