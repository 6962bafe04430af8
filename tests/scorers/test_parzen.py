import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import KernelDensity

from openradial.errors import OptionError
from openradial.scorers import ParzenScorer, parzen
from tests.scorers.feature_data import data, log_mixture


@pytest.mark.parametrize("width", [0.05, 0.5, 5.0])
def test_parzen_equals_the_definition_and_scikit_learn(width):
    z, _, x = data()
    scores = ParzenScorer(width).fit(z).unknown_score(x)
    ways = [np.full(80, 1 / 80), z.numpy(), [width**2 * np.eye(3)] * 80]
    np.testing.assert_allclose(scores, [-log_mixture(row, *ways) for row in x.numpy()], rtol=1e-9)
    oracle = KernelDensity(bandwidth=width, rtol=1e-12).fit(z.numpy())
    np.testing.assert_allclose(scores, -oracle.score_samples(x.numpy()), rtol=1e-8)


def test_parzen_by_hand():
    scores = ParzenScorer(2.0).fit(torch.tensor([[0.0, 0.0]])).unknown_score(torch.tensor([[0.0, 0.0], [4.0, 0.0]]))
    torch.testing.assert_close(scores, math.log(2 * math.pi * 4) + torch.tensor([0.0, 2.0]))


def test_a_subset_of_centres_is_drawn_from_the_rows():
    z, _, x = data()
    model = ParzenScorer(0.5, centres=20, seed=3).fit(z)
    assert model.means.shape == (20, 3)
    chosen = [int((z == point).all(1).int().argmax()) for point in model.means]
    assert len(set(chosen)) == 20
    torch.testing.assert_close(model.unknown_score(x), ParzenScorer(0.5).fit(z[chosen]).unknown_score(x))
    assert not torch.equal(ParzenScorer(0.5, centres=20, seed=4).fit(z).means, model.means)
    assert torch.equal(ParzenScorer(0.5, centres=80).fit(z).means, z)


def left_out_likelihood(z, width, centres=None):
    """The mean log density of each row under the Gaussians around the others, as a loop."""
    total = 0.0
    for i, row in enumerate(z):
        points = [z[j] for j in (range(len(z)) if centres is None else centres) if j != i]
        weights = [1 / len(points)] * len(points)
        total += log_mixture(row, weights, points, [width**2 * np.eye(z.shape[1])] * len(points))
    return total / len(z)


def check_is_best(likelihood, found):
    best = likelihood(found)
    assert all(likelihood(found * factor) < best for factor in (0.3, 0.7, 0.95, 0.99, 1.01, 1.05, 1.5, 3.0))


def test_the_bandwidth_maximises_the_leave_one_out_likelihood():
    z, _, _ = data(n=30)
    found = float(ParzenScorer().fit(z).fitted_bandwidth)
    check_is_best(lambda width: left_out_likelihood(z.numpy(), width), found)


def test_the_bandwidth_of_a_subset_leaves_each_row_out():
    z, _, _ = data(n=30)
    model = ParzenScorer(centres=10).fit(z)
    centres = [int((z == point).all(1).int().argmax()) for point in model.means]
    found = float(model.fitted_bandwidth)
    check_is_best(lambda width: left_out_likelihood(z.numpy(), width, centres), found)


def test_copies_do_not_make_the_bandwidth_vanish():
    z, _, _ = data()
    z = z + 1000.0
    once, twice = (ParzenScorer().fit(rows).fitted_bandwidth for rows in (z, torch.cat([z, z])))
    torch.testing.assert_close(twice, once, rtol=1e-3, atol=0.0)


@given(scale=st.sampled_from([1e-6, 3.0, 1e8]), shift=st.sampled_from([0.0, 5.0]))
def test_the_bandwidth_has_the_unit_of_the_features(scale, shift):
    z, _, _ = data(n=25)
    plain, scaled = (ParzenScorer().fit(rows).fitted_bandwidth for rows in (z, scale * (z + shift)))
    torch.testing.assert_close(scaled, scale * plain, rtol=1e-3, atol=0.0)


def test_a_sample_of_many_rows_finds_nearly_the_same_bandwidth(monkeypatch):
    z, _, _ = data(n=600)
    whole = ParzenScorer().fit(z).fitted_bandwidth
    for name, value in {"PAIRS": 1, "FEWEST": 150}.items():
        monkeypatch.setattr(parzen, name, value)
    sampled = ParzenScorer().fit(z).fitted_bandwidth
    assert sampled != whole
    torch.testing.assert_close(sampled, whole, rtol=0.1, atol=0.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bandwidth": 0.0}, "bandwidth must be a finite number above 0, got 0.0"),
        ({"centres": 0}, "centres must be a whole number of at least 1, got 0"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
    ],
)
def test_parzen_settings_out_of_range_are_refused(options, message):
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        ParzenScorer(**options)


@pytest.mark.parametrize("rows", [torch.ones(1, 2), torch.full((5, 2), 0.1)])
def test_a_bandwidth_cannot_be_found_without_distances(rows):
    message = "the bandwidth cannot be determined from one row or from identical rows; give the bandwidth"
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        ParzenScorer().fit(rows)
    assert ParzenScorer(1.0).fit(rows).unknown_score(rows).isfinite().all()
