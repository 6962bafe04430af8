"""The fast network: its whitening layer, its mirror images, its size."""

import numpy as np
import pytest
import torch

from openradial import models
from openradial.errors import ShapeError


def images(n=20, channels=3, size=16):
    x = torch.randn(n, channels, size, size, generator=torch.Generator().manual_seed(1))
    return x + x.roll(1, -1)  # neighbouring pixels are correlated


@pytest.mark.parametrize("channels", [1, 3])
def test_the_first_layer_whitens_patches(channels):
    net = models.build("fast_cnn", 4, channels=channels, widths=(8, 8, 8))
    net.fit_whitening(images(channels=channels))
    filters = net.whiten.weight.numpy().astype(np.float64)
    half = 4 * channels
    np.testing.assert_array_equal(filters[half:], -filters[:half])
    x = images(channels=channels).numpy().astype(np.float64)
    patches = [x[:, :, i : i + 2, j : j + 2].reshape(len(x), -1) for i in range(15) for j in range(15)]
    moments = np.concatenate(patches).T @ np.concatenate(patches) / (225 * len(x))
    rows = filters[:half].reshape(half, -1)
    np.testing.assert_allclose(rows @ moments @ rows.T, np.eye(half), atol=5e-3)  # 5e-4 is added to each variance
    values = np.linalg.eigvalsh(moments)[::-1]
    np.testing.assert_allclose(1 / np.square(rows).sum(1) - 5e-4, values, rtol=1e-4)  # the largest variance first
    assert not net.whiten.weight.requires_grad


def test_features_are_those_of_the_image_and_its_mirror_image_in_evaluation_mode():
    torch.manual_seed(0)
    net, x = models.build("fast_cnn", 4, widths=(8, 8, 8), test_flip=True).eval(), images()
    assert torch.allclose(net(x), net(x.flip(-1)), atol=1e-5)
    one = models.build("fast_cnn", 4, widths=(8, 8, 8))
    one.load_state_dict(net.state_dict())
    one.eval()
    assert not torch.allclose(one(x), one(x.flip(-1)), atol=1e-3)
    assert torch.allclose(net(x), (one(x) + one(x.flip(-1))) / 2, atol=1e-5)
    assert net.train()(x).shape == (20, 4)


def test_normalisation_learns_biases_alone_and_small_images_are_refused():
    net = models.build("fast_cnn", 4)
    trained = {name for name, parameter in net.named_parameters() if parameter.requires_grad}
    assert "groups.0.norm1.bias" in trained
    assert "groups.0.norm1.weight" not in trained
    assert sum(parameter.numel() for parameter in net.parameters()) == 1_971_260
    with pytest.raises(ShapeError, match="at least 16 x 16 pixels, got 8 x 8"):
        net(torch.zeros(1, 3, 8, 8))


@pytest.mark.parametrize("rotations", [False, True])
def test_normalised_features_curve_the_squared_loss_less_than_its_steps_allow(rotations):
    torch.manual_seed(0)
    net, x = models.build("fast_cnn", 4, widths=(8, 8, 16), rotations=rotations), images(200)
    z = net.forward_features(x).double()  # (b, 16)
    factor = 1.5 * np.sqrt(16 / (15 if rotations else 3))  # 16 or 4 classes span 15 or 3 directions
    np.testing.assert_allclose(z.mean(0).detach(), 0, atol=1e-6)
    np.testing.assert_allclose(z.var(0, correction=0).detach() * factor**2, 1, rtol=1e-3)
    # classes that have collapsed to one point each, as far apart as possible: every direction has the same variance
    axes = torch.eye(4).double() - 0.25
    points = axes / axes.square().mean(0).sqrt().norm() * np.sqrt(16) / (1.5 * np.sqrt(16 / 3))  # as long as features
    curvature = 2 * torch.linalg.eigvalsh(points.T @ points / 4).max()
    momentum, rate = 0.85, 1.5
    assert curvature * rate < 2 * (1 + momentum) / (1 + 2 * momentum)


def test_features_that_are_not_normalised_are_those_of_airbench_and_both_survive_a_round_trip():
    torch.manual_seed(0)
    net, x = models.build("fast_cnn", 4, widths=(8, 8, 8), normalise=False), images()
    net(x)
    z = net.eval().forward_features(x)
    torch.testing.assert_close(9 * z, net.groups(torch.nn.functional.gelu(net.whiten(x))).amax((2, 3)))
    normalised = models.build("fast_cnn", 4, widths=(8, 8, 8))
    normalised(x)
    same = models.build("fast_cnn", 4, widths=(8, 8, 8))
    same.load_state_dict(normalised.state_dict())
    assert torch.equal(same.eval()(x), normalised.eval()(x))
