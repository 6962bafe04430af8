import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import minimize

from openradial import SimplexPrototypes, functional, reference
from openradial.errors import METRIC_NAMES, OptionError
from tests.functional.oracle import betas, outputs, scales

CLOSE = {"rtol": 1e-9, "atol": 1e-12}


@pytest.mark.parametrize("metric", METRIC_NAMES)
@given(o=outputs(), beta=betas, scale=scales)
def test_log_probabilities_equal_the_definition(metric, o, beta, scale):
    expected = reference.radial_log_probs(o.numpy(), beta=beta, scale=scale, metric=metric)
    actual = functional.radial_log_probs(o, beta=beta, scale=scale, metric=metric)
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("metric", METRIC_NAMES)
@pytest.mark.parametrize("cutoff", [None, "disjoint", 0.3])
@given(o=outputs(), beta=betas, scale=scales)
def test_probabilities_equal_the_definition(metric, cutoff, o, beta, scale):
    arguments = {"scale": scale, "metric": metric}
    distances = reference.radial_distances(o.numpy(), **arguments)
    radius = np.inf if cutoff is None else cutoff
    if cutoff == "disjoint":
        half = {
            "euclidean": scale / 2**0.5,
            "manhattan": scale,
            "chebyshev": scale / 2,
            "squared_euclidean": scale**2 / 2,
        }
        radius = half[metric]
    assume(not np.isclose(distances, radius, rtol=1e-9).any())
    expected = reference.radial_probs(o.numpy(), beta=beta, cutoff=cutoff, **arguments)
    actual = functional.radial_probs(o, beta=beta, cutoff=cutoff, **arguments)
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("num_classes", [2, 10, 3000])
def test_on_a_prototype_the_probability_is_exactly_one(num_classes):
    for scale in (0.1, 1.0, 7.3):
        o = torch.zeros(1, num_classes)
        o[0, 1] = scale
        assert functional.radial_probs(o, beta=50.0, scale=scale)[0, 1] == 1
        assert functional.radial_probs(o, beta=50.0, scale=scale, cutoff="disjoint")[0].tolist().count(1.0) == 1


@given(o=outputs(), low=betas, high=betas)
def test_a_larger_beta_never_raises_a_probability(o, low, high):
    low, high = sorted((low, high))
    assert (functional.radial_probs(o, beta=high) <= functional.radial_probs(o, beta=low)).all()


@given(o=outputs(), beta=betas, radius=st.floats(0.01, 5))
def test_the_cutoff_changes_nothing_inside_and_leaves_nothing_outside(o, beta, radius):
    distances = functional.radial_distances(o)
    whole, cut = functional.radial_probs(o, beta=beta), functional.radial_probs(o, beta=beta, cutoff=radius)
    inside = distances < radius
    assert (cut[~inside] == 0).all()
    if radius > 0.7072:
        torch.testing.assert_close(cut[inside], whole[inside], rtol=1e-9, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(data=st.data(), beta=st.floats(1e-6, 1e3), scale=scales)
def test_with_the_disjoint_cutoff_no_row_exceeds_one(dtype, data, beta, scale):
    o = data.draw(outputs(dtype=dtype)) * scale
    middle = torch.zeros_like(o)
    middle[:, :2] = scale / 2  # rounding puts this point inside both balls
    for rows in (o, middle, middle * (1 + 1e-6), o.softmax(-1) * scale):
        assert (functional.radial_probs(rows, beta=beta, scale=scale, cutoff="disjoint").sum(-1) <= 1).all()


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_the_disjoint_cutoff_is_half_the_way_in_every_metric_and_arrangement(metric):
    unit = torch.tensor([1.0, 2.0, 5.0])
    o = torch.rand(5000, 3, generator=torch.Generator().manual_seed(0)) * 4 - 2
    for options in ({}, {"axis_scale": unit}, {"prototypes": torch.eye(3) * 0.7}):
        probs = functional.radial_probs(o, beta=1e-6, cutoff="disjoint", metric=metric, **options)
        assert (probs.sum(-1) <= 1).all()
        assert probs.sum() > 10


def test_the_simplex_has_the_disjoint_cutoff_of_the_axes():
    o = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
    probs = functional.radial_probs(o, beta=1e-6, prototypes=SimplexPrototypes(4), cutoff="disjoint")
    inside = functional.radial_distances(o, prototypes=SimplexPrototypes(4)) < math.sqrt(0.5)
    assert torch.equal(probs > 0, inside)
    with pytest.raises(OptionError, match="a simplex is equidistant in the euclidean metric only"):
        functional.radial_probs(o, prototypes=SimplexPrototypes(4), cutoff="disjoint", metric="manhattan")


def test_nan_stays_nan_behind_a_cutoff():
    o = torch.full((1, 3), float("nan"))
    assert functional.radial_probs(o, cutoff="disjoint").isnan().any()
    assert functional.radial_probs(o, cutoff=9.0).isnan().all()


@pytest.mark.parametrize(("num_classes", "expected"), [(2, 3.2563), (10, 4.8100), (1000, 8.1402), (100_000, 11.5030)])
def test_golden_values_of_safe_beta(num_classes, expected):
    assert functional.safe_beta(num_classes) == pytest.approx(expected, abs=1e-4)
    assert functional.safe_beta(num_classes, scale=5.0) == pytest.approx(expected / 5, abs=1e-4)


def largest_sum_found(num_classes: int, beta: float) -> float:
    """The largest sum of probabilities that gradient ascent finds from many starts, obvious and random."""
    rng = np.random.default_rng(num_classes)

    def negative_sum(o):
        e = o[None] - np.eye(num_classes)
        d = np.sqrt(np.square(e).sum(1))
        p = np.exp(-beta * d)
        return -p.sum(), (beta * p / np.maximum(d, 1e-12)) @ e

    starts = [np.eye(num_classes)[:m].mean(0) for m in range(1, num_classes + 1)]
    starts += [rng.dirichlet(np.full(num_classes, c)) for c in (0.1, 0.3, 1.0, 3.0) for _ in range(4)]
    starts += [rng.normal(size=num_classes) * 0.5 for _ in range(4)]
    starts += [start + 0.01 * rng.normal(size=num_classes) for start in starts[:num_classes]]
    found = [-minimize(negative_sum, start, jac=True, method="L-BFGS-B").fun for start in starts]
    return max(*found, *(-negative_sum(start)[0] for start in starts))


@pytest.mark.parametrize(
    ("num_classes", "excess"), [(2, 1e-3), (2, 0.9), (3, 0.01), (5, 0.3), (8, 1e-3), (8, 0.9), (20, 0.01)]
)
def test_safe_beta_is_the_smallest_that_no_optimiser_can_exceed(num_classes, excess):
    beta = functional.safe_beta(num_classes, excess=excess)
    assert largest_sum_found(num_classes, beta) <= (1 + excess) * (1 + 1e-7)
    assert largest_sum_found(num_classes, beta * 0.99) > 1 + excess


@pytest.mark.parametrize(("num_classes", "excess"), [(5, 3.0), (20, 5.0), (20, 15.0)])
def test_safe_beta_holds_for_a_large_excess_too(num_classes, excess):
    beta = functional.safe_beta(num_classes, excess=excess)
    assert largest_sum_found(num_classes, beta) <= (1 + excess) * (1 + 1e-7)
    assert largest_sum_found(num_classes, beta * 0.99) > 1 + excess


def test_below_safe_beta_many_classes_exceed_at_the_centroid_and_few_at_a_prototype():
    for num_classes, o in (
        (200_000, torch.full((1, 200_000), 1 / 200_000, dtype=torch.float64)),
        (10, torch.eye(10)[:1].double()),
    ):
        beta = functional.safe_beta(num_classes)
        assert functional.radial_probs(o, beta=beta).sum() <= 1.01 * (1 + 1e-9)
        assert functional.radial_probs(o, beta=beta * 0.99).sum() > 1.01


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: functional.radial_log_probs(torch.ones(1, 2), beta=0.0),
         "beta must be a finite number above 0, got 0.0; the paper uses beta=1.0"),
        (lambda: functional.radial_probs(torch.ones(1, 2), beta=-1),
         "beta must be a finite number above 0, got -1; the paper uses beta=1.0"),
        (lambda: functional.radial_probs(torch.ones(1, 2), cutoff="half"),
         "cutoff must be None, a radius above 0 or 'disjoint', got 'half'"),
        (lambda: functional.radial_probs(torch.ones(1, 2), cutoff=0.0),
         "cutoff must be None, a radius above 0 or 'disjoint', got 0.0"),
        (lambda: functional.safe_beta(1), "num_classes must be a whole number of at least 2, got 1"),
        (lambda: functional.safe_beta(3, excess=0.0), "excess must be a finite number above 0, got 0.0"),
        (lambda: functional.safe_beta(3, excess=2.0),
         "excess must be below num_classes - 1 = 2, got 2.0: no sum of probabilities exceeds num_classes, "
         "so every beta is safe"),
    ],
)  # fmt: skip
def test_bad_settings_get_one_clear_sentence(call, message):
    with pytest.raises(OptionError) as caught:
        call()
    assert str(caught.value) == message
