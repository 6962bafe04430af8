"""The pair of networks on the spiral, against plain loops and by what learning must do."""

import copy
import math
from itertools import islice

import numpy as np
import pytest
import torch
from rounding import tolerance

from openradial.data import Batches
from openradial.data.sets.spiral import spiral
from openradial.errors import OptionError
from openradial.nn import RadialLoss
from openradial.server.playground.learning import (
    CLASSES,
    Learner,
    Pair,
    SpiralSettings,
    Viewer,
    accuracies,
    probabilities,
)


def naive_probabilities(o, settings):
    """Softmax and radial probabilities of six outputs, written as in the paper."""
    soft, radial = o[:3], o[3:]
    total = sum(math.exp(value) for value in soft)
    distances = []
    for k in range(3):
        square = 0.0
        for j in range(3):
            square += (radial[j] - (settings.scale if j == k else 0.0)) ** 2
        distances.append(math.sqrt(square))
    return [math.exp(value) / total for value in soft], [math.exp(-settings.beta * d) for d in distances]


def test_probabilities_are_those_of_the_formulas():
    settings = SpiralSettings(scale=2.0, beta=3.0)
    outputs = torch.from_numpy(np.random.default_rng(0).normal(0, 1, (4, 5, 6)))
    found = probabilities(outputs, settings)
    for s in range(4):
        for b in range(5):
            expected = naive_probabilities(outputs[s, b].tolist(), settings)
            for head in (0, 1):
                np.testing.assert_allclose(found[head][s, b], expected[head], rtol=1e-6)


def test_accuracy_is_that_of_the_mean_over_samples():
    settings, y = SpiralSettings(), torch.tensor([0, 1, 2, 0])
    right = torch.eye(CLASSES)[y]
    outputs = torch.cat([5 * right, right], 1).expand(3, 4, 6)
    assert accuracies(outputs, y, settings) == {"softmax": 1.0, "radial": 1.0}
    assert accuracies(outputs, (y + 1) % 3, settings) == {"softmax": 0.0, "radial": 0.0}


def test_both_networks_learn_the_arms_in_a_few_frames():
    settings = SpiralSettings()
    learner, viewer, fresh = Learner(settings), Viewer(bayesian=False), spiral(300, seed=0, split="test")
    for _ in range(40):
        state = learner.advance()
    found = accuracies(viewer.outputs(state, fresh.inputs, 1), fresh.labels, settings)
    assert found["softmax"] > 0.95
    assert found["radial"] > 0.95


def test_each_network_learns_as_if_it_were_alone():
    together, other = Learner(SpiralSettings(scale=1.0)), Learner(SpiralSettings(scale=3.0))
    first, second = together.advance(), other.advance()
    for name, tensor in first.items():
        if name.startswith("softmax."):
            assert torch.equal(tensor, second[name])
    assert any(not torch.equal(first[name], second[name]) for name in first if name.startswith("radial."))


def test_the_pair_is_trained_as_plain_loops_train_each_network():
    learner = Learner(SpiralSettings(scale=2.0, seed=4))
    plain = copy.deepcopy(learner.net).double()
    losses = {"softmax": torch.nn.functional.cross_entropy, "radial": RadialLoss(scale=2.0)}
    for name, loss_of in losses.items():
        net = plain.get_submodule(name)
        optimiser = torch.optim.Adam(net.parameters(), lr=5e-3)
        for x, y in islice(Batches(learner.data, 50, shuffle=True, seed=4), learner.pace.steps):
            optimiser.zero_grad()
            loss_of(net(x.double()), y).backward()
            optimiser.step()
    for name, tensor in learner.advance().items():
        torch.testing.assert_close(tensor.double(), plain.state_dict()[name], rtol=1e-3, atol=1e-4)


def test_the_same_settings_give_the_same_networks():
    first, second = Learner(SpiralSettings(seed=3)).advance(), Learner(SpiralSettings(seed=3)).advance()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_state_does_not_change_while_learning_goes_on():
    learner = Learner(SpiralSettings())
    state = learner.state()
    kept = {name: tensor.clone() for name, tensor in state.items()}
    learner.advance()
    assert all(torch.equal(state[name], kept[name]) for name in kept)


def test_a_viewer_of_plain_networks_says_what_the_networks_say():
    learner = Learner(SpiralSettings())
    x = torch.tensor([[0.3, -0.2], [2.0, 2.0]])
    shown = Viewer(bayesian=False).outputs(learner.state(), x, 1)
    assert shown.shape == (1, 2, 6)
    assert torch.equal(shown[0], learner.net(x).detach())


def test_bayesian_networks_differ_from_draw_to_draw_and_not_from_look_to_look():
    learner, viewer = Learner(SpiralSettings(bayesian=True)), Viewer(bayesian=True)
    state, x = learner.advance(), torch.tensor([[0.3, -0.2], [2.0, 2.0]])
    first = viewer.outputs(state, x, 5)
    assert first.shape == (5, 2, 6)
    assert (first.std(0) > 0).all()
    torch.testing.assert_close(first, viewer.outputs(state, x, 5), rtol=0, atol=0)
    torch.testing.assert_close(first[:, :1], viewer.outputs(state, x[:1], 5), **tolerance(2 + 3 * 50))


def test_label_noise_changes_labels_and_no_points():
    clean, noisy = Learner(SpiralSettings()).data, Learner(SpiralSettings(label_noise=0.5)).data
    assert torch.equal(clean.inputs, noisy.inputs)
    assert 0.2 < float((clean.labels != noisy.labels).float().mean()) < 0.45


def test_a_pair_is_softmax_first_and_radial_second():
    pair, x = Pair(), torch.randn(4, 2)
    assert torch.equal(pair(x), torch.cat([pair.softmax(x), pair.radial(x)], 1))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"label_noise": 0.6}, "label_noise must lie in [0.0, 0.5], got 0.6"),
        ({"scale": "big"}, "scale must be a number, got 'big'"),
        ({"beta": float("nan")}, "beta must be a number, got nan"),
        ({"beta": True}, "beta must be a number, got True"),
        ({"seed": 1.5}, "seed must be a whole number, got 1.5"),
        ({"bayesian": 1}, "bayesian must be true or false, got 1"),
        ({"betta": 1}, "there is no setting 'betta'; did you mean 'beta'?"),
    ],
)
def test_wrong_settings_say_what_is_expected(values, sentence):
    with pytest.raises(OptionError) as caught:
        SpiralSettings.from_mapping(values)
    assert str(caught.value) == sentence
