import re
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openradial.attacks.region import Region
from openradial.errors import DTypeError, OptionError, ShapeError

dtypes = st.sampled_from([torch.float32, torch.float64])
seeds = st.integers(0, 10**6)
epsilons = st.one_of(st.sampled_from([0.0, 0.1, 0.3, 8 / 255, 1e-7, 1e-30]), st.floats(0, 3))


def noise(seed, *shape, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def exact(x):
    return [Fraction(value) for value in x.double().flatten().tolist()]


@given(seed=seeds, epsilon=epsilons, dtype=dtypes, size=st.sampled_from([1e-3, 1.0, 1e6]))
def test_no_value_is_ever_moved_farther_than_epsilon_not_even_by_rounding(seed, epsilon, dtype, size):
    x = size * noise(seed, 4, 6, dtype=dtype)
    region = Region.around(x, epsilon, -torch.inf, torch.inf, "linf")
    moved = region.moved(3 * epsilon * noise(seed + 1, 4, 6, dtype=dtype))
    for before, after in zip(exact(x), exact(moved), strict=True):
        assert abs(after - before) <= Fraction(epsilon)


@given(seed=seeds, epsilon=epsilons, dtype=dtypes, size=st.sampled_from([1e-3, 1.0, 1e6]))
def test_no_input_is_ever_moved_farther_than_epsilon_in_euclidean_length(seed, epsilon, dtype, size):
    x = size * noise(seed, 3, 5, dtype=dtype)
    region = Region.around(x, epsilon, -torch.inf, torch.inf, "l2")
    moved = region.moved(3 * epsilon * noise(seed + 1, 3, 5, dtype=dtype))
    for before, after in zip(x, moved, strict=True):
        square = sum((b - a) ** 2 for a, b in zip(exact(before), exact(after), strict=True))
        assert square <= Fraction(epsilon) ** 2


@given(seed=seeds, epsilon=epsilons, dtype=dtypes, norm=st.sampled_from(["linf", "l2"]))
def test_points_stay_in_the_valid_range_of_each_channel(seed, epsilon, dtype, norm):
    low, high = torch.tensor([-0.4, 0.1]).view(2, 1).double() / 3, torch.tensor([0.5, 2.0]).view(2, 1).double() / 3
    x = torch.maximum(torch.minimum(noise(seed, 3, 2, 4), high), low).to(dtype)
    region = Region.around(x, epsilon, low, high, norm)
    moved = region.moved(noise(seed + 1, 3, 2, 4, dtype=dtype))
    # an input that was rounded out of the range by its own type may stay where it is
    assert (
        (moved.double() >= torch.minimum(low, x.double())) & (moved.double() <= torch.maximum(high, x.double()))
    ).all()


@given(seed=seeds, epsilon=epsilons, norm=st.sampled_from(["linf", "l2"]))
def test_what_lies_inside_stays_where_it_is(seed, epsilon, norm):
    x = noise(seed, 3, 4)
    delta = 0.4 * epsilon * noise(seed + 1, 3, 4).tanh()  # at most 0.8 epsilon long
    moved = Region.around(x, epsilon, -torch.inf, torch.inf, norm).moved(delta)
    torch.testing.assert_close(moved, x + delta, rtol=1e-14, atol=1e-14)


@given(seed=seeds, norm=st.sampled_from(["linf", "l2"]))
def test_projecting_twice_is_projecting_once(seed, norm):
    x = noise(seed, 3, 4).sigmoid()
    region = Region.around(x, 0.2, 0.0, 1.0, norm)
    once = region.moved(noise(seed + 1, 3, 4))
    torch.testing.assert_close(region.moved(once - x), once, rtol=1e-13, atol=1e-13)


@given(seed=seeds, norm=st.sampled_from(["linf", "l2"]))
def test_no_change_in_the_ball_raises_a_linear_loss_more_than_the_steepest(seed, norm):
    gradient, epsilon = noise(seed, 1, 6), torch.rand(6, dtype=torch.float64) + 0.1
    region = Region.around(torch.zeros(1, 6, dtype=torch.float64), epsilon, -torch.inf, torch.inf, norm)
    best = (gradient * region.steepest(gradient)).sum()
    dual = (gradient * epsilon).abs().sum() if norm == "linf" else (gradient * epsilon).norm()
    torch.testing.assert_close(best, dual)
    others = torch.cat([region.moved(noise(seed + i, 1, 6)) for i in range(20)])
    assert ((gradient * others).sum(1) <= best * (1 + 1e-12)).all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("size", [1e-44, 1e-30, 1e30])
def test_tiny_and_huge_gradients_point_as_any_other(norm, size):
    region = Region.around(torch.zeros(1, 2), 0.5, -torch.inf, torch.inf, norm)
    step = region.steepest(torch.tensor([[1.0, -1.0]]) * size)
    expected = torch.tensor([[0.5, -0.5]]) / (1 if norm == "linf" else 2**0.5)
    torch.testing.assert_close(step, expected)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_a_zero_gradient_moves_nothing(norm):
    region = Region.around(torch.zeros(2, 3), 0.5, -1.0, 1.0, norm)
    assert not region.steepest(torch.zeros(2, 3)).any()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_a_channel_with_epsilon_zero_does_not_move(norm):
    epsilon = torch.tensor([0.0, 0.3]).view(2, 1)
    region = Region.around(torch.zeros(1, 2, 4), epsilon, -1.0, 1.0, norm)
    for delta in (noise(1, 1, 2, 4).float(), region.steepest(noise(2, 1, 2, 4).float())):
        moved = region.moved(delta)
        assert not moved[:, 0].any()
        assert moved[:, 1].all()


def test_random_starts_fill_the_ball_evenly():
    generator = torch.Generator().manual_seed(0)
    region = Region.around(torch.zeros(1, 2, dtype=torch.float64), 2.0, -9.0, 9.0, "l2")
    radii = torch.stack([region.random(generator).norm() for _ in range(2000)])
    assert radii.max() <= 2
    assert abs(float((radii < 2 / 2**0.5).double().mean()) - 0.5) < 0.04  # half the area of the disc
    square = Region.around(torch.zeros(1, 2, dtype=torch.float64), 2.0, -9.0, 9.0, "linf")
    values = torch.stack([square.random(generator) for _ in range(2000)])
    assert values.abs().max() <= 2
    assert abs(float((values.abs() < 1).double().mean()) - 0.5) < 0.04


def test_inputs_a_rounding_error_out_of_range_are_taken_and_not_moved_back():
    x = torch.tensor([[1.000001, -0.000001]])
    assert torch.equal(Region.around(x, 0.0, 0.0, 1.0, "linf").moved(torch.zeros(1, 2)), x)


@pytest.mark.parametrize("value", [-0.5, 1.5, torch.nan])
def test_inputs_out_of_range_name_the_way_out(value):
    x = torch.tensor([[0.5, 0.5], [0.5, value]])
    message = (
        f"inputs must lie between low and high, got {value:.6g} in row 1; give low and high in the units of the "
        "inputs, for (x - mean) / std: low=(0 - mean) / std, high=(1 - mean) / std"
    )
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        Region.around(x, 0.1, 0.0, 1.0, "linf")


@pytest.mark.parametrize("epsilon", [-0.1, torch.inf, torch.nan])
def test_epsilon_is_finite_and_not_below_zero(epsilon):
    with pytest.raises(OptionError, match=f"^epsilon must be finite and at least 0, got {epsilon}$"):
        Region.around(torch.zeros(1, 2), epsilon, 0.0, 1.0, "linf")


def test_limits_per_channel_have_the_axes_of_an_input():
    message = (
        "epsilon must be a number or have one axis per axis of an input of shape (3, 8, 3), each equal or 1, got (3,); "
        "for one value per channel of an image call .view(-1, 1, 1)"
    )
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        Region.around(torch.zeros(2, 3, 8, 3), torch.ones(3), 0.0, 1.0, "linf")


def test_words_are_refused():
    message = "inputs must be tensors of float32 or float64, got torch.int64; for texts, attack the embeddings"
    with pytest.raises(DTypeError, match=f"^{re.escape(message)}$"):
        Region.around(torch.zeros(2, 3, dtype=torch.int64), 0.1, 0.0, 1.0, "linf")


def test_a_single_input_without_a_batch_is_refused():
    message = "inputs must have the shape (b, ...) with at least one value each, got (3,)"
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        Region.around(torch.zeros(3), 0.1, 0.0, 1.0, "linf")


def test_an_unknown_norm_lists_the_known_ones():
    with pytest.raises(OptionError, match=r"^norm must be one of 'linf', 'l2', got 'l1'$"):
        Region.around(torch.zeros(1, 3), 0.1, 0.0, 1.0, "l1")
