import re

import numpy as np
import pytest
import torch
from torch import nn

from openradial.bayes import BayesEmbedding, BayesLinear, GaussianPrior, ScaleMixturePrior, posterior, to_bayesian
from openradial.bayes.layers import given
from openradial.bayes.prediction import run_with
from openradial.errors import OptionError
from openradial.models import MLP


def net():
    torch.manual_seed(0)
    return to_bayesian(MLP(3, inputs=2, hidden=(5, 4)), sigma=0.3)


def naive_kl(layers, noise):
    """Sum over all weights of log q - log p at a draw, its noise squared averaged; the paper's prior; plain loops."""
    total, at = 0.0, 0
    for layer in layers:
        for name in ("weight", "bias"):
            means, rhos = (getattr(layer, key).detach().double().flatten() for key in (name, f"{name}_rho"))
            for mean, rho in zip(means.tolist(), rhos.tolist(), strict=True):
                sigma = np.log1p(np.exp(rho))
                w = mean + sigma * noise[at]
                wide = 0.35 * np.exp(-(w**2) / 2) / np.sqrt(2 * np.pi)
                narrow = 0.65 * np.exp(-(w**2) / 2 / 0.0183) / np.sqrt(2 * np.pi * 0.0183)
                total += -np.log(sigma) - 0.5 * np.log(2 * np.pi * np.e) - np.log(wide + narrow)
                at += 1
    return total


def test_the_divergence_is_a_sum_over_all_weights():
    model = net()
    q = posterior(model)
    noise = q.noise()
    layers = [module for module in model.modules() if isinstance(module, BayesLinear)]
    assert float(q.kl(noise).detach()) == pytest.approx(naive_kl(layers, noise.double().tolist()), rel=1e-5)


def test_the_divergence_depends_on_parameters_and_noise_alone():
    model = net()
    noise = posterior(model).noise()
    first = posterior(model).kl(noise)
    model(torch.randn(4, 2))
    assert torch.equal(posterior(model.eval()).kl(noise), first)
    assert not torch.equal(posterior(model).kl(noise + 1), first)


def test_the_divergence_has_the_gradients_of_finite_differences():
    model = net().double()
    parameters = [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]
    names = [name for name, _ in model.named_parameters()]
    noise = posterior(model).noise()

    class Divergence(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self):
            return posterior(self.model).kl(noise)

    def run(*values):
        state = {f"model.{name}": value for name, value in zip(names, values, strict=True)}
        return torch.func.functional_call(Divergence(), state, ())

    assert torch.autograd.gradcheck(run, parameters)


def test_draws_have_the_moments_of_the_gaussians():
    q = posterior(net())
    with torch.no_grad():
        draws = q.draw(20_000)
        z = (draws - q.mean) / q.sigma
    n = z.shape[1]
    assert z.mean(0).abs().max() < 5 / 20_000**0.5
    assert (z.var(0) - 1).abs().max() < 5 * (2 / 20_000) ** 0.5
    covariance = z.T @ z / len(z) - torch.eye(n)
    assert covariance.abs().max() < 6 / 20_000**0.5  # also between layers
    assert abs(float((z**4).mean()) - 3) < 0.02


def test_weights_come_back_under_the_names_of_the_network():
    model = net()
    q = posterior(model)
    named = q.named(q.weights(torch.zeros_like(q.mean)))
    own = dict(model.named_parameters())
    assert list(named) == [name for name in own if not name.endswith("_rho")]
    assert all(torch.equal(weight, own[name]) for name, weight in named.items())


def test_a_network_with_given_weights_draws_nothing_itself():
    model, x = net().train(), torch.randn(4, 2)
    q = posterior(model)
    weights = q.named(q.weights(q.noise()))
    assert torch.equal(run_with(model, given(weights), x), run_with(model, given(weights), x))
    model.eval()
    assert torch.equal(run_with(model, weights, x), run_with(model, given(weights), x))


def test_noise_and_draws_use_the_same_formula():
    q = posterior(net())
    with torch.no_grad():
        torch.manual_seed(1)
        drawn = q.draw(3)
        torch.manual_seed(1)
        noise = torch.randn(3, len(q.mean))
        assert torch.equal(drawn, q.weights(noise))


class Tied(nn.Module):
    """An embedding whose weights are also those of the last layer, and a layer that is used twice."""

    def __init__(self):
        super().__init__()
        self.embedding, self.out, self.twice = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False), nn.Linear(4, 4)
        self.out.weight = self.embedding.weight
        self.again = self.twice

    def forward(self, x):
        return self.out(self.again(self.twice(self.embedding(x).mean(1))))


def test_shared_weights_count_once_and_are_drawn_once():
    model = to_bayesian(Tied(), sigma=0.5)
    assert model.out.weight is model.embedding.weight
    assert model.out.weight_rho is model.embedding.weight_rho
    q = posterior(model)
    assert len(q.mean) == 7 * 4 + 4 * 4 + 4
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    x = torch.tensor([[1, 2], [3, 4]])
    w = q.weights(q.noise())
    found = run_with(model, given(q.named(w)), x)
    table, middle, shift = w[:28].view(7, 4), w[28:44].view(4, 4), w[44:]
    h = table[x].mean(1)
    for _ in range(2):
        h = h @ middle.T + shift
    torch.testing.assert_close(found, h @ table.T)
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


def test_each_layer_keeps_its_own_prior():
    first, second = BayesLinear(2, 3, prior=GaussianPrior(0.5)), BayesLinear(3, 2, prior=ScaleMixturePrior())
    third = BayesLinear(2, 2, prior=GaussianPrior(0.5))
    q = posterior(nn.Sequential(first, second, third))
    noise = q.noise()
    parts = noise.split([9, 8, 6])
    alone = [posterior(layer).kl(part) for layer, part in zip((first, second, third), parts, strict=True)]
    torch.testing.assert_close(q.kl(noise), sum(alone))


def test_padding_counts_for_nothing():
    layer = BayesEmbedding(5, 3, padding_idx=2)
    q = posterior(layer)
    noise = q.noise()
    q.kl(noise).backward()
    assert layer.weight.grad[2].abs().sum() == 0
    assert layer.weight_rho.grad[2].abs().sum() == 0
    assert (layer.weight.grad[[0, 1, 3, 4]] != 0).all()
    kept = torch.ones(5, dtype=torch.bool)
    kept[2] = False
    smaller = BayesEmbedding(4, 3)
    smaller.load_state_dict({name: value[kept] for name, value in layer.state_dict().items()})
    torch.testing.assert_close(posterior(smaller).kl(noise.view(5, 3)[kept].flatten()), q.kl(noise))
    assert torch.equal(q.weights(noise).view(5, 3)[2], layer.weight[2])


def test_a_plain_network_has_no_posterior():
    message = "the network has no random weights; make it Bayesian with to_bayesian(network)"
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        posterior(nn.Linear(2, 3))
