"""The fast network: its whitening layer, its mirror images, its size."""

import math

import numpy as np
import pytest
import torch

from openradial import models
from openradial.errors import OptionError, ShapeError
from openradial.nn import hidden_layers


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


def means_of_parts(x, parts=3):
    """Means over 3 x 3 parts of a map; a part begins at the largest pixel before and ends at the smallest after."""
    edges = [
        [(i * side // parts, -(-(i + 1) * side // parts)) for i in range(parts)] for side in (x.shape[2], x.shape[3])
    ]
    return np.array(
        [[[[m[r0:r1, c0:c1].mean() for c0, c1 in edges[1]] for r0, r1 in edges[0]] for m in image] for image in x]
    )


@pytest.mark.parametrize("size", [16, 20])
def test_maps_are_roots_of_the_last_three_feature_maps(size):
    torch.manual_seed(0)
    net, x = models.build("fast_cnn", 4, widths=(8, 6, 5)).eval(), images(4, size=size)
    names = ["groups.1.norm2", "groups.2.norm1", "groups.2.norm2"]
    shapes = {}
    for name in names:
        net.get_submodule(name).register_forward_hook(lambda _, __, o, name=name: shapes.update({name: o}))
    maps = hidden_layers(net, x, ["maps:input"])["maps:input"].detach()
    assert maps.shape == (4, 9 * (6 + 5 + 5))
    expected = [means_of_parts(gelu(shapes[name].detach().double().numpy())) for name in names]
    expected = np.sqrt(np.maximum(np.concatenate(expected, 1), 1e-8)).reshape(4, -1)
    np.testing.assert_allclose(maps, expected, rtol=1e-4, atol=1e-4)


def gelu(x):
    return np.array([v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x.ravel()]).reshape(x.shape)


def test_maps_of_a_mirror_image_are_mirrored_and_have_a_slope_everywhere():
    torch.manual_seed(0)
    net, x = models.build("fast_cnn", 4, widths=(8, 6, 5), test_flip=True, test_shift=1).eval(), images(4)
    one = hidden_layers(net, x, ["maps:input"])["maps:input"]
    net.test_shift = 0
    still = hidden_layers(net, x.requires_grad_(), ["maps:input"])["maps:input"]
    turned = hidden_layers(net, x.flip(-1), ["maps:input"])["maps:input"]
    torch.testing.assert_close(turned.view(4, 16, 3, 3).flip(-1).flatten(1), still, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(one, still, atol=1e-3)
    still.sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("test_flip", [False, True])
def test_features_are_the_mean_over_two_shifted_views_in_evaluation_mode(test_flip):
    torch.manual_seed(0)
    net = models.build("fast_cnn", 4, widths=(8, 8, 8), test_flip=test_flip, test_shift=2).eval()
    one, x = models.build("fast_cnn", 4, widths=(8, 8, 8)), images()
    one.load_state_dict(net.state_dict())
    one.eval()
    views = [x.numpy(), x.numpy()[..., ::-1] if test_flip else x.numpy()]
    wide = [np.pad(view, ((0, 0), (0, 0), (2, 2), (2, 2)), mode="reflect") for view in views]
    first, second = wide[0][:, :, :16, :16].copy(), wide[1][:, :, 4:, 4:].copy()
    expected = (one(torch.from_numpy(first)) + one(torch.from_numpy(second))) / 2
    assert torch.allclose(net(x), expected, atol=1e-5)
    assert not torch.allclose(net(x), one(x), atol=1e-4)
    assert torch.equal(net.train()(x), one.train()(x))
    with pytest.raises(OptionError, match="test_shift must be at most 8, got 9"):
        models.build("fast_cnn", 4, test_shift=9)


def test_normalisation_learns_biases_alone_and_small_images_are_refused():
    net = models.build("fast_cnn", 4)
    trained = {name for name, parameter in net.named_parameters() if parameter.requires_grad}
    assert "groups.0.norm1.bias" in trained
    assert "groups.0.norm1.weight" not in trained
    assert sum(parameter.numel() for parameter in net.parameters()) == 1_971_260
    with pytest.raises(ShapeError, match="at least 16 x 16 pixels, got 8 x 8"):
        net(torch.zeros(1, 3, 8, 8))
