import json

import pytest
import torch
from torch import nn

from openradial import models
from openradial.errors import OptionError
from openradial.functional import safe_beta
from openradial.heads import CACHead, ClosedFormRadialHead, DOCHead, RadialHead, SoftmaxHead
from openradial.nn import RadialLoss
from openradial.recipe import Recipe, closed_form_recipe, default_recipe
from openradial.scorers import MahalanobisScorer, NeighbourScorer


@pytest.mark.parametrize(
    ("network", "options", "layers"),
    [
        ("mlp", {"inputs": 2, "hidden": (5, 5)}, ("hidden.fc2:input",)),
        ("mlp", {"inputs": 2, "hidden": (5,)}, ("classifier:input",)),
        ("mnist_radial", {}, ("fc2:input", "fc1:input")),
        ("resnet18", {"width": 4}, ("classifier:input",)),
        ("gru", {"channels": 2}, ("classifier:input",)),
    ],
)
def test_hidden_layers_follow_from_the_network(network, options, layers):
    net = models.build(network, 3, **options)
    assert default_recipe(net, network, "images").layers == layers


def test_a_network_without_a_known_last_layer_has_no_hidden_layers():
    assert default_recipe(nn.Sequential(nn.Linear(2, 2)), "mine:make", "points").layers == ()


def test_behind_convolutions_directions_are_compared_and_p_values_combined():
    recipe = default_recipe(models.build("mnist_radial", 2, size=16), "mnist_radial", "images")
    assert (recipe.cosine, recipe.combination) == (True, "fisher")
    recipe = default_recipe(models.build("mlp", 2, inputs=2), "mlp", "points")
    assert (recipe.cosine, recipe.combination) == (False, "standardised")


def test_single_values_of_the_default_can_be_replaced():
    net = models.build("mlp", 2, inputs=2)
    recipe = default_recipe(net, "mlp", "points", scale=3.0, layers=(), neighbours=4)
    assert (recipe.scale, recipe.layers, recipe.neighbours) == (3.0, (), 4)
    assert recipe.outliers == default_recipe(net, "mlp", "points").outliers


@pytest.mark.parametrize(
    ("name", "kind"), [("radial", RadialHead), ("softmax", SoftmaxHead), ("doc", DOCHead), ("cac", CACHead)]
)
def test_each_head_is_made_by_its_name(name, kind):
    head = Recipe(head=name).make_head(3)
    assert type(head) is kind
    assert head.num_classes == 3


@pytest.mark.parametrize("name", ["softmax", "doc", "cac"])
def test_other_heads_have_their_score_and_loss_alone(name):
    recipe = default_recipe(models.build("mlp", 2, inputs=2), "mlp", "points", head=name)
    head = recipe.make_head(2)
    assert (recipe.layers, recipe.make_scorers(head), recipe.outliers) == ((), [], ())
    o, y = torch.randn(4, 2), torch.tensor([0, 1, 1, 0])
    assert torch.allclose(recipe.make_objective(head).loss(o, y), head.loss(o, y))


def test_the_radial_head_has_loss_scale_and_beta_of_the_recipe():
    head = Recipe(loss="distance", scale=2.0, beta=0.5).make_head(3)
    assert (head.layer.beta, head.layer.prototypes.scale) == (0.5, 2.0)
    o, y = torch.randn(5, 3), torch.arange(5) % 3
    torch.testing.assert_close(head.loss(o, y), RadialLoss(scale=2.0, beta=0.5)(o, y))
    assert Recipe(beta="safe").make_head(3).layer.beta == safe_beta(3)
    assert Recipe(scale=2.0).make_head(3).layer.beta == safe_beta(3, 2.0)  # until it is fitted


def test_scorers_are_the_head_and_neighbours_in_each_layer():
    recipe = Recipe(layers=("a:input", "b:input"), neighbours=3, cosine=True)
    head = recipe.make_head(2)
    scorers = recipe.make_scorers(head)
    assert [layer for layer, _ in scorers] == ["outputs", "a:input", "b:input"]
    assert scorers[0][1] is head
    assert all(isinstance(each, NeighbourScorer) for _, each in scorers[1:])
    assert [each.settings()["normalise"] for _, each in scorers[1:]] == [True, True]
    assert [each.settings()["k"] for _, each in scorers[1:]] == [3, 3]


def test_in_closed_form_a_layer_may_have_two_scorers():
    recipe = Recipe(method="closed-form", layers=("outputs",), weights=(1.0, 1.0, 2.0), cosine=True)
    head = recipe.make_closed_form_head(("a", "b"), 3)
    scorers = recipe.make_scorers(head)
    assert [layer for layer, _ in scorers] == ["outputs"] * 3
    assert [type(each) for _, each in scorers] == [ClosedFormRadialHead, MahalanobisScorer, NeighbourScorer]
    assert (scorers[1][1].normalise, scorers[1][1].shrinkage) == (True, "oas")
    assert recipe.make_combination().settings()["weights"] == [1.0, 1.0, 2.0]


def test_in_closed_form_scores_without_weight_are_left_out():
    recipe = Recipe(method="closed-form", layers=("outputs",), weights=(2.0, 1.0, 0.0))
    head = recipe.make_closed_form_head(("a", "b"), 3)
    assert [type(each) for _, each in recipe.make_scorers(head)] == [ClosedFormRadialHead, MahalanobisScorer]
    assert recipe.make_combination().settings()["weights"] == [2.0, 1.0]
    assert [type(each) for _, each in recipe.make_scorers(head, (1, 0, 1))] == [ClosedFormRadialHead, NeighbourScorer]
    assert recipe.make_combination((1, 0, 1)).settings()["weights"] == [1.0, 1.0]
    assert recipe.make_scorers(head, (1, 0, 0)) == []


@pytest.mark.parametrize(("examples", "count"), [(500, 500), (1_000, 500), (1_001, 1_000), (10_001, 2_000)])
def test_tables_in_closed_form_get_more_random_features_with_more_examples(examples, count):
    recipe = closed_form_recipe("table", examples)
    assert (recipe.method, recipe.random_features, recipe.layers) == ("closed-form", count, ("outputs",))
    assert (recipe.cosine, recipe.weights) == (False, (1.0, 0.0, 1.0))
    assert closed_form_recipe("table", examples, random_features=7, layers=()).random_features == 7


def test_other_features_in_closed_form_are_compared_by_direction():
    recipe = closed_form_recipe("points", 500)
    assert (recipe.random_features, recipe.cosine, recipe.weights) == (0, True, (2.0, 1.0, 0.0))


def test_photographs_are_scored_by_projection_and_few_classes_by_mahalanobis_as_much():
    for classes, weights in ((10, (2.0, 1.0, 0.0)), (9, (2.0, 2.0, 0.0))):
        recipe = closed_form_recipe("images", 500, classes)
        assert (recipe.score, recipe.cosine, recipe.weights) == ("projection", True, weights)
    recipe = closed_form_recipe("images", 500, layers=("outputs", "middle", "bands"))
    layers = [layer for layer, _ in recipe.make_scorers(recipe.make_closed_form_head(("a", "b"), 4))]
    assert layers == ["outputs", "outputs", "middle", "bands"]
    made = recipe.make_combination().settings()
    assert (made["weights"], made["tail"]) == ([2.0, 1.0], 2)


@pytest.mark.parametrize(("kind", "far"), [("table", True), ("points", True), ("texts", False), ("images", False)])
def test_features_of_encoders_are_bounded_and_have_no_far_axis(kind, far):
    assert closed_form_recipe(kind, 500).far_axis is far
    assert closed_form_recipe(kind, 500, far_axis=not far).far_axis is not far


def test_the_closed_form_head_has_the_settings_of_the_recipe():
    recipe = Recipe(method="closed-form", scale=2.0, random_features=8, class_weight="balanced")
    head = recipe.make_closed_form_head(("a", "b", "c"), 4, seed=3)
    assert (head.classes, head.num_features, head.random_features, head.seed) == (("a", "b", "c"), 4, 8, 3)
    assert (head.class_weight, head.scale, head.layer.beta) == ("balanced", 2.0, safe_beta(3, 2.0))
    assert Recipe(method="closed-form", beta=0.5).make_closed_form_head(("a", "b"), 4).layer.beta == 0.5


def test_trained_texts_have_class_weights_by_default():
    net = models.build("mlp", 2, inputs=2)
    kinds = {kind: default_recipe(net, "mlp", kind).class_weight for kind in ("texts", "images", "points")}
    assert kinds == {"texts": "sqrt", "images": None, "points": None}
    assert default_recipe(net, "mlp", "texts", class_weight=None).class_weight is None


def test_classes_are_weighted_in_the_loss():
    recipe = Recipe(loss="squared", outliers=())
    head, weight = recipe.make_head(2), torch.tensor([1.0, 5.0])
    o, y = torch.randn(6, 2), torch.arange(6) % 2
    squares = (o - torch.eye(2)[y]).square().sum(1)
    loss = recipe.make_objective(head, weight).loss(o, y)
    torch.testing.assert_close(loss, (weight[y] * squares).sum() / weight[y].sum())


@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 5.0, 1.0, 2.0])])
def test_the_rescaled_loss_counts_the_axis_of_the_target_sqrt_k_times(weight):
    recipe = Recipe(loss="rescaled", scale=2.0, beta=0.5)
    o, y = torch.randn(6, 4), torch.arange(6) % 4
    squares = (o - 2 * torch.eye(4)[y]).square() * (1 + torch.eye(4)[y])  # sqrt(4) is 2
    w = torch.ones(6) if weight is None else weight[y]
    loss = recipe.make_objective(recipe.make_head(4), weight).loss(o, y)
    torch.testing.assert_close(loss, (w * squares.sum(1)).sum() / w.sum())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head": "sigmoid"}, "head must be one of"),
        ({"loss": "cubed"}, "loss must be one of"),
        ({"beta": "best"}, "beta must be one of 'safe', 'fit', got 'best'"),
        ({"beta": 0.0}, "beta must be a finite number above 0"),
        ({"scale": 0.0}, "scale must be a finite number above 0"),
        ({"scale": 1e308}, r"scale must be at most 1e\+15, got 1e\+308"),
        ({"outliers": ("ghosts",)}, "ghosts"),
        ({"outlier_weight": True}, "outliers must have a finite weight of at least 0, got True; 0 makes none"),
        ({"method": "magic"}, "method must be one of 'gradient', 'closed-form', got 'magic'"),
        ({"random_features": -1}, "random_features must be a whole number of at least 0"),
        ({"random_features": 10**12}, "random_features must be at most 32,768, got 1000000000000"),
        ({"random_features": 8}, "random_features is for method='closed-form', got method='gradient'; leave it out"),
        ({"weights": (0.0, 1.0, 1.0)}, "weights must be three numbers of at least 0, the first above 0, got"),
        ({"weights": (1.0, -1.0, 1.0)}, "weights must be three numbers of at least 0, the first above 0, got"),
        ({"class_weight": "equal"}, "class_weight must be one of 'balanced', 'sqrt', 'auto', got 'equal'"),
        ({"class_weight": "auto"}, "class_weight='auto' is for method='closed-form'; use 'balanced', 'sqrt' or None"),
        ({"method": "closed-form", "head": "cac"}, "head='cac' and loss='squared'; use method='gradient'"),
        ({"method": "closed-form", "loss": "distance"}, "loss='distance'; use method='gradient'"),
        ({"neighbours": 0}, "neighbours must be a whole number of at least 1"),
    ],
)
def test_impossible_recipes_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        Recipe(**options)


def test_a_recipe_is_plain_data():
    recipe = Recipe(layers=("a:input",), outliers=())
    values = json.loads(json.dumps(recipe.as_dict()))
    assert Recipe(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}) == recipe
