import copy
import re

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from openradial import LearnedPrototypes, RadialLinear, models, replace_head
from openradial.bayes import BayesLayer, GaussianPrior, freeze, posterior, to_bayesian
from openradial.bayes.prediction import run_stacked, run_with
from openradial.bayes.priors import rho_of
from openradial.errors import OptionError


class Attention(models.Network):
    """A user's network: attention, a parameter of its own, and an activation with a parameter."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 12))
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
        self.act, self.classifier = nn.PReLU(), nn.Linear(12, 3)

    def forward_features(self, x):
        x = torch.cat([self.token.expand(len(x), 1, 12), x], 1)
        return self.act(self.attention(x, x, x, need_weights=False)[0][:, 0])


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer, self.out = kind(12, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.layer(x)[0][:, -1])


NETWORKS = {
    "mlp": (lambda: models.build("mlp", 10, inputs=16), lambda: torch.randn(4, 16)),
    "cnn": (lambda: models.build("mnist_radial", 10), lambda: torch.randn(4, 1, 28, 28)),
    "gru": (lambda: models.build("gru", 9, channels=12), lambda: torch.randn(4, 7, 12)),
    "lstm": (lambda: models.build("lstm", 9, channels=12), lambda: torch.randn(4, 7, 12)),
    "text_cnn": (lambda: models.build("text_cnn", 5, vocabulary=50), lambda: torch.randint(0, 50, (4, 7))),
    "resnet18": (lambda: models.build("resnet18", 10, stem="small", width=8), lambda: torch.randn(2, 3, 16, 16)),
    "radial head": (lambda: replace_head(models.build("mlp", 10, inputs=16), 4), lambda: torch.randn(4, 16)),
    "nn.GRU": (lambda: Recurrent(nn.GRU), lambda: torch.randn(4, 7, 12)),
    "nn.LSTM": (lambda: Recurrent(nn.LSTM), lambda: torch.randn(4, 7, 12)),
    "attention": (Attention, lambda: torch.randn(4, 7, 12)),
    "transformer": (
        lambda: nn.Sequential(nn.TransformerEncoderLayer(12, 3, 16, batch_first=True), nn.Flatten(), nn.Linear(84, 3)),
        lambda: torch.randn(4, 7, 12),
    ),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(1, 2, 3), nn.Flatten()), lambda: torch.randn(4, 1, 4, 4)),
}
every_network = pytest.mark.parametrize("name", NETWORKS)


def made(name):
    torch.manual_seed(0)
    make, inputs = NETWORKS[name]
    return make().eval(), inputs()


@every_network
def test_in_evaluation_a_bayesian_network_is_the_one_it_was_made_from(name):
    net, x = made(name)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    bayesian = to_bayesian(net)
    torch.testing.assert_close(bayesian.eval()(x), net(x))
    assert all(torch.equal(net.state_dict()[key], value) for key, value in before.items())
    assert set(before) <= set(bayesian.state_dict())


@every_network
def test_freezing_gives_the_plain_network_back(name):
    net, x = made(name)
    frozen = freeze(to_bayesian(net)).eval()
    assert [type(part) for part in frozen.modules()] == [type(part) for part in net.modules()]
    assert all(torch.equal(frozen.state_dict()[key], value) for key, value in net.state_dict().items())
    assert frozen.state_dict().keys() == net.state_dict().keys()
    assert torch.equal(frozen(x), net(x))
    assert not any("prior" in vars(part) for part in frozen.modules())


@every_network
def test_in_training_every_call_draws_all_weights(name):
    net, x = made(name)
    bayesian = to_bayesian(net, sigma=0.05).eval()
    for part in bayesian.modules():
        part.training = isinstance(part, BayesLayer)  # no dropout, no batch statistics
    assert (bayesian(x) != bayesian(x)).any()
    random = [name for name, _ in bayesian.named_parameters() if name.endswith("_rho")]
    (bayesian(x).square().sum() + posterior(bayesian).kl(posterior(bayesian).noise())).backward()
    slopes = {name: parameter.grad for name, parameter in bayesian.named_parameters() if name in random}
    assert all(slope is not None and slope.abs().sum() > 0 for slope in slopes.values())
    copy.deepcopy(bayesian)


@every_network
def test_a_stack_of_draws_gives_what_each_gives_alone(name):
    net, x = made(name)
    bayesian = to_bayesian(net, sigma=0.02).eval()
    q = posterior(bayesian)
    with torch.no_grad():
        weights = q.draw(3)
        alone = torch.stack([run_with(bayesian, q.named(row), x) for row in weights])
        stacked = run_stacked(bayesian, q.named(weights), x)
    torch.testing.assert_close(stacked, alone, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(alone[0], alone[1], rtol=1e-4, atol=1e-4)


def test_normalisation_activations_and_prototypes_stay_as_they_are():
    net = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.GroupNorm(1, 2), nn.PReLU(), nn.Flatten(), nn.LayerNorm(18),
        RadialLinear(18, 3, prototypes=LearnedPrototypes(3, 3)),
    )  # fmt: skip
    random = [name for name, _ in to_bayesian(net).named_parameters() if name.endswith("_rho")]
    assert random == ["0.weight_rho", "0.bias_rho", "6.affine.weight_rho", "6.affine.bias_rho"]


def test_weights_start_anew_by_choice():
    net = models.build("gru", 3, channels=2)
    anew = to_bayesian(net, keep_weights=False)
    kept = to_bayesian(net)
    own = dict(net.named_parameters())
    assert all(torch.equal(dict(kept.named_parameters())[name], value) for name, value in own.items())
    assert not any(torch.equal(dict(anew.named_parameters())[name], value) for name, value in own.items())


def test_prior_spread_and_sampling_reach_every_layer():
    net = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 3))
    bayesian = to_bayesian(net, GaussianPrior(0.5), sigma=0.1, sampling="flipout")
    assert [layer.prior for layer in bayesian] == [GaussianPrior(0.5)] * 2
    assert [layer.sampling for layer in bayesian] == ["weights", "flipout"]
    rhos = torch.cat([p.flatten() for name, p in bayesian.named_parameters() if name.endswith("_rho")])
    torch.testing.assert_close(rhos, torch.full_like(rhos, rho_of(0.1)))


def test_a_part_of_a_network_can_be_bayesian():
    net = models.build("mlp", 3, inputs=2)
    net.classifier = to_bayesian(net.classifier)
    q = posterior(net)
    assert [part.names for part in q.parts] == [("classifier.weight",), ("classifier.bias",)]


def test_layers_made_for_a_kind_are_made_once():
    first, second = (to_bayesian(models.build("gru", 3, channels=2)) for _ in range(2))
    assert type(first.layers[0]) is type(second.layers[0])
    assert type(first.layers[0]).__name__ == "BayesRecurrentLayer"


class OwnGRU(nn.GRU):
    pass


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (nn.ReLU(), "the ReLU has no trained weights that could become random"),
        (nn.LayerNorm(3), "the LayerNorm has no trained weights that could become random"),
        (to_bayesian(nn.Linear(2, 3)), "the network is Bayesian already: it has a BayesLinear; freeze it first"),
        (nn.LazyLinear(3), "a LazyLinear does not know its inputs yet; run one batch through the network"),
        (
            parametrizations.weight_norm(nn.Linear(2, 3)),
            "a ParametrizedLinear computes its weights from others; make them plain first with "
            "torch.nn.utils.parametrize.remove_parametrizations",
        ),
        (OwnGRU(2, 3), "expected nn.GRU, nn.LSTM or nn.RNN, got OwnGRU, a layer made from them"),
    ],
)
def test_networks_that_cannot_become_bayesian_are_refused(net, message):
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        to_bayesian(net)


def test_a_layer_that_cannot_be_reset_is_named():
    message = "a MultiheadAttention has no reset_parameters to start again; keep its weights"
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        to_bayesian(nn.MultiheadAttention(4, 2), keep_weights=False)
