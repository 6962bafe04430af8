"""Rotations: class and turn of an image are learned together."""

import numpy as np
import pytest
import torch
from torch import nn

import openradial
from openradial import RadialLoss, models
from openradial.errors import OptionError
from openradial.fitting.networks import choose_network
from openradial.fitting.options import FitOptions
from openradial.nn.objective import RotationObjective, turned
from openradial.recipe import Recipe

SQUARED = RadialLoss(metric="squared_euclidean")


def images(n=12, size=16):
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(3))


def test_each_image_is_turned_by_its_own_number_of_quarters():
    x, turns = images(8, 5), torch.tensor([0, 1, 2, 3, 3, 2, 1, 0])
    want = np.stack([np.rot90(image, turn, (1, 2)) for image, turn in zip(x.numpy(), turns.numpy(), strict=True)])
    np.testing.assert_array_equal(turned(x, turns).numpy(), want)


class Recorded(nn.Module):
    """Four outputs per class of three, that are the first numbers of an image; the images are kept."""

    def forward(self, x):
        self.seen = x
        return x.flatten(1)[:, :12] if self.training else x.flatten(1)[:, :3]


def test_the_target_is_the_prototype_of_class_and_turn():
    net, x, y = Recorded(), images(), torch.arange(12) % 3
    torch.manual_seed(5)
    loss, o = RotationObjective(SQUARED)(net, x, y)
    pairs = zip(net.seen, x, strict=True)
    turns = [next(t for t in range(4) if torch.equal(seen, one.rot90(t, (1, 2)))) for seen, one in pairs]
    assert len(set(turns)) > 2
    outputs = net.seen.flatten(1)[:, :12].double().numpy()
    places = 4 * y.numpy() + np.array(turns)
    np.testing.assert_allclose(float(loss), np.square(outputs - np.eye(12)[places]).sum(1).mean(), rtol=1e-6)
    want = [[row[4 * k + turn] for k in range(3)] for row, turn in zip(outputs, turns, strict=True)]
    np.testing.assert_array_equal(o.numpy(), np.float32(want))


def test_nothing_is_turned_in_evaluation_mode():
    net, x, y = Recorded().eval(), images(), torch.arange(12) % 3
    loss, o = RotationObjective(SQUARED)(net, x, y)
    assert torch.equal(net.seen, x)
    assert torch.equal(loss, SQUARED(o, y))


@pytest.mark.parametrize("test_flip", [False, True])
def test_the_output_of_a_class_is_the_mean_over_the_turns_of_what_training_gives(test_flip):
    torch.manual_seed(0)
    net = models.build("fast_cnn", 3, widths=(8, 8, 8), rotations=True, test_flip=test_flip)
    net(images(64))  # statistics of the normalisation
    x, outputs = images(), []
    with torch.no_grad():
        for layer in net.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.eval()
        for t in range(4):
            view = x.rot90(t, (2, 3))
            both = [net(view), net(view.flip(-1))] if test_flip else [net(view)]
            outputs.append(sum(both)[:, t::4] / len(both))
        assert net(x).shape == (12, 12)
        o = net.eval()(x)
    assert net.forward_features(x).shape == (12, 32)
    assert net.num_features == 32
    torch.testing.assert_close(o, sum(outputs) / 4, rtol=1e-5, atol=1e-6)


def test_options_make_the_network_and_the_objective_and_refuse_the_rest():
    recipe = Recipe("radial", rotations=True)
    assert isinstance(recipe.make_objective(recipe.make_head(3)), RotationObjective)
    for options in ({"mixup": 0.2}, {"outliers": ("mean",)}, {"class_weight": "sqrt"}):
        with pytest.raises(OptionError, match="without mixup, outliers and class weights"):
            Recipe(rotations=True, **options)
    source = openradial.data.sources.open("digits")
    with pytest.raises(OptionError, match="rotations are for the network fast_cnn, and this one is mlp"):
        choose_network(FitOptions("digits", rotations=True, method="gradient"), source)
    pretrained = FitOptions("digits", rotations=True, model="efficientnet_lite0", weights="imagenet")
    with pytest.raises(OptionError, match="rotations are for the network fast_cnn, and this one is efficientnet"):
        choose_network(pretrained, source)
    with pytest.raises(OptionError, match="rotations is for images, and spiral holds points"):
        openradial.fit("spiral", rotations=True, outliers=0.0, epochs=1)


def test_a_model_is_fitted_with_them_and_saved(tmp_path):
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 60, (360, 3, 28, 28), dtype=torch.uint8, generator=generator)
    y = torch.arange(360) % 3
    for k in range(3):  # a bright stripe: at the top, in the middle, at the left
        rows = (slice(0, 6), slice(11, 17), slice(None))[k]
        columns = slice(0, 6) if k == 2 else slice(None)
        x[y == k, :, rows, columns] += 150
    options = {"epochs": 3, "batch_size": 64, "model_options": {"widths": (8, 16, 16)}, "method": "gradient"}
    fit = openradial.fit((x.numpy(), y.numpy()), rotations=True, out=tmp_path / "model", **options)
    assert fit.net.rotations
    loaded = openradial.load(tmp_path / "model")
    inputs = fit.preprocessing.normalise()(x[:50])
    torch.testing.assert_close(loaded.decide(inputs).unknown_score, fit.decide(inputs).unknown_score)
