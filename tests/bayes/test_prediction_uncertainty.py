import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openradial import RadialLayer
from openradial.bayes import (
    expected_entropy,
    expected_missing_mass,
    mutual_information,
    predictive_entropy,
    with_missing_mass,
)
from openradial.errors import DTypeError, ShapeError
from tests.rounding import tolerance

FUNCTIONS = (predictive_entropy, expected_entropy, mutual_information, expected_missing_mass)


def brute_force(log_probs):
    """All four by plain loops: a row beyond 1 is divided by its sum, otherwise the rest is one more category."""
    samples, b, k = log_probs.shape
    found = np.zeros((4, b))
    for i in range(b):
        rows = []
        for s in range(samples):
            row = [math.exp(log_probs[s, i, j]) for j in range(k)]
            total = sum(row)
            rows.append([p / total for p in row] + [0.0] if total > 1 else [*row, 1 - total])
        mean = [sum(row[j] for row in rows) / samples for j in range(k + 1)]
        whole, own = entropy(mean), sum(entropy(row) for row in rows) / samples
        found[:, i] = whole, own, whole - own, mean[-1]
    return found


def entropy(probs):
    return -sum(p * math.log(p) for p in probs if p > 0)


def log_probs_of(draw, shape):
    generator = torch.Generator().manual_seed(draw)
    outputs = torch.randn(shape, generator=generator, dtype=torch.float64) * 3
    return [
        torch.log_softmax(outputs, -1),
        RadialLayer(shape[-1], beta=5.0).log_probs(outputs),
        RadialLayer(shape[-1], beta=0.1).log_probs(outputs),  # rows beyond 1
        RadialLayer(shape[-1], beta=500.0).log_probs(outputs),  # everything missing
    ]


@given(draw=st.integers(0, 10**6), samples=st.integers(1, 5), b=st.integers(1, 4), k=st.integers(1, 5))
def test_all_four_are_those_of_brute_force(draw, samples, b, k):
    for log_probs in log_probs_of(draw, (samples, b, k)):
        expected = brute_force(log_probs)
        for function, values in zip(FUNCTIONS, expected, strict=True):
            np.testing.assert_allclose(function(log_probs).numpy(), values, rtol=1e-10, atol=1e-12)


@given(draw=st.integers(0, 10**6), samples=st.integers(1, 5), b=st.integers(1, 4), k=st.integers(1, 5))
def test_the_categories_sum_to_one_and_entropies_keep_to_their_bounds(draw, samples, b, k):
    for log_probs in log_probs_of(draw, (samples, b, k)):
        probs = with_missing_mass(log_probs.float())
        torch.testing.assert_close(probs.sum(-1), torch.ones(samples, b))
        assert (probs >= 0).all()
        whole, own, shared, missing = (function(log_probs.float()) for function in FUNCTIONS)
        assert (whole <= math.log(k + 1) + 1e-6).all()
        assert (own <= whole + 1e-6).all()
        assert (shared >= 0).all()
        assert ((missing >= 0) & (missing <= 1)).all()


def test_samples_that_agree_share_no_information():
    log_probs = RadialLayer(3, beta=5.0).log_probs(torch.randn(1, 4, 3)).expand(7, 4, 3)
    torch.testing.assert_close(mutual_information(log_probs), torch.zeros(4), **tolerance(2 * 7 * 4))
    torch.testing.assert_close(predictive_entropy(log_probs), expected_entropy(log_probs))


def test_samples_that_are_sure_of_different_classes_disagree_as_much_as_possible():
    log_probs = torch.eye(3)[:, None].log()  # three samples, each sure of another class
    torch.testing.assert_close(mutual_information(log_probs), torch.tensor([math.log(3)]))
    torch.testing.assert_close(expected_entropy(log_probs), torch.zeros(1))


def test_being_sure_that_it_is_none_of_them_is_no_uncertainty():
    log_probs = torch.full((5, 1, 3), -torch.inf)
    assert predictive_entropy(log_probs) == 0
    assert expected_missing_mass(log_probs) == 1


def test_nan_stays_nan():
    log_probs = torch.zeros(2, 2, 3).log_softmax(-1)
    log_probs[0, 1, 0] = torch.nan
    for function in FUNCTIONS:
        assert function(log_probs).isnan().tolist() == [False, True]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_result_for_an_input_does_not_depend_on_its_batch(function):
    log_probs = RadialLayer(3).log_probs(torch.randn(4, 6, 3))
    close = tolerance(2 * 4 * 3)  # differences of two sums over four samples of three classes, none above two
    torch.testing.assert_close(function(log_probs)[2:3], function(log_probs[:, 2:3]), **close)
    assert function(log_probs[:, :0]).shape == (0,)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_wrong_shapes_and_types_are_refused(function):
    for shape in ((2, 3), (0, 2, 3)):
        with pytest.raises(ShapeError, match=re.escape(f"log_probs must have the shape (samples, b, k), got {shape}")):
            function(torch.zeros(shape))
    with pytest.raises(DTypeError, match=re.escape("log_probs must be floating point, got torch.int64")):
        function(torch.zeros(1, 2, 3, dtype=torch.int64))
    with pytest.raises(ShapeError, match=re.escape("log_probs must have the shape (..., k), got ()")):
        with_missing_mass(torch.zeros(()))
