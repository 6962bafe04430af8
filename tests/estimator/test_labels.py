import math

import numpy as np
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from openradial.estimator.labels import open_world, with_unknown

log_probs = st.integers(2, 6).flatmap(
    lambda k: st.lists(st.floats(-800.0, 0.0), min_size=k, max_size=k).map(lambda row: torch.tensor([row]).double())
)


def naive_open(row):
    """The nearest class keeps what it has; the others too, or they share what is left in proportion."""
    probs = [math.exp(value) for value in row]
    best = row.index(max(row))
    wanted = sum(value for k, value in enumerate(probs) if k != best)
    left = 1 - probs[best]
    factor = 1.0 if wanted <= left else left / wanted
    return [value if k == best else value * factor for k, value in enumerate(probs)]


@given(log_probs)
def test_open_world_probabilities_equal_their_definition(rows):
    row = rows[0].tolist()
    left = max(-math.expm1(max(row)), 1e-16)  # what is left for the others cancels next to a prototype
    close = {"rtol": 1e-9 + 4e-16 / left, "atol": 1e-300}
    np.testing.assert_allclose(open_world(rows)[0], naive_open(row), **close)


@given(log_probs)
def test_rows_sum_to_at_most_one(rows):
    assert 0 <= float(open_world(rows).sum()) <= 1 + 1e-12


@given(log_probs)
@example(torch.tensor([[-1e-38, 0.0]], dtype=torch.float64))  # both round to 1
def test_the_order_of_the_classes_stays(rows):
    row, probs = rows[0], open_world(rows)[0]
    assert not ((row[:, None] > row) & (probs[:, None] < probs)).any()


@given(log_probs)
def test_the_nearest_class_keeps_its_radial_probability(rows):
    assert float(open_world(rows).max()) == float(rows.exp().max())


def test_probabilities_that_fit_into_one_stay_as_they_are():
    rows = torch.tensor([[0.5, 0.3, 0.1], [0.01, 0.0, 0.0]]).log()
    torch.testing.assert_close(open_world(rows), rows.exp())


def test_a_row_on_a_prototype_leaves_nothing_to_the_others():
    assert open_world(torch.tensor([[-1.4, 0.0, -1.4]])).tolist() == [[0.0, 1.0, 0.0]]


def test_large_unsigned_labels_stay_exact_beside_unknown():
    for classes in ([2**53, 2**53 + 1], [2**64 - 2, 2**64 - 1]):
        assert with_unknown(np.array(classes, dtype=np.uint64)).tolist() == [*classes, -1]
    assert with_unknown(np.array([3, 5], dtype=np.uint64)).dtype == np.int64
