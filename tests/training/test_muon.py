import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from openradial.training import Settings
from openradial.training.muon import Muon, orthogonal
from openradial.training.settings import make_optimiser


def naive_orthogonal(matrix):
    """Newton-Schulz on singular values, one by one, in float64."""
    u, s, v = np.linalg.svd(np.asarray(matrix, np.float64), full_matrices=False)
    s = s / max(np.sqrt((s**2).sum()), 1e-7)
    for _ in range(3):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return u @ np.diag(s) @ v


@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 2**32 - 1), st.sampled_from([1e-6, 1.0, 1e6]))
def test_singular_values_change_and_vectors_stay(rows, columns, seed, scale):
    matrix = scale * torch.from_numpy(np.random.default_rng(seed).normal(size=(rows, columns))).float()
    made = orthogonal(matrix)
    # three steps of three products each with at most 7 terms, values of at most about 4 on the way
    np.testing.assert_allclose(made.numpy(), naive_orthogonal(matrix), atol=2e-4)
    torch.testing.assert_close(orthogonal(matrix.T), made.T)


@pytest.mark.parametrize("rank", [1, 4, 16, 100])
def test_equal_singular_values_come_near_1(rank):
    rows = torch.linalg.qr(torch.randn(200, rank, generator=torch.Generator().manual_seed(0)))[0].T
    values = torch.linalg.svdvals(orthogonal(rows * 1e-4))
    assert 0.65 < values.min() <= values.max() < 1.25
    assert torch.isfinite(orthogonal(torch.zeros(3, 4))).all()


def small_net():
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 3)]
    return nn.Sequential(*layers).double()


def test_steps_are_those_of_the_naive_twin():
    net, rate, momentum, factor, decay = small_net(), 0.1, 0.6, 0.3, 0.02
    optimiser = Muon(net, rate, momentum=momentum, bias_factor=factor, weight_decay=decay)
    for group in optimiser.param_groups:
        group["lr"] = rate * group["factor"]  # as the loop does
    weights = {name: parameter.detach().numpy().copy() for name, parameter in net.named_parameters()}
    averages = dict.fromkeys(weights, 0.0)
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        x, y = torch.randn(8, 2, 4, 4, generator=generator).double(), torch.arange(8) % 3
        net.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        for name, parameter in net.named_parameters():
            g, w = parameter.grad.numpy(), weights[name]
            averages[name] = momentum * averages[name] + g
            change = g + momentum * averages[name]
            if name == "0.weight":
                w = w * np.sqrt(len(w)) / np.linalg.norm(w)
            elif name == "3.weight":
                w = w * (1 - rate * decay)
            else:
                w = w * (1 - rate * factor * decay)
            if name in ("0.weight", "3.weight"):
                w = w - rate * naive_orthogonal(change.reshape(len(g), -1)).reshape(g.shape)
            else:
                w = w - rate * factor * change
            weights[name] = w
        optimiser.step()
        for name, parameter in net.named_parameters():
            np.testing.assert_allclose(parameter.detach().numpy(), weights[name], rtol=1e-9, atol=1e-12, err_msg=name)


def test_parameters_that_are_not_trained_stay():
    net = small_net()
    net[1].weight.requires_grad = False
    optimiser = make_optimiser(net, Settings(optimiser="muon", momentum=0.6, learning_rate=0.1))
    assert sum(len(group["params"]) for group in optimiser.param_groups) == 4
    optimiser.step()  # without gradients
    for mine, other in zip(net.parameters(), small_net().parameters(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize("size", [1.0, 1e4])
def test_the_size_of_a_step_does_not_depend_on_the_size_of_the_loss(size):
    nets = small_net(), small_net()
    x, y = torch.randn(8, 2, 4, 4, generator=torch.Generator().manual_seed(1)).double(), torch.arange(8) % 3
    for net, factor in zip(nets, (1.0, size), strict=True):
        optimiser = Muon(net, 0.1, momentum=0.6)
        (factor * nn.functional.cross_entropy(net(x), y)).backward()
        optimiser.step()
    for name in ("0.weight", "3.weight"):
        torch.testing.assert_close(*(net.get_parameter(name) for net in nets), rtol=1e-6, atol=1e-9)
