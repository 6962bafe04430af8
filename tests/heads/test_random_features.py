import math

import numpy as np
import pytest
import torch
from naive_ridge import assert_equal

from openradial.heads.random_features import RandomFeatures, median_distance


def test_the_map_is_that_of_the_definition():
    features = RandomFeatures.draw(4, 30, 2.0, seed=3)
    z = torch.randn(7, 4, dtype=torch.float64)
    frequencies, phases = features.frequencies.double().numpy(), features.phases.double().numpy()
    assert_equal(features(z), math.sqrt(2 / 30) * np.cos(z.numpy() @ frequencies + phases))
    assert features(z.float()).dtype == torch.float32
    torch.testing.assert_close(features(z.float()), features(z).float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("width", [0.5, 3.0])
def test_inner_products_approximate_the_gaussian_kernel(width):
    features = RandomFeatures.draw(3, 20_000, width)
    z = width * torch.randn(6, 3, dtype=torch.float64)
    kernel = torch.exp(-torch.cdist(z, z).square() / (2 * width**2))
    approximation = features(z) @ features(z).T
    assert (approximation - kernel).abs().max() < 5 / math.sqrt(20_000)


def test_frequencies_are_normal_and_phases_uniform():
    features = RandomFeatures.draw(10, 5_000, 2.0)
    assert float(features.frequencies.mean()) == pytest.approx(0, abs=0.01)
    assert float(features.frequencies.std()) == pytest.approx(0.5, rel=0.02)
    assert float(features.phases.min()) >= 0
    assert float(features.phases.max()) < 2 * math.pi + 1e-6
    assert float(features.phases.mean()) == pytest.approx(math.pi, rel=0.03)


def test_one_seed_gives_one_map_whatever_was_drawn_before():
    first = RandomFeatures.draw(3, 8, 1.5, seed=1)
    torch.randn(5)
    assert RandomFeatures.same(first, RandomFeatures.draw(3, 8, 1.5, seed=1))
    for other in (
        RandomFeatures.draw(3, 8, 1.5, seed=2),
        RandomFeatures.draw(3, 8, 1.6, seed=1),
        RandomFeatures.draw(3, 9, 1.5, seed=1),
        RandomFeatures.draw(4, 8, 1.5, seed=1),
        None,
    ):
        assert not RandomFeatures.same(first, other)
        assert not RandomFeatures.same(other, first)
    assert not RandomFeatures.same(None, None)


def test_drawing_does_not_touch_the_global_generator():
    torch.manual_seed(7)
    expected = torch.randn(3)
    torch.manual_seed(7)
    RandomFeatures.draw(3, 8, 1.5)
    median_distance(torch.randn(0, 3))
    assert torch.equal(torch.randn(3), expected)


def test_the_median_distance_is_that_of_pairs():
    z = torch.tensor([[0.0], [3.0]]).repeat(200, 1)
    assert median_distance(z) == 3.0
    rng = torch.Generator().manual_seed(0)
    z = torch.randn(2_000, 4, generator=rng)
    assert median_distance(z) == pytest.approx(float(torch.pdist(z).median()), rel=0.05)
    assert median_distance(10 * z.half().double(), seed=1) == pytest.approx(10 * median_distance(z), rel=0.1)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_median_distance_of_equal_rows_is_one(n):
    assert median_distance(torch.ones(n, 3)) == 1.0
