import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openradial.errors import OptionError
from openradial.estimator.probabilities import closed_world, open_world, true_beta

log_probs = st.integers(2, 6).flatmap(
    lambda k: st.lists(st.floats(-800.0, 0.0), min_size=k, max_size=k).map(lambda row: torch.tensor([row]).double())
)


def naive_closed(row):
    shifted = [math.exp(value - max(row)) for value in row]
    return [value / sum(shifted) for value in shifted]


def naive_open(row):
    """The nearest class keeps what it has; the others too, or they share what is left in proportion."""
    probs = [math.exp(value) for value in row]
    best = probs.index(max(probs))
    wanted = sum(value for k, value in enumerate(probs) if k != best)
    left = 1 - probs[best]
    factor = 1.0 if wanted <= left else left / wanted
    return [value if k == best else value * factor for k, value in enumerate(probs)]


@given(log_probs)
def test_both_worlds_equal_their_definition(rows):
    row = rows[0].tolist()
    np.testing.assert_allclose(closed_world(rows)[0], naive_closed(row), rtol=1e-9, atol=1e-300)
    left = max(-math.expm1(max(row)), 1e-16)  # what is left for the others cancels next to a prototype
    close = {"rtol": 1e-9 + 4e-16 / left, "atol": 1e-300}
    np.testing.assert_allclose(open_world(rows)[0], naive_open(row), **close)


@given(log_probs)
def test_rows_sum_to_one_in_the_closed_world_and_to_at_most_one_in_the_open(rows):
    assert float(closed_world(rows).sum()) == pytest.approx(1, abs=1e-12)
    assert 0 <= float(open_world(rows).sum()) <= 1 + 1e-12


@given(log_probs)
def test_neither_world_turns_an_order_around(rows):
    row = rows[0]
    for world in (closed_world, open_world):
        probs = world(rows)[0]
        assert not ((row[:, None] > row) & (probs[:, None] < probs)).any()


@given(log_probs)
def test_the_nearest_class_keeps_its_radial_probability_in_the_open_world(rows):
    assert float(open_world(rows).max()) == float(rows.exp().max())


def test_probabilities_that_fit_into_one_stay_as_they_are():
    rows = torch.tensor([[0.5, 0.3, 0.1], [0.01, 0.0, 0.0]]).log()
    torch.testing.assert_close(open_world(rows), rows.exp())


def test_a_row_on_a_prototype_leaves_nothing_to_the_others():
    assert open_world(torch.tensor([[-1.4, 0.0, -1.4]])).tolist() == [[0.0, 1.0, 0.0]]


@pytest.fixture
def rows():
    generator = torch.Generator().manual_seed(0)
    distances = torch.rand(400, 3, generator=generator).double()
    y = torch.multinomial((-4.0 * distances).softmax(-1), 1, generator=generator)[:, 0]
    return distances, y


@pytest.mark.parametrize("is_open", [False, True])
def test_the_true_beta_makes_held_out_rows_most_likely(rows, is_open):
    distances, y = rows
    best = true_beta(distances, y, is_open=is_open)

    def likelihood(beta):
        if not is_open:
            return float(closed_world(-beta * distances).gather(1, y[:, None]).log().sum())
        nearest, winner = distances.min(1)
        won = torch.exp(-beta * nearest)
        return float(torch.where(winner == y, won, 1 - won).log().sum())

    assert all(likelihood(best) > likelihood(best * factor) for factor in (0.9, 0.99, 1.01, 1.1))


def test_the_true_beta_of_the_closed_world_is_the_one_that_drew_the_labels(rows):
    assert true_beta(*rows, is_open=False) == pytest.approx(4.0, rel=0.15)


@pytest.mark.parametrize("is_open", [False, True])
def test_rows_that_are_all_right_have_no_best_beta(is_open):
    message = (
        r"^beta='fit' needs held-out rows of which some are predicted wrongly, and found no best beta in 2 rows; "
        r"hold out more \(calibration_fraction\), or use beta='safe'$"
    )
    with pytest.raises(OptionError, match=message):
        true_beta(torch.tensor([[0.1, 1.0], [1.0, 0.2]]), torch.tensor([0, 1]), is_open=is_open)
