import copy
import re

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.func import functional_call, grad, jacrev, vmap

from openradial.bayes import (
    BayesConv1d,
    BayesConv2d,
    BayesEmbedding,
    BayesGRU,
    BayesLayer,
    BayesLinear,
    GaussianPrior,
    ScaleMixturePrior,
    to_bayesian,
)
from openradial.bayes.priors import rho_of, sigma_of
from openradial.errors import OptionError

LAYERS = {
    "linear": (lambda **options: BayesLinear(4, 3, **options), (6, 4)),
    "linear without bias": (lambda **options: BayesLinear(4, 3, bias=False, **options), (6, 4)),
    "conv1d": (lambda **options: BayesConv1d(2, 3, 3, padding=1, **options), (6, 2, 7)),
    "conv2d": (lambda **options: BayesConv2d(2, 4, 3, stride=2, groups=2, **options), (6, 2, 7, 7)),
    "reflecting conv2d": (
        lambda **options: BayesConv2d(2, 3, 3, padding=1, padding_mode="reflect", **options),
        (6, 2, 5, 5),
    ),
}
every_layer = pytest.mark.parametrize("name", LAYERS)
every_sampling = pytest.mark.parametrize("sampling", ["weights", "local", "flipout"])


def made(name, **options):
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    layer = make(**options)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -1.5, 0.5)
    return layer, torch.randn(shape)


@every_layer
def test_in_evaluation_a_layer_is_the_plain_one_with_its_means(name):
    layer, x = made(name)
    plain = copy.deepcopy(layer)
    plain.__class__ = layer.plain
    assert torch.equal(layer.eval()(x), plain(x))
    assert isinstance(layer, layer.plain)


@every_layer
@every_sampling
def test_outputs_have_the_moments_of_the_weights(name, sampling):
    layer, x = made(name, sampling=sampling)
    x = x[:1]
    with torch.no_grad():
        draws = torch.cat([layer(x) for _ in range(3000)])
        mean = layer.eval()(x)[0]
        twin = copy.deepcopy(layer)
        for part in layer.random:
            getattr(twin, part).copy_(sigma_of(getattr(layer, f"{part}_rho")).square())
        variance = twin(x.square())[0]
    torch.testing.assert_close(draws.mean(0), mean, rtol=0, atol=5 * float(variance.max()) ** 0.5 / 3000**0.5)
    torch.testing.assert_close(draws.var(0), variance, rtol=0.2, atol=0)


@every_layer
def test_one_draw_of_weights_serves_the_whole_batch(name):
    layer, x = made(name, sampling="weights")
    with torch.no_grad():
        o = layer(x[:1].expand_as(x))
    torch.testing.assert_close(o, o[:1].expand_as(o))


@every_layer
@pytest.mark.parametrize("sampling", ["local", "flipout"])
def test_noise_per_example_differs_between_examples(name, sampling):
    layer, x = made(name, sampling=sampling)
    with torch.no_grad():
        draws = torch.stack([layer(x[:1].expand(2, *x.shape[1:])) for _ in range(1500)])  # (draws, 2, ...)
    first, second = (draws[:, i].flatten(1) - draws[:, i].flatten(1).mean(0) for i in (0, 1))
    correlation = (first * second).mean(0) / (first.std(0) * second.std(0))
    assert correlation.abs().max() < 0.15


@every_sampling
def test_gradients_are_those_of_finite_differences(sampling):
    layer = BayesLinear(3, 2, dtype=torch.float64, sampling=sampling)
    x = torch.randn(4, 3, dtype=torch.float64)
    start = [parameter.detach().clone().requires_grad_() for parameter in layer.parameters()]
    names = [name for name, _ in layer.named_parameters()]

    def run(*parameters):
        torch.manual_seed(7)
        return functional_call(layer, dict(zip(names, parameters, strict=True)), (x,)).square().sum()

    assert torch.autograd.gradcheck(run, start)


def test_local_noise_has_a_gradient_where_nothing_varies():
    layer = BayesLinear(3, 2, bias=False, sampling="local")
    layer(torch.zeros(4, 3)).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in layer.parameters())


@every_layer
@every_sampling
def test_nothing_that_was_drawn_stays_on_the_layer(name, sampling, tmp_path):
    layer, x = made(name, sampling=sampling)
    before = {key: value for key, value in vars(layer).items() if key != "_parameters"}
    layer(x).sum().backward()
    assert {key: value for key, value in vars(layer).items() if key != "_parameters"} == before
    copied = copy.deepcopy(layer)
    save_file(layer.state_dict(), tmp_path / "layer.safetensors")
    copied.load_state_dict(load_file(tmp_path / "layer.safetensors"))
    torch.manual_seed(3)
    expected = layer(x)
    torch.manual_seed(3)
    assert torch.equal(copied(x), expected)


def test_two_calls_in_one_graph_are_two_draws():
    layer, x = made("linear")
    first, second = layer(x), layer(x)
    (first + second).sum().backward()
    assert not torch.equal(first, second)
    assert layer.weight_rho.grad.abs().sum() > 0


@every_sampling
def test_torch_func_can_differentiate_and_stack_a_layer(sampling):
    layer, x = made("linear", sampling=sampling)
    parameters = {name: parameter.detach() for name, parameter in layer.named_parameters()}

    def loss(parameters):
        return functional_call(layer, parameters, (x,)).square().sum()

    slopes = grad(loss)(parameters)
    assert {name: slope.shape for name, slope in slopes.items()} == {name: p.shape for name, p in parameters.items()}
    assert jacrev(loss)(parameters).keys() == parameters.keys()
    stacked = {name: torch.stack([parameter] * 3) for name, parameter in parameters.items()}
    losses = vmap(loss, randomness="different")(stacked)
    assert len(set(losses.tolist())) == 3


def test_the_parameters_that_train_are_those_that_predict_after_a_move():
    layer = BayesLinear(2, 1).double()
    x, before = torch.ones(1, 2, dtype=torch.float64), {name: p.clone() for name, p in layer.named_parameters()}
    optimiser = torch.optim.SGD(layer.parameters(), 0.1)
    outputs = [layer.eval()(x)]
    layer.train()(x).sum().backward()
    optimiser.step()
    outputs.append(layer.eval()(x))
    assert outputs[0] != outputs[1]
    assert all((before[name] != parameter).any() for name, parameter in layer.named_parameters())


def test_a_layer_can_start_anew():
    layer = BayesLinear(3, 2, sigma=0.1)
    before = layer.weight.clone()
    nn.init.zeros_(layer.weight_rho)
    layer.reset_parameters()
    assert (layer.weight != before).any()
    torch.testing.assert_close(layer.weight_rho, torch.full((2, 3), rho_of(0.1)))


def test_the_row_for_padding_stays_as_it_is():
    layer = BayesEmbedding(5, 3, padding_idx=2, sigma=1.0)
    tokens = torch.tensor([[0, 2, 4]])
    drawn = layer(tokens)
    assert torch.equal(drawn[0, 1], layer.weight[2])
    assert (drawn[0, 0] != layer.weight[0]).all()
    assert torch.equal(layer.eval()(tokens), nn.functional.embedding(tokens, layer.weight))


def test_a_frozen_parameter_is_not_random():
    plain, x = nn.Linear(4, 3), torch.randn(6, 4)
    plain.weight.requires_grad_(False)
    for sampling in ("weights", "local", "flipout"):
        mixed = to_bayesian(plain, sampling=sampling)
        assert mixed.random == ("bias",)
        assert (mixed(x) != mixed(x)).all()
        noise = mixed(x) - mixed.eval()(x)
        assert noise.abs().max() < 0.2  # 10 of the bias's deviations


def test_a_layer_shows_its_prior():
    assert repr(BayesLinear(2, 3, prior=GaussianPrior(0.5))) == (
        "BayesLinear(in_features=2, out_features=3, bias=True, GaussianPrior(sigma=0.5))"
    )
    assert issubclass(BayesGRU, BayesLayer)


def test_the_default_prior_is_the_papers():
    prior = BayesLinear(2, 3).prior
    assert isinstance(prior, ScaleMixturePrior)
    assert (prior.pi, prior.sigma1**2, prior.sigma2**2) == pytest.approx((0.35, 1.0, 0.0183))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampling": "locally"}, "sampling must be one of 'weights', 'local', 'flipout', got 'locally'"),
        ({"prior": 1.0}, "prior must be a ScaleMixturePrior or a GaussianPrior, got float"),
        ({"sigma": 0.0}, "sigma must be a finite number above 0, got 0.0"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        BayesLinear(2, 3, **options)
