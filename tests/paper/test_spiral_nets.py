"""What networks on the spiral are asked, beside the same questions as plain loops."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from openradial import RadialLayer
from openradial.bayes import SampledPrediction, predict, to_bayesian
from paper import Plan, bayesian_nets, fig1, fig3, fig4, spiral_nets
from paper.bayesian_nets import BayesNets
from paper.spiral_nets import HIDDEN, Nets
from paper.spiral_plots import hidden_layer

TINY = Nets("radial", 1, 2, HIDDEN["radial"])


@pytest.fixture(scope="module")
def networks():
    torch.manual_seed(0)
    return [TINY.build().eval() for _ in range(2)]


@pytest.mark.parametrize("head", ["softmax", "radial"])
def test_winning_probabilities_follow_the_definition(networks, head):
    x = spiral_nets.grid(5)
    winner, prob = spiral_nets.winning(networks[0], head, x, beta=3.0)
    for i, o in enumerate(networks[0](x).detach().double().numpy()):
        if head == "softmax":
            probs = [np.exp(o[j]) / sum(np.exp(v) for v in o) for j in range(3)]
        else:
            probs = [np.exp(-3.0 * np.sqrt(sum((o[m] - (m == j)) ** 2 for m in range(3)))) for j in range(3)]
        assert int(winner[i]) == int(np.argmax(probs))
        assert float(prob[i]) == pytest.approx(max(probs), rel=1e-5)


def test_the_grid_goes_row_by_row_from_the_bottom_left():
    places = spiral_nets.grid(2, (0.0, 4.0, 10.0, 20.0))
    assert places.tolist() == [[1.0, 12.5], [3.0, 12.5], [1.0, 17.5], [3.0, 17.5]]


def test_a_ring_has_its_radius_everywhere_and_no_two_equal_places():
    places = spiral_nets.ring(5.0, 12)
    assert torch.allclose(places.norm(dim=-1), torch.tensor(5.0))
    assert len({tuple(place) for place in places.round(decimals=3).tolist()}) == 12


def test_a_map_has_the_prediction_of_every_place(networks):
    plane = spiral_nets.prediction_map(networks[0], "radial", 4, 2.0, (-1.0, 1.0, -1.0, 1.0))
    x = torch.tensor([[0.75, -0.25]])  # the last column of the second row
    winner, prob = spiral_nets.winning(networks[0], "radial", x, 2.0)
    assert plane["winners"][1][3] == int(winner)
    assert plane["probs"][1][3] == pytest.approx(float(prob), abs=6e-4)


def test_equal_networks_share_a_file_and_others_do_not():
    changes = [{"head": "softmax"}, {"epochs": 2}, {"seeds": 3}, {"hidden": (50, 50, 2)}, {"learning_rate": 1e-3}]
    changes += [{"points": 300}, {"noise": 0.0}, {"turns": 0.5}, {"label_noise": 0.1}]
    assert len({TINY.name, replace(TINY).name, *(replace(TINY, **change).name for change in changes)}) == 10
    bayesian = BayesNets("radial", 1, 2, HIDDEN["radial"])
    assert len({TINY.name, bayesian.name, replace(bayesian, beta=5.0).name}) == 3


def test_networks_that_are_read_are_those_that_were_trained(tmp_path):
    plan, notes = Plan(tmp_path), []
    first = spiral_nets.trained(plan, TINY)
    again = spiral_nets.trained(replace(plan, listener=notes.append), TINY)
    assert notes == []
    x = spiral_nets.grid(3)
    assert all(torch.equal(a(x), b(x)) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0](x), first[1](x))


def test_test_points_have_their_true_labels():
    noisy = replace(TINY, label_noise=0.5, points=300)
    assert torch.equal(noisy.data("test").labels, torch.arange(300) % 3)
    assert not torch.equal(noisy.data().labels, torch.arange(300) % 3)


def test_wrong_labels_are_those_that_are_not_the_points_own():
    noisy = replace(TINY, label_noise=0.5, points=300)
    wrong = fig4.wrong_labels(noisy)
    assert wrong.tolist() == [label != i % 3 for i, label in enumerate(noisy.data().labels.tolist())]


def test_only_wrong_labels_that_are_given_back_count_as_learned_by_heart(networks):
    nets = replace(TINY, label_noise=0.5, points=60)
    data, wrong = nets.data(), fig4.wrong_labels(nets)
    said = networks[0](data.inputs).argmax(-1).tolist()
    both = [(s, y) for s, y, is_wrong in zip(said, data.labels.tolist(), wrong.tolist(), strict=True) if is_wrong]
    expected = sum(s == y for s, y in both) / len(both)
    assert fig4.memorised(networks[0], data, wrong) == pytest.approx(expected)


def test_the_share_of_a_ring_counts_places_above_nine_tenths(tmp_path, networks, monkeypatch):
    monkeypatch.setattr(fig3, "trained", lambda plan, nets: networks)
    shares = fig3.called(Plan(tmp_path), {"radial": TINY}, [2.0, 3.0])
    places = torch.cat([spiral_nets.ring(2.0), spiral_nets.ring(3.0)])
    for share, net in zip(shares["radial"], networks, strict=True):
        probs = spiral_nets.winning(net, "radial", places, fig3.BETA)[1].tolist()
        assert share == pytest.approx(sum(p > 0.9 for p in probs) / 720)


def test_areas_shrink_as_beta_grows(tmp_path, networks, monkeypatch):
    monkeypatch.setattr(fig3, "trained", lambda plan, nets: networks)
    areas = [fig3.areas(Plan(tmp_path), TINY, beta) for beta in (0.5, 1.0, 5.0)]
    assert all(a >= b >= c for a, b, c in zip(*areas, strict=True))


def test_the_first_network_that_learned_is_shown_else_the_best():
    assert fig1.first_that_learned([0.34, 0.96, 0.99], [True, True, True]) == 1
    assert fig1.first_that_learned([0.34, 0.96, 0.99], [True, False, True]) == 2
    assert fig1.first_that_learned([0.34, 0.96, 0.5], [True, False, True]) == 1
    assert fig1.first_that_learned([0.34, 0.6, 0.5], [True, False, True]) == 1


def test_the_hidden_layer_is_drawn_as_far_as_data_and_point_go():
    torch.manual_seed(1)
    net = Nets("softmax", 1, 1, (50, 50, 2)).build()
    found = hidden_layer(net, TINY.data())
    z = np.array([*found["points"], found["far"]])
    np.testing.assert_allclose(found["reach"], np.maximum(1.1 * z.max(0), 1e-3), atol=2e-3)
    assert np.array(found["weight"]).shape == (3, 2)


def test_drawn_networks_are_the_samples_of_a_prediction():
    torch.manual_seed(0)
    nets = BayesNets("radial", 1, 1, HIDDEN["radial"], beta=5.0)
    network, x = to_bayesian(nets.build()).eval(), spiral_nets.ring(1.0, 6)
    together = predict(network, x, 4, head=nets.layer, seed=0).log_probs
    alone = torch.stack([RadialLayer(3, beta=5.0).log_probs(net(x)) for net in bayesian_nets.drawn(network, nets, 4)])
    torch.testing.assert_close(together, alone.detach())


def test_samples_are_described_as_the_words_say():
    probs = np.random.default_rng(0).uniform(0.2, 1.0, (5, 4, 3))
    probs[:, 0, 0], probs[:, 1] = 0.99, 0.3
    found = bayesian_nets.described(SampledPrediction(torch.tensor(probs).log()))
    winning = [[max(sample[point]) for sample in probs] for point in range(4)]
    assert found["winning"] == pytest.approx(np.mean(winning))
    assert found["spread"] == pytest.approx(np.mean([np.std(values, ddof=1) for values in winning]))
    sure = [max(sum(sample[point][k] for sample in probs) / 5 for k in range(3)) > 0.9 for point in range(4)]
    assert found["confident"] == pytest.approx(np.mean(sure))


def test_the_training_point_lies_on_the_first_arm_and_the_other_far_away():
    near, far = bayesian_nets.two_points(BayesNets("softmax", 1, 1, (50, 50, 2)))
    assert float(near.norm()) == pytest.approx(0.6, abs=0.01)
    assert far.norm() > 2
