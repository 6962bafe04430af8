import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from openradial import models
from openradial.data.batches import Batches
from openradial.data.examples import Examples
from openradial.errors import OptionError
from openradial.fitting import calibrate, calibrated_beta, closed_world_beta
from openradial.functional import safe_beta
from openradial.heads import RadialHead
from openradial.recipe import Recipe, default_recipe
from openradial.training.outliers import make_outliers


def points(n=60, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    x = torch.randn(n, 2, generator=generator) * 0.2 + torch.eye(2)[y]
    return Examples(x, y, ("a", "b"))


def in_order(examples, size=16):
    return Batches(examples, size)


def calibrated(net, recipe, make=points, **parts):
    """Return a classifier whose parts are fitted on three sets of examples."""
    head = recipe.make_head(2)
    given = {name: in_order(make(seed=i)) for i, name in enumerate(("train", "combination", "calibration"))} | parts
    return calibrate(net, head, recipe, 0.1, **given)


def test_without_hidden_layers_the_score_of_the_head_decides():
    net = nn.Sequential(nn.Linear(2, 2))
    model = calibrated(net, default_recipe(net, "mine:make", "points"))
    assert (model.layers, model.combination) == ((), None)
    assert len(model.decide(points(seed=3).inputs).labels) == 60


def test_each_part_of_the_classifier_is_fitted_on_data_of_its_own():
    net = models.build("mlp", 2, inputs=2, hidden=(8, 8))
    model = calibrated(net, default_recipe(net, "mlp", "points"))
    assert model.layers == ("outputs", "hidden.fc2:input")
    assert model.scorers[0] is model.head
    assert model.scorers[1].references.shape == (60, 8)
    assert model.combination.columns.shape[0] + model.combination.merged.shape[0] == 60
    rejected = (model.decide(points(seed=2).inputs).labels < 0).sum()
    assert rejected <= 0.1 * 60


@pytest.mark.parametrize("name", ["softmax", "doc", "cac"])
def test_other_heads_are_fitted_and_calibrated(name):
    net = nn.Identity()
    model = calibrated(net, default_recipe(net, "mine:make", "points", head=name))
    assert model.head.is_fitted
    assert (model.decide(points(seed=2).inputs).labels < 0).sum() <= 0.1 * 60


def test_a_head_that_is_fitted_already_stays():
    recipe, known = Recipe(method="closed-form", layers=("outputs",)), points(seed=5)
    head = recipe.make_closed_form_head(("a", "b"), 2).fit(known.inputs, known.labels)
    weight, parts = head.weight.clone(), {"train": 0, "combination": 1, "calibration": 2}
    model = calibrate(nn.Identity(), head, recipe, 0.1, **{name: in_order(points(seed=i)) for name, i in parts.items()})
    assert torch.equal(model.head.weight, weight)
    assert model.scorers[1].references.shape == (60, 2)


def test_without_examples_for_a_combination_the_score_of_the_head_decides():
    net = models.build("mlp", 2, inputs=2, hidden=(8, 8))
    model = calibrated(net, default_recipe(net, "mlp", "points"), combination=None)
    assert (model.layers, model.combination) == ((), None)
    assert model.head.layer.beta != safe_beta(2)  # fitted on the calibration examples


def test_scores_without_a_spread_are_combined_by_their_p_values():
    net = models.build("mlp", 2, inputs=2, hidden=(8, 8))
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    model = calibrated(net, default_recipe(net, "mlp", "points"))
    assert model.combination.method == "fisher"


def pictures(n=40, seed=0):
    inputs = torch.rand(n, 1, 16, 16, generator=torch.Generator().manual_seed(seed))
    return Examples(inputs, torch.arange(n) % 2, ("a", "b"))


def test_neighbours_are_compared_by_direction_behind_convolutions():
    net = models.build("mnist_radial", 2, size=16)
    model = calibrated(net, default_recipe(net, "mnist_radial", "images"), pictures)
    assert [scorer.settings().get("normalise") for scorer in model.scorers] == [None, True, True]
    net = models.build("mlp", 2, inputs=2, hidden=(8, 8))
    model = calibrated(net, default_recipe(net, "mlp", "points"))
    assert [scorer.settings().get("normalise") for scorer in model.scorers] == [None, False]


def test_a_given_beta_is_kept():
    model = calibrated(nn.Identity(), Recipe(beta=3.0))
    assert model.head.layer.beta == 3.0


RECIPE = default_recipe(nn.Identity(), "mine:make", "points")


def test_beta_is_the_maximum_of_the_likelihood_of_known_examples_and_outliers():
    examples = points(40)
    beta = calibrated_beta(nn.Identity(), RadialHead(2), RECIPE, in_order(examples, 40))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = make_outliers(examples.inputs, examples.labels, RECIPE.outliers)
    right, wrong = [], []
    for x, y in zip(examples.inputs.tolist(), examples.labels.tolist(), strict=True):
        distances = [math.dist(x, p) for p in ((1, 0), (0, 1))]
        (right if distances[y] == min(distances) else wrong).append(min(distances))
    wrong += [min(math.dist(x, p) for p in ((1, 0), (0, 1))) for x in made.tolist()]

    def loss(b):
        return sum(b * d for d in right) - sum(math.log(1 - math.exp(-b * d)) for d in wrong)

    best = min((0.01 * i for i in range(1, 2000)), key=loss)
    assert beta == pytest.approx(best, abs=0.011)


def test_fitting_beta_leaves_the_random_generator_unchanged():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    calibrated_beta(nn.Identity(), RadialHead(2), RECIPE, in_order(points()))
    assert torch.equal(torch.get_rng_state(), before)


def test_beta_is_the_safe_one_where_nothing_is_wrong():
    one = Examples(torch.tensor([[1.0, 0.1]] * 4), torch.zeros(4, dtype=torch.long), ("a", "b"))
    assert calibrated_beta(nn.Identity(), RadialHead(2), RECIPE, in_order(one)) == safe_beta(2)


def test_the_beta_of_a_closed_world_is_the_maximum_of_its_likelihood():
    examples = replace(points(200), inputs=2 * torch.randn(200, 2) + torch.eye(2)[torch.arange(200) % 2])
    beta = closed_world_beta(nn.Identity(), RadialHead(2), in_order(examples))
    distances = torch.cdist(examples.inputs.double(), torch.eye(2, dtype=torch.float64))

    def loss(b):
        return float(nn.functional.cross_entropy(-b * distances, examples.labels))

    assert beta == pytest.approx(min((0.05 * i for i in range(1, 800)), key=loss), abs=0.06)


def test_the_beta_of_a_closed_world_needs_examples_that_are_predicted_wrongly():
    one = Examples(torch.eye(2)[[0, 1] * 4], torch.tensor([0, 1] * 4), ("a", "b"))
    with pytest.raises(
        OptionError, match=r"beta='fit' needs held-out rows of which some are predicted wrongly.* 8 rows"
    ):
        closed_world_beta(nn.Identity(), RadialHead(2), in_order(one))


def test_a_far_axis_leaves_the_network_beta_and_known_data_as_they_are():
    net = models.build("mlp", 2, inputs=2, hidden=(8, 8))
    recipe = default_recipe(net, "mlp", "points")
    model, plain = calibrated(net, recipe), calibrated(net, replace(recipe, far_axis=False))
    assert (model.far_layer, plain.far_axis) == ("inputs", None)
    assert model.head.layer.beta == plain.head.layer.beta
    known = points(seed=0).inputs  # those that the axis was fitted on
    for mine, theirs in zip(model.decide(known)[:4], plain.decide(known)[:4], strict=True):
        torch.testing.assert_close(mine, theirs)
    far = 100 * known
    assert (model.decide(far).log_probs <= plain.decide(far).log_probs + 1e-6).all()
    assert (model.decide(1e6 * known).labels == -1).all()


def test_texts_and_sequences_have_no_far_axis():
    net = nn.Sequential(nn.Flatten(), nn.Linear(2, 2))
    recipe = default_recipe(net, "mine:make", "sequences")

    def sequences(seed=0):
        made = points(seed=seed)
        return Examples(made.inputs.unsqueeze(2), made.labels, made.classes)

    assert calibrated(net, recipe, sequences).far_axis is None
    words = [(torch.ones(3, 5, dtype=torch.int64), torch.zeros(3, dtype=torch.int64))]
    assert calibrated(net, recipe, train=words).far_axis is None
