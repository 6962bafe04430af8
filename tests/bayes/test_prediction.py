import copy
import re
from functools import partial

import pytest
import torch
from torch import nn
from torch.func import functional_call

from openradial import RadialLayer, models
from openradial.bayes import (
    BayesLinear,
    MCDropout,
    SampledPrediction,
    posterior,
    predict,
    prediction,
    to_bayesian,
)
from openradial.bayes.prediction import max_pool2d, run_stacked, run_with
from openradial.errors import OptionError, ShapeError
from openradial.heads import RadialHead, SoftmaxHead

HEADS = {"radial": RadialLayer(3, beta=5.0), "softmax": nn.LogSoftmax(-1)}


def net(**options):
    torch.manual_seed(0)
    return to_bayesian(models.MLP(3, inputs=2, hidden=(8, 8), **options), sigma=0.2)


def points(b=7):
    return torch.randn(b, 2, generator=torch.Generator().manual_seed(1))


def looped(network, x, samples, head, seed):
    """A loop of forward passes with the weights that a seed draws."""
    twin = copy.deepcopy(network).eval()
    with torch.no_grad():
        torch.manual_seed(seed)
        q = posterior(twin)
        return torch.stack(
            [getattr(head, "log_probs", head)(functional_call(twin, q.named(row), (x,))) for row in q.draw(samples)]
        )


@pytest.mark.parametrize("head", HEADS)
def test_one_pass_gives_what_a_loop_of_forward_passes_gives(head):
    network, x = net(), points()
    found = predict(network, x, 20, head=HEADS[head], seed=3)
    assert found.log_probs.shape == (20, 7, 3)
    torch.testing.assert_close(found.log_probs, looped(network, x, 20, HEADS[head], 3))
    assert len(set(found.log_probs[:, 0, 0].tolist())) == 20


@pytest.mark.parametrize("b", [2, 9])
def test_convolutions_in_one_pass_are_those_of_a_loop(b):
    torch.manual_seed(0)
    network = to_bayesian(models.build("mnist_radial", 10), sigma=0.05)
    x = torch.randn(b, 1, 28, 28)
    found = predict(network, x, 4, head=RadialLayer(10), seed=3)
    torch.testing.assert_close(found.log_probs, looped(network, x, 4, RadialLayer(10), 3), rtol=1e-4, atol=1e-5)


def test_the_mean_is_divided_by_the_number_of_samples():
    log_probs = torch.tensor([[[0.5, 0.25]], [[0.1, 0.75]]]).log()
    found = SampledPrediction(log_probs)
    torch.testing.assert_close(found.probs, torch.tensor([[0.3, 0.5]]))
    assert found.labels.tolist() == [1]
    torch.testing.assert_close(found.winning_probs, torch.tensor([[0.5], [0.75]]))


def test_a_prediction_knows_its_uncertainty():
    found = predict(net(), points(), 10, head=HEADS["radial"], seed=0)
    for name, function in {
        "predictive_entropy": prediction.predictive_entropy,
        "expected_entropy": prediction.expected_entropy,
        "mutual_information": prediction.mutual_information,
        "missing_mass": prediction.expected_missing_mass,
    }.items():
        assert torch.equal(getattr(found, name), function(found.log_probs))


@pytest.mark.parametrize("chunk", [1, 3, 20, 64, None])
def test_the_result_does_not_depend_on_how_much_runs_at_once(chunk, monkeypatch):
    network, x = net(), points()
    expected = predict(network, x, 20, head=HEADS["radial"], seed=3, chunk=10**6)
    found = predict(network, x, 20, head=HEADS["radial"], seed=3, chunk=chunk)
    torch.testing.assert_close(found.log_probs, expected.log_probs)
    monkeypatch.setattr(prediction, "ACTIVATIONS", 8 * 16)
    found = predict(network, x, 20, head=HEADS["radial"], seed=3)
    torch.testing.assert_close(found.log_probs, expected.log_probs)


def test_no_pass_is_larger_than_asked_for():
    sizes = []

    class Watch(nn.Module):
        def forward(self, o):
            sizes.append(len(o))
            return torch.log_softmax(o, -1)

    predict(net(), points(50), 30, head=Watch(), chunk=64)
    assert max(sizes) <= 64
    assert sum(sizes) == 50 * 30


def test_weights_are_drawn_in_blocks_where_memory_is_short(monkeypatch):
    network, x = net(), points()
    monkeypatch.setattr(prediction, "WEIGHTS", 3 * len(posterior(network).mean))
    found = predict(network, x, 10, head=HEADS["radial"], seed=3)
    assert found.log_probs.shape == (10, 7, 3)
    assert len(set(found.log_probs[:, 0, 0].tolist())) == 10


def test_the_result_for_an_input_does_not_depend_on_its_batch():
    network, x = net(), points()
    whole = predict(network, x, 20, head=HEADS["radial"], seed=3).log_probs
    alone = predict(network, x[4:5], 20, head=HEADS["radial"], seed=3).log_probs
    torch.testing.assert_close(alone, whole[:, 4:5])
    assert predict(network, x[:0], 20, head=HEADS["radial"]).log_probs.shape == (20, 0, 3)


def test_a_seed_repeats_the_draws_and_leaves_torchs_generator_alone():
    network, x = net(), points()
    torch.manual_seed(9)
    expected = torch.randn(1)
    torch.manual_seed(9)
    first, second = (predict(network, x, 5, head=HEADS["radial"], seed=3).log_probs for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.randn(1), expected)
    others = [predict(network, x, 5, head=HEADS["radial"]).log_probs for _ in range(2)]
    assert not torch.equal(*others)


@pytest.mark.parametrize("mode", [True, False])
def test_modes_and_weights_stay_as_they_were(mode):
    network = net(dropout=0.5).train(mode)
    network.hidden[0].train(not mode)
    before, flags = copy.deepcopy(network.state_dict()), [part.training for part in network.modules()]
    found = predict(network, points(), 5, head=HEADS["radial"], seed=3)
    assert [part.training for part in network.modules()] == flags
    assert all(torch.equal(network.state_dict()[name], value) for name, value in before.items())
    assert not found.log_probs.requires_grad
    torch.testing.assert_close(found.log_probs, looped(network, points(), 5, HEADS["radial"], 3))


def test_a_network_may_give_log_probabilities_itself():
    network = to_bayesian(nn.Sequential(models.MLP(3, inputs=2, hidden=(8,)), nn.LogSoftmax(-1)), sigma=0.2)
    found = predict(network, points(), 5)
    assert (found.probs <= 1).all()


def test_heads_of_the_library_are_heads():
    network, x = net(), points()
    for head, same in ((RadialHead(3, beta=5.0), HEADS["radial"]), (SoftmaxHead(3), HEADS["softmax"])):
        found, expected = (predict(network, x, 5, head=each, seed=3).log_probs for each in (head, same))
        torch.testing.assert_close(found, expected)


def test_outputs_without_a_head_are_noticed():
    network = net()
    nn.init.constant_(network.classifier.bias, 4.0)
    with pytest.raises(
        ShapeError,
        match=r"^log-probabilities are never above 0, got .*; if these are outputs, pass the head= that turns "
        r"them into log-probabilities, such as RadialHead\(k, beta\)$",
    ):
        predict(network, points(), 5)


def test_a_network_that_vmap_refuses_runs_one_after_the_other():
    class Choosy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = BayesLinear(2, 3, sigma=0.2)

        def forward(self, x):
            o = self.layer(x)
            return o if float(o.sum()) > 0 else -o

    network = Choosy()
    found = predict(network, points(), 5, head=HEADS["radial"], seed=3)
    torch.testing.assert_close(found.log_probs, looped(network, points(), 5, HEADS["radial"], 3))


@pytest.mark.parametrize("message", ["out of memory", "vmap: out of memory in a batching rule"])
def test_an_error_that_is_not_vmaps_is_raised_whatever_its_text(monkeypatch, message):
    def run(network, weights, x):
        if len(x) > 1:
            raise RuntimeError(message)
        return torch.func.vmap(partial(run_with, network), in_dims=(0, None))(weights, x)

    monkeypatch.setattr(prediction, "_run_vmap", run)
    network = net().eval()  # in training mode the layers draw weights, which vmap refuses
    q = posterior(network)
    with pytest.raises(RuntimeError, match=message):
        run_stacked(network, q.named(q.draw(3)), points())
    assert run_stacked(network, q.named(q.draw(3)), points()[:1]).shape == (3, 1, 3)


def test_the_users_own_errors_come_through():
    with pytest.raises(ShapeError, match=re.escape("expected inputs of shape (b, 2), got (7, 4)")):
        predict(net(), torch.zeros(7, 4), 5, head=HEADS["radial"])

    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = BayesLinear(2, 3)

        def forward(self, x):
            raise RuntimeError("this network is broken")

    with pytest.raises(RuntimeError, match="this network is broken"):
        predict(Broken(), points(), 5)
    with pytest.raises(RuntimeError, match="this network is broken"):
        run_stacked(Broken(), {"layer.weight": torch.zeros(4, 3, 2)}, points())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: predict(net(), points(), 0), OptionError, "samples must be a whole number of at least 1, got 0"),
        (lambda: predict(net(), points(), chunk=0), OptionError, "chunk must be a whole number of at least 1, got 0"),
        (lambda: predict(net(), points(), seed=-1), OptionError, "seed must be a whole number of at least 0, got -1"),
        (
            lambda: predict(models.MLP(3, inputs=2), points()),
            OptionError,
            "the network has no random weights; make it Bayesian with to_bayesian(network)",
        ),
        (
            lambda: predict(BayesLinear(2, 3), torch.zeros(4, 5, 2), 2),
            ShapeError,
            "the network must give outputs of shape (b, k), got (4, 5, 3)",
        ),
        (
            lambda: MCDropout(models.MLP(3, inputs=2)),
            OptionError,
            "the network has no dropout layer that drops anything, so every sample would be the same; "
            "train one with dropout, as in build('mnist_radial_dropout', 10)",
        ),
    ],
)
def test_impossible_predictions_are_refused(call, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        call()


def test_an_ensemble_gives_what_its_members_give():
    members = [nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)) for _ in range(5)]
    for member in members:
        member(torch.randn(20, 2))  # statistics of its own
        member.eval()
    with torch.no_grad():
        expected = torch.stack([HEADS["radial"].log_probs(member(points())) for member in members])
    members[2].train()
    found = predict(members, points(), head=HEADS["radial"])
    torch.testing.assert_close(found.log_probs, expected)
    assert [member.training for member in members] == [False, False, True, False, False]


def test_masks_of_dropout_differ_between_samples_and_have_the_right_mean():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3)).eval()
    outputs = nn.Identity()
    found = predict(MCDropout(plain), points(), 4000, head=lambda o: outputs(o) - 100, seed=0).log_probs + 100
    with torch.no_grad():
        spread = found.std(0) / 4000**0.5
        assert ((found.mean(0) - plain(points())).abs() < 5 * spread + 1e-3).all()
        hidden = torch.relu(plain[0](points()))  # (b, 16); each is doubled or gone, with probability 1/2
        expected = (hidden.square() @ plain[3].weight.square().T).sqrt()
    torch.testing.assert_close(found.std(0), expected, rtol=0.1, atol=1e-3)
    assert not any(part.training for part in plain.modules())


def test_dropout_leaves_batch_statistics_alone():
    plain = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3)).train()
    before = plain[1].running_mean.clone()
    found = predict(MCDropout(plain), points(), 6, head=HEADS["radial"])
    assert found.log_probs.shape == (6, 7, 3)
    assert torch.equal(plain[1].running_mean, before)
    assert plain[1].training


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 2},
        {"kernel_size": 3},
        {"kernel_size": (2, 3)},
        {"kernel_size": 2, "stride": 2},
        {"kernel_size": 2, "stride": 1},
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": 2, "ceil_mode": True},
        {"kernel_size": 2, "dilation": 2},
    ],
    ids=str,
)
def test_pooling_is_that_of_torch(options):
    x = torch.randn(2, 3, 11, 13)
    x[0, 0, 0, 0] = torch.nan
    found, expected = max_pool2d(x, **options), nn.functional.max_pool2d(x, **options)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("b", [3, 9])
@pytest.mark.parametrize("first", [True, False], ids=["shared inputs", "own inputs"])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("random", [("weight", "bias"), ("bias",), ("weight",)], ids=str)
def test_convolutions_of_a_stack_are_those_of_each(b, first, groups, bias, random):
    if random == ("bias",) and not bias:
        return
    torch.manual_seed(0)
    layer = nn.Conv2d(2, 4, 3, padding=1, stride=2, groups=groups, bias=bias)
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(name in random)
    before = [] if first else [to_bayesian(nn.Conv2d(2, 2, 1))]
    network = nn.Sequential(*before, to_bayesian(layer)).eval()
    q, x = posterior(network), torch.randn(b, 2, 6, 6)
    with torch.no_grad():
        weights = q.draw(3)
        alone = torch.stack([functional_call(network, q.named(row), (x,)) for row in weights])
        torch.testing.assert_close(run_stacked(network, q.named(weights), x), alone)
