"""What the paper says about Bayesian networks far away from the data, on a small spiral."""

import pytest
import torch
from torch import nn

from openradial import RadialLayer, RadialLoss
from openradial.bayes import ElboObjective, posterior, predict, to_bayesian
from openradial.data import Batches
from openradial.data.sets.spiral import spiral
from openradial.models import MLP
from openradial.training import Settings, fit

POINTS = spiral(600, turns=0.5)
FAR = 3 * torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
KINDS = {
    "softmax": (nn.CrossEntropyLoss(), nn.LogSoftmax(-1)),
    "beta 1": (RadialLoss(beta=1.0), RadialLayer(3, beta=1.0)),
    "beta 5": (RadialLoss(beta=5.0), RadialLayer(3, beta=5.0)),
}


@pytest.fixture(scope="module")
def trained():
    """For each kind: its last record, its mean deviation, and predictions near and far."""
    found = {}
    for kind, (loss, head) in KINDS.items():
        torch.manual_seed(0)
        net = to_bayesian(MLP(3, inputs=2, hidden=(30, 30)))
        objective = ElboObjective(loss, batches=12, batch_size=50)
        settings = Settings(epochs=50, batch_size=50, learning_rate=0.01)
        history = fit(net, objective, Batches(POINTS, 50, shuffle=True), settings=settings, show_progress=False)
        near, far = (predict(net, x, head=head, seed=0) for x in (POINTS.inputs, FAR))
        found[kind] = history.records[-1], float(posterior(net).sigma.detach().mean()), near, far
    return found


def test_softmax_is_sure_far_away_in_nearly_every_sample(trained):
    far = trained["softmax"][3]
    assert far.winning_probs.mean() > 0.9
    assert far.winning_probs.std(0).mean() < 0.05
    assert far.missing_mass.max() < 1e-5


@pytest.mark.parametrize("kind", ["beta 1", "beta 5"])
def test_a_radial_network_is_not(trained, kind):
    _, _, near, far = trained[kind]
    assert far.winning_probs.mean() < 0.4
    assert far.missing_mass.mean() > near.missing_mass.mean() + 0.1
    assert (far.probs.amax(-1) < near.probs.amax(-1).median()).all()


def test_its_winning_probability_is_spread_out_there(trained):
    assert trained["beta 1"][3].winning_probs.std(0).mean() > 2 * trained["softmax"][3].winning_probs.std(0).mean()


def test_the_mean_prediction_is_right_where_the_data_are(trained):
    assert (trained["beta 5"][2].labels == POINTS.labels).float().mean() >= 0.97


def test_beta_weighs_the_data_against_the_prior(trained):
    one, five = trained["beta 1"], trained["beta 5"]
    assert five[0]["kl"] > 1.2 * one[0]["kl"]  # further from the prior
    assert five[1] < one[1]  # and surer of its weights
    assert five[3].winning_probs.mean() < one[3].winning_probs.mean()
    distance = {kind: trained[kind][0]["nll"] / beta for kind, beta in (("beta 1", 1), ("beta 5", 5))}
    assert distance["beta 5"] < distance["beta 1"]  # for that, the data are nearer to their prototypes
