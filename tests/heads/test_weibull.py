import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from openradial.heads import weibull
from openradial.heads.weibull import Tails, fit_tails, largest_per_class, tail_cdf

seeds = st.integers(0, 999)
NAN = math.nan


def naive_fit(tail):
    """The maximum of the likelihood as the textbook has it: a root for the shape, then the scale."""
    x = [d - min(tail) + 1 for d in tail]
    logs = [math.log(value) for value in x]

    def slope(shape):
        weights = [math.exp(shape * (log - max(logs))) for log in logs]
        return np.dot(weights, logs) / sum(weights) - 1 / shape - np.mean(logs)

    shape = optimize.brentq(slope, 1e-3 / max(logs), 1e4 / max(logs), xtol=1e-300, rtol=1e-14)
    return shape, np.mean([value**shape for value in x]) ** (1 / shape)


def random_tail(seed, n=None):
    random = np.random.default_rng(seed)
    size = n or random.integers(3, 30)
    return random.gamma(random.uniform(0.5, 5), 10 ** random.uniform(-2, 3), size=size) + random.uniform(0, 10)


def rows(*tails):
    """Tails of different lengths as one tensor."""
    longest = max(map(len, tails))
    return torch.tensor([[*tail, *[NAN] * (longest - len(tail))] for tail in tails], dtype=torch.float64)


@pytest.mark.parametrize("seed", range(12))
def test_shape_and_scale_are_those_of_scipy(seed):
    tail = random_tail(seed)
    shape, loc, scale = stats.weibull_min.fit(tail, floc=tail.min() - 1)
    fit = fit_tails(rows(tail))
    assert fit.smallest.item() - 1 == loc
    assert fit.shape.item() == pytest.approx(shape, rel=1e-4)  # what scipy's search stops at
    assert fit.log_scale.exp().item() == pytest.approx(scale, rel=1e-4)


@given(seed=seeds)
def test_shape_and_scale_are_the_maximum_of_the_likelihood(seed):
    tail = random_tail(seed)
    shape, scale = naive_fit(tail.tolist())
    fit = fit_tails(rows(tail))
    assert fit.shape.item() == pytest.approx(shape, rel=1e-9)
    assert fit.log_scale.exp().item() == pytest.approx(scale, rel=1e-9)


def test_all_classes_at_once_are_the_classes_one_by_one():
    tails = [random_tail(seed) for seed in range(15)]
    together = fit_tails(rows(*tails))
    for place, tail in enumerate(tails):
        for one, many in zip(fit_tails(rows(tail)), together, strict=True):
            torch.testing.assert_close(many[place : place + 1], one, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("unit", [1e-5, 1.0, 1e3, 1e12, 1e100])
def test_a_dozen_steps_are_enough_for_tails_of_any_width_and_form(unit, monkeypatch):
    random = np.random.default_rng(0)
    tails = []
    for n in (2, 3, 5, 20, 200):
        tails += [np.r_[0, np.ones(n - 1)], np.r_[np.zeros(n - 1), 1], np.linspace(0, 1, n), random.pareto(0.3, n)]
        tails += [np.r_[0, 1e-9 * random.random(n - 2), 1], np.r_[0, 1 - 1e-9 * random.random(n - 2), 1]]
    tails = unit * rows(*tails)
    expected = fit_tails(tails)
    monkeypatch.setattr(weibull, "STEPS", 12)
    for fewer, all_steps in zip(fit_tails(tails), expected, strict=True):
        assert fewer.isfinite().all()
        torch.testing.assert_close(fewer, all_steps, rtol=1e-10, atol=0)
    assert (expected.shape > 0).all()


def test_a_tail_much_narrower_than_one_keeps_its_digits():
    tail = np.array([5.0, 5.0 + 2**-12, 5.0 + 2**-11])
    shape, _ = naive_fit(tail.tolist())
    fit = fit_tails(rows(tail))
    assert fit.shape.item() == pytest.approx(shape, rel=1e-9)
    inside = [tail_cdf(torch.tensor(d), Tails(*(value[0] for value in fit))).item() for d in tail]
    assert inside[0] < inside[1] < inside[2] < 1


@given(seed=seeds, d=st.floats(0, 1e4))
def test_the_cdf_is_that_of_scipy(seed, d):
    tail = random_tail(seed)
    smallest, shape, log_scale = (value.item() for value in fit_tails(rows(tail)))
    with np.errstate(over="ignore"):
        expected = stats.weibull_min.cdf(d, shape, loc=smallest - 1, scale=math.exp(log_scale))
    fit = Tails(*(torch.tensor(value, dtype=torch.float64) for value in (smallest, shape, log_scale)))
    assert tail_cdf(torch.tensor(d, dtype=torch.float64), fit).item() == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_the_cdf_starts_one_below_the_smallest_distance_and_ends_at_one():
    fit = Tails(*(torch.tensor(value, dtype=torch.float64) for value in (3.0, 0.1, 0.0)))
    d = torch.tensor([-1e150, 0.0, 2.0, 2.0 + 1e-9, 3.0, 1e9, 1e150, NAN], dtype=torch.float64, requires_grad=True)
    cdf = tail_cdf(d, fit)
    assert cdf[:3].tolist() == [0.0, 0.0, 0.0]
    assert (cdf[2:7].diff() >= 0).all()
    assert cdf[3] > 0
    assert cdf[4].item() == pytest.approx(1 - 1 / math.e)
    assert cdf[6] == 1
    assert cdf[7].isnan()
    cdf[:7].sum().backward()
    assert d.grad[:7].isfinite().all()


def test_equal_distances_take_the_median_of_the_others_but_start_no_nearer_than_their_own():
    alone = fit_tails(rows([1, 2, 4], [2, 3, 9], [4, 4.5, 5]))
    fit = fit_tails(rows([1, 2, 4], [0], [2, 3, 9], [7, 7, 7], [4, 4.5, 5]))
    fitted = torch.tensor([0, 2, 4])
    for own, with_others in zip(alone, fit, strict=True):
        torch.testing.assert_close(with_others[fitted], own)
    assert fit.smallest.tolist() == [1, 2, 2, 7, 4]
    for borrowed, own in ((fit.shape, alone.shape), (fit.log_scale, alone.log_scale)):
        assert borrowed[1].item() == borrowed[3].item() == pytest.approx(own.median().item())


def test_two_distances_that_differ_by_rounding_count_as_equal():
    fit = fit_tails(rows([1, 2, 4], [3.0, math.nextafter(3.0, 4.0)]))
    assert fit.shape[1] == fit.shape[0]


@pytest.mark.parametrize("tail", [[5.0], [5.0, 5.0], [0.0, 0.0, 0.0]])
def test_equal_distances_with_nobody_to_take_from_are_exponential(tail):
    fit = fit_tails(rows(tail, [NAN]))
    assert fit.smallest.tolist() == [tail[0], 0.0]
    assert fit.shape.tolist() == [1.0, 1.0]
    assert fit.log_scale.tolist() == [0.0, 0.0]


@given(seed=seeds, count=st.integers(1, 9))
def test_the_largest_of_each_class_are_those_of_a_sorted_list(seed, count):
    random = np.random.default_rng(seed)
    y = random.integers(0, 4, size=random.integers(1, 25))
    d = random.integers(0, 9, size=len(y)).astype(float)  # with ties
    found = largest_per_class(torch.tensor(d), torch.tensor(y), 5, count)
    for k in range(5):
        expected = sorted(d[y == k], reverse=True)[:count]
        assert found[k, : len(expected)].tolist() == expected
        assert found[k, len(expected) :].isnan().all()
