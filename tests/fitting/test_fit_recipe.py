import math

import pytest
import torch
from torch import nn

from openradial import models
from openradial.data.batches import Batches
from openradial.data.examples import Examples
from openradial.fitting import make_recipe, open_classifier
from openradial.fitting.recipe import Held, true_beta
from openradial.functional import safe_beta
from openradial.training.outliers import make_outliers


def points(n=60, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    x = torch.randn(n, 2, generator=generator) * 0.2 + torch.eye(2)[y]
    return Examples(x, y, ("a", "b"))


def held(examples, size=16):
    return Held(Batches(examples, size))


@pytest.mark.parametrize(
    ("network", "options", "places"),
    [
        ("mlp", {"inputs": 2, "hidden": (5, 5)}, ("hidden.fc2:input",)),
        ("mlp", {"inputs": 2, "hidden": (5,)}, ("classifier:input",)),
        ("mnist_radial", {}, ("fc2:input", "fc1:input")),
        ("resnet18", {"width": 4}, ("classifier:input",)),
        ("gru", {"channels": 2}, ("classifier:input",)),
    ],
)
def test_hidden_layers_are_looked_at_by_network(network, options, places):
    net = models.build(network, 3, **options)
    assert make_recipe(net, network, "images", 3).places == places


def test_a_network_without_a_last_layer_by_name_is_judged_by_its_outputs():
    net = nn.Sequential(nn.Linear(2, 2))
    recipe = make_recipe(net, "mine:make", "points", 2)
    assert recipe.places == ()
    model = open_classifier(
        net, recipe, 0.1, train=held(points()), combination=held(points(seed=1)), calibration=held(points(seed=2))
    )
    assert model.combination is None
    assert len(model.answer(points(seed=3).inputs).labels) == 60


def test_each_part_of_the_classifier_learns_from_its_own_data():
    net = models.build("mlp", 2, inputs=2, hidden=(8, 8))
    recipe = make_recipe(net, "mlp", "points", 2)
    train, combination, calibration = (points(60, seed) for seed in range(3))
    model = open_classifier(
        net, recipe, 0.1, train=held(train), combination=held(combination), calibration=held(calibration)
    )
    assert model.places == ("outputs", "hidden.fc2:input")
    assert model.scorers[1].references.shape == (60, 8)
    assert model.combination.columns.shape[0] + model.combination.merged.shape[0] == 60
    rejected = (model.answer(calibration.inputs).labels < 0).sum()
    assert rejected <= 0.1 * 60


def pictures(n=40, seed=0):
    inputs = torch.rand(n, 1, 16, 16, generator=torch.Generator().manual_seed(seed))
    return Examples(inputs, torch.arange(n) % 2, ("a", "b"))


def test_neighbours_are_those_of_the_same_direction_behind_convolutions():
    net = models.build("mnist_radial", 2, size=16)
    recipe = make_recipe(net, "mnist_radial", "images", 2)
    parts = {name: held(pictures(seed=i)) for i, name in enumerate(("train", "combination", "calibration"))}
    model = open_classifier(net, recipe, 0.1, **parts)
    assert [scorer.settings().get("normalise") for scorer in model.scorers] == [None, True, True]

    net = models.build("mlp", 2, inputs=2, hidden=(8, 8))
    parts = {name: held(points(seed=i)) for i, name in enumerate(("train", "combination", "calibration"))}
    model = open_classifier(net, make_recipe(net, "mlp", "points", 2), 0.1, **parts)
    assert [scorer.settings().get("normalise") for scorer in model.scorers] == [None, False]


def test_beta_makes_known_and_outliers_most_likely_as_a_search_finds():
    net = nn.Identity()
    recipe = make_recipe(net, "mine:make", "points", 2)
    examples = points(40)
    beta = true_beta(net, recipe, held(examples, 40))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = make_outliers(examples.inputs, examples.labels, recipe.objective.kinds)
    right, wrong = [], []
    for x, y in zip(examples.inputs.tolist(), examples.labels.tolist(), strict=True):
        distances = [math.dist(x, p) for p in ((1, 0), (0, 1))]
        (right if distances[y] == min(distances) else wrong).append(min(distances))
    wrong += [min(math.dist(x, p) for p in ((1, 0), (0, 1))) for x in made.tolist()]

    def loss(b):
        return sum(b * d for d in right) - sum(math.log(1 - math.exp(-b * d)) for d in wrong)

    best = min((0.01 * i for i in range(1, 2000)), key=loss)
    assert beta == pytest.approx(best, abs=0.011)


def test_beta_leaves_the_random_numbers_of_others_alone():
    recipe = make_recipe(nn.Identity(), "mine:make", "points", 2)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    true_beta(nn.Identity(), recipe, held(points()))
    assert torch.equal(torch.get_rng_state(), before)


def test_beta_is_the_safe_one_where_nothing_is_wrong():
    recipe = make_recipe(nn.Identity(), "mine:make", "points", 2)
    one = Examples(torch.tensor([[1.0, 0.1]] * 4), torch.zeros(4, dtype=torch.long), ("a", "b"))
    assert true_beta(nn.Identity(), recipe, held(one)) == safe_beta(2)
