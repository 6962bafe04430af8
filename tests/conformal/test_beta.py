import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from openradial.conformal import Rejector, fit_beta
from openradial.errors import ShapeError
from tests.conformal.digit_scores import digit_distances


def naive_negative_log_likelihood(beta, distances, y):
    total = 0.0
    for row, label in zip(distances, y, strict=True):
        d = min(row)
        total += beta * d if row.index(d) == label else -np.log(-np.expm1(-beta * d))
    return total


def naive_ece(beta, distances, y, bins):
    """Sum over bins of the share of the bin times the gap between confidence and accuracy."""
    confidence = [np.exp(-beta * min(row)) for row in distances]
    right = [row.index(min(row)) == label for row, label in zip(distances, y, strict=True)]
    error = 0.0
    for b in range(bins):
        inside = [i for i, c in enumerate(confidence) if b / bins < c <= (b + 1) / bins]
        if inside:
            gap = np.mean([right[i] for i in inside]) - np.mean([confidence[i] for i in inside])
            error += len(inside) / len(y) * abs(gap)
    return error


def random_distances(seed, n=60, k=3):
    random = np.random.default_rng(seed)
    y = random.integers(0, k, n)
    distances = random.uniform(0.2, 2, (n, k))
    distances[np.arange(n), y] *= random.uniform(0, 1.5, n)
    return distances, y


@settings(max_examples=30)
@given(seed=st.integers(0, 1000))
def test_beta_is_the_most_likely_one(seed):
    distances, y = random_distances(seed)
    rows = distances.tolist()
    best = minimize_scalar(
        lambda log_beta: naive_negative_log_likelihood(np.exp(log_beta), rows, y), bounds=(-6, 6), method="bounded"
    )
    assert np.log(fit_beta(distances, y).beta) == pytest.approx(best.x, abs=1e-3)


def test_the_errors_before_and_after_are_those_of_the_definition():
    distances, y = random_distances(0)
    fit = fit_beta(distances, y, before=2.0, bins=7)
    assert fit.before == 2.0
    assert fit.ece_before == pytest.approx(naive_ece(2.0, distances.tolist(), y, 7))
    assert fit.ece == pytest.approx(naive_ece(fit.beta, distances.tolist(), y, 7))
    assert fit.accuracy == np.mean(distances.argmin(1) == y)
    assert fit.examples == 60


def test_a_true_beta_is_found_again():
    random = np.random.default_rng(0)
    nearest = random.uniform(0, 2, 20_000)
    right = random.uniform(size=20_000) < np.exp(-0.7 * nearest)
    fit = fit_beta(np.stack([nearest, nearest + 1], 1), np.where(right, 0, 1), before=5.0)
    assert fit.beta == pytest.approx(0.7, abs=0.02)
    assert fit.ece < 0.02
    assert fit.ece_before > 0.3


def test_real_distances_become_better_calibrated_on_other_data_too():
    distances, y = digit_distances()
    fit = fit_beta(distances[:600], y[:600])
    assert fit.ece < 0.2 * fit.ece_before
    rest, labels = distances[600:].tolist(), y[600:]
    assert naive_ece(fit.beta, rest, labels, 15) < 0.2 * naive_ece(1.0, rest, labels, 15)


@pytest.mark.parametrize("factor", [1e-300, 1e-6, 1e-3, 1e3, 1e6, 1e307])
def test_beta_takes_up_the_unit_of_the_distances(factor):
    distances, y = random_distances(1)
    one, other = fit_beta(distances, y), fit_beta(distances * factor, y)
    assert other.beta * factor == pytest.approx(one.beta, rel=1e-10)
    assert other.ece == pytest.approx(one.ece)


def test_right_distances_too_small_for_a_finite_beta_are_refused():
    with pytest.raises(ShapeError, match="got 1 right and 1 wrong: the best beta would be infinite"):
        fit_beta([[5e-324, 1e308], [1e308, 0.0]], [0, 0])


def test_a_wrong_prediction_on_a_prototype_is_the_limit_of_one_next_to_it():
    distances, y = random_distances(2)
    wrong = np.flatnonzero(distances.argmin(1) != y)[0]
    fits = []
    for nearest in (0.0, 1e-12):
        distances[wrong] = 1.0
        distances[wrong, (y[wrong] + 1) % 3] = nearest
        fits.append(fit_beta(distances, y).beta)
    assert fits[0] == pytest.approx(fits[1])


def test_tensors_and_lists_give_the_same():
    distances, y = random_distances(3)
    assert fit_beta(torch.tensor(distances), torch.tensor(y)) == fit_beta(distances.tolist(), y.tolist())


def test_the_result_says_it_in_one_line():
    distances, y = random_distances(0)
    line = r"beta \S+ \(before 1\): calibration error 0\.\d{4} \(before 0\.\d{4}\) at accuracy 0\.\d{4} of 60 examples"
    assert re.fullmatch(line, str(fit_beta(distances, y)))


def test_a_rejector_on_distances_does_not_depend_on_beta():
    nearest = digit_distances()[0].min(1)
    by_distance = Rejector().fit(nearest[:500]).rejects(nearest[500:])
    by_probability = Rejector().fit(0.1 * nearest[:500]).rejects(0.1 * nearest[500:])
    assert np.array_equal(by_distance, by_probability)
