"""Mixup: the loss of weighted means of two examples."""

import numpy as np
import pytest
import torch
from torch import nn

from openradial import RadialLoss, models
from openradial.errors import OptionError
from openradial.nn.objective import MixupObjective
from openradial.recipe import Recipe, default_recipe


@pytest.mark.parametrize("seed", range(5))
def test_the_squared_loss_pulls_to_the_point_between_two_prototypes(seed):
    torch.manual_seed(seed)
    net, x, y = nn.Linear(3, 4, bias=False).double(), torch.randn(6, 3).double(), torch.tensor([0, 1, 2, 3, 0, 1])
    torch.manual_seed(seed)
    loss, o = MixupObjective(RadialLoss(metric="squared_euclidean"), alpha=1.0)(net, x, y)
    loss.backward()
    torch.manual_seed(seed)
    share, order = float(torch.distributions.Beta(1.0, 1.0).sample()), torch.randperm(6).numpy()
    mixed = share * x.numpy() + (1 - share) * x.numpy()[order]
    target = share * np.eye(4)[y] + (1 - share) * np.eye(4)[y][order]  # between the prototypes
    np.testing.assert_allclose(o.detach().numpy(), mixed @ net.weight.detach().numpy().T, rtol=1e-12)
    gradient = 2 * (o.detach().numpy() - target).T @ mixed / 6  # of the mean squared distance to that point
    np.testing.assert_allclose(net.weight.grad.numpy(), gradient, rtol=1e-10, atol=1e-12)


def test_nothing_is_mixed_in_evaluation_mode():
    net, x, y = nn.Linear(3, 4).eval(), torch.randn(6, 3), torch.tensor([0, 1, 2, 3, 0, 1])
    loss, o = MixupObjective(RadialLoss(), alpha=1.0)(net, x, y)
    assert torch.equal(o, net(x))
    assert torch.equal(loss, RadialLoss()(net(x), y))


def test_the_recipe_makes_it_for_both_heads_and_refuses_what_contradicts_it():
    for head in ("radial", "softmax"):
        recipe = Recipe(head, mixup=0.4, label_smoothing=0.1)
        objective = recipe.make_objective(recipe.make_head(3))
        assert isinstance(objective, MixupObjective)
        assert objective.alpha == 0.4
        assert objective.loss.label_smoothing == 0.1
    with pytest.raises(OptionError, match="mixup gives means of examples a class, and outliers none; set outliers=0"):
        Recipe(mixup=0.4, outliers=("mean",))
    with pytest.raises(OptionError, match="mixup must be a finite number above 0, got -1"):
        Recipe(mixup=-1)
    with pytest.raises(OptionError, match="label_smoothing is for the heads radial and softmax, got 'cac'"):
        Recipe("cac", label_smoothing=0.1)


def test_mixup_replaces_the_default_outliers():
    recipe = default_recipe(models.build("mlp", 2, inputs=2), "mlp", "points", mixup=0.2)
    assert (recipe.mixup, recipe.outlier_weight) == (0.2, 0.0)
