import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openradial.data.sets.spiral import spiral
from openradial.errors import OptionError


def naive_point(radius, arm, arms, turns):
    angle = 2 * math.pi * (arm / arms + turns * radius)
    return radius * math.cos(angle), radius * math.sin(angle)


@given(st.integers(1, 200), st.integers(1, 7), st.sampled_from([-2.0, 0.0, 0.7, 3.0]), st.integers(0, 5))
def test_points_without_noise_lie_on_the_formula(n, arms, turns, seed):
    found = spiral(n, arms=arms, noise=0.0, turns=turns, seed=seed)
    assert found.inputs.shape == (n, 2)
    assert found.inputs.dtype == torch.float32
    radii = found.inputs.double().norm(dim=1)
    assert radii.min() >= 0.1 - 1e-6
    assert radii.max() <= 1 + 1e-6
    expected = [naive_point(r, y, arms, turns) for r, y in zip(radii.tolist(), found.labels.tolist(), strict=True)]
    np.testing.assert_allclose(found.inputs.numpy(), expected, atol=1e-5)


@given(st.integers(1, 100), st.integers(1, 7))
def test_every_beginning_is_balanced(n, arms):
    found = spiral(max(n, arms), arms=arms)
    assert len(found.classes) == arms
    for end in range(arms, len(found), arms):
        counts = found.select(torch.arange(end)).counts()
        assert counts.max() - counts.min() <= 1


def test_the_seed_and_the_split_decide():
    assert torch.equal(spiral(50, seed=3).inputs, spiral(50, seed=3).inputs)
    assert not torch.equal(spiral(50, seed=3).inputs, spiral(50, seed=4).inputs)
    assert not torch.equal(spiral(50, split="train").inputs, spiral(50, split="test").inputs)


def test_golden_points():
    expected = torch.tensor(
        [[-0.5023288, -0.1995504], [-0.2410702, 0.9388601], [0.1900652, -0.1333147], [0.9144228, -0.2621503]]
    )
    torch.testing.assert_close(spiral(4, seed=1).inputs, expected, atol=1e-6, rtol=0)


def test_noise_has_the_given_width():
    moved = spiral(20_000, noise=0.05).inputs - spiral(20_000, noise=0.0).inputs
    assert moved.std(dim=0).tolist() == pytest.approx([0.05, 0.05], rel=0.03)


def test_exactly_the_given_share_gets_a_random_label():
    clean, noisy = spiral(30_000), spiral(30_000, label_noise=0.1)
    assert torch.equal(clean.inputs, noisy.inputs)
    wrong = (clean.labels != noisy.labels).sum().item()
    assert wrong <= 3000
    assert wrong == pytest.approx(2000, abs=100)  # one in three random labels is right by chance
    assert noisy.counts().min() > 9800


def test_all_labels_can_be_random():
    clean, noisy = spiral(3000), spiral(3000, label_noise=1.0)
    assert (clean.labels == noisy.labels).float().mean().item() == pytest.approx(1 / 3, abs=0.04)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n must be a whole number of at least 1, got 0"),
        ({"arms": 0}, "arms must be a whole number of at least 1, got 0"),
        ({"arms": 2.5}, "arms must be a whole number of at least 1, got 2.5"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"noise": -0.1}, "noise must be a finite number of at least 0, got -0.1"),
        ({"noise": math.nan}, "noise must be a finite number of at least 0, got nan"),
        ({"turns": math.inf}, "turns must be a finite number, got inf"),
        ({"label_noise": 10}, "label_noise must be a share in 0..1, got 10; 0.1 is the paper's 10 %"),
        ({"split": "all"}, "split must be one of 'train', 'test', got 'all'"),
    ],
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(OptionError) as caught:
        spiral(**options)
    assert str(caught.value) == message
