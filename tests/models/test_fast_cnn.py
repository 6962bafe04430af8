"""The fast network: its whitening layer, its mirror images, its size."""

import numpy as np
import pytest
import torch

from openradial import models
from openradial.errors import OptionError, ShapeError


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


def single_networks(net, width):
    """One network for each member of an ensemble, with its weights."""
    root = len(net.members) ** 0.5
    for m, member in enumerate(net.members):
        one = models.build("fast_cnn", net.classifier.out_features, widths=(8, 8, width), test_flip=net.test_flip)
        one.whiten.load_state_dict(net.whiten.state_dict())
        one.members[0].load_state_dict(member.state_dict())
        one.classifier.weight.data.copy_(root * net.classifier.weight[:, width * m : width * (m + 1)])
        yield one.train(net.training)


def test_an_ensemble_trains_each_member_on_its_part_of_the_batch_and_predicts_their_mean():
    torch.manual_seed(0)
    net, x = models.build("fast_cnn", 4, widths=(8, 8, 6), members=3, test_flip=True), images()
    net.fit_whitening(x)
    expected = torch.cat([one(part) for one, part in zip(single_networks(net, 6), x.tensor_split(3), strict=True)])
    o = net(x)
    torch.testing.assert_close(o, expected)
    o[:7].square().sum().backward()  # the part of the first member
    assert net.members[0][0].conv1.weight.grad.abs().max() > 0
    assert not net.members[1][0].conv1.weight.grad.any()
    with torch.no_grad():
        net.eval()
        singles = list(single_networks(net, 6))
        torch.testing.assert_close(net(x), torch.stack([one(x) for one in singles]).mean(0))
        features = torch.cat([one.forward_features(x) for one in singles], 1) / 3**0.5
        torch.testing.assert_close(net.forward_features(x), features)


def test_a_batch_with_fewer_examples_than_members_trains_some_of_them():
    net = models.build("fast_cnn", 4, widths=(8, 8, 8), members=3)
    assert net(images(3)).shape == (3, 4)
    assert [int(member[0].norm1.num_batches_tracked) for member in net.members] == [1, 0, 0]
    assert all(torch.isfinite(tensor).all() for tensor in net.state_dict().values())


def test_normalisation_learns_biases_alone_and_small_images_are_refused():
    net = models.build("fast_cnn", 4)
    trained = {name for name, parameter in net.named_parameters() if parameter.requires_grad}
    assert "members.0.0.norm1.bias" in trained
    assert "members.0.0.norm1.weight" not in trained
    assert sum(parameter.numel() for parameter in net.parameters()) == 1_971_260
    with pytest.raises(ShapeError, match="at least 16 x 16 pixels, got 8 x 8"):
        net(torch.zeros(1, 3, 8, 8))
