import math
import re
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from openradial.bayes import GaussianPrior, ScaleMixturePrior
from openradial.bayes.priors import log_sigma_of, rho_of, sigma_of
from openradial.errors import OptionError

MIXTURES = [ScaleMixturePrior(), ScaleMixturePrior(0.9, 0.01, 3.0), ScaleMixturePrior(1e-6, 1.0, 1e-3)]
PRIORS = [*MIXTURES, GaussianPrior(), GaussianPrior(0.3)]


def log_density(prior, w):
    """The prior as the paper writes it, in logarithms."""
    if isinstance(prior, GaussianPrior):
        return stats.norm.logpdf(w, scale=prior.sigma)
    first = math.log(prior.pi) + stats.norm.logpdf(w, scale=prior.sigma1)
    second = math.log(1 - prior.pi) + stats.norm.logpdf(w, scale=prior.sigma2)
    return np.logaddexp(first, second)


def kl_by_integration(prior, mean, sigma):
    """The integral of q log(q / p), in pieces so that no peak is missed."""

    def integrand(w):
        log_q = stats.norm.logpdf(w, mean, sigma)
        return np.exp(log_q) * (log_q - log_density(prior, w))

    edges = mean + sigma * np.linspace(-9, 9, 181)
    return sum(integrate.fixed_quad(integrand, a, b, n=40)[0] for a, b in pairwise(edges))


def mean_kl(prior, mean, sigma, nodes=20_000):
    """The mean over draws of what the library adds for one weight, by quadrature instead of by chance."""
    rho = torch.full((nodes,), rho_of(sigma), dtype=torch.float64)
    edges, step = np.linspace(-8, 8, nodes, endpoint=False, retstep=True)
    noise = torch.from_numpy(edges + step / 2)
    share = torch.from_numpy(stats.norm.pdf(noise.numpy()) * step)
    means = torch.full((nodes,), mean, dtype=torch.float64)
    return float((share * prior.kl(means, rho, means + sigma * noise)).sum())


@pytest.mark.parametrize("prior", PRIORS, ids=str)
def test_log_probs_are_the_logarithms_of_the_density(prior):
    w = np.linspace(-5, 5, 101)
    found = prior.log_prob(torch.from_numpy(w)).numpy()
    np.testing.assert_allclose(found, [log_density(prior, value) for value in w], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("prior", PRIORS, ids=str)
def test_the_density_integrates_to_one(prior):
    w = torch.linspace(-60, 60, 1_200_001, dtype=torch.float64)
    assert float(torch.trapezoid(prior.log_prob(w).exp(), w)) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("prior", [ScaleMixturePrior(), GaussianPrior(0.3)], ids=str)
@pytest.mark.parametrize(("mean", "sigma"), [(0.0, 0.05), (0.3, 0.1), (-1.5, 0.7), (0.0, 1.0), (2.0, 3.0)])
def test_the_divergence_is_the_integral(prior, mean, sigma):
    assert mean_kl(prior, mean, sigma) == pytest.approx(kl_by_integration(prior, mean, sigma), rel=1e-7, abs=1e-9)


def test_the_divergence_from_a_gaussian_needs_no_sample():
    mean, rho = torch.randn(50), torch.randn(50)
    prior = GaussianPrior(0.5)
    assert torch.equal(prior.kl(mean, rho, torch.zeros(50)), prior.kl(mean, rho, torch.full((50,), 1e9)))


def test_a_gaussian_does_not_diverge_from_itself():
    rho = torch.tensor([rho_of(0.5)], dtype=torch.float64)
    found = float(GaussianPrior(0.5).kl(torch.zeros(1), rho, torch.zeros(1)))
    assert found == pytest.approx(0, abs=1e-14)  # about ten roundings of numbers up to one


def test_the_order_of_the_two_gaussians_does_not_matter():
    w = torch.linspace(-3, 3, 31, dtype=torch.float64)
    torch.testing.assert_close(
        ScaleMixturePrior(0.35, 1.0, 0.1).log_prob(w), ScaleMixturePrior(0.65, 0.1, 1.0).log_prob(w)
    )


@pytest.mark.parametrize("prior", PRIORS, ids=str)
@given(
    size=st.floats(-38, 37), sign=st.sampled_from([-1.0, 1.0]), dtype=st.sampled_from([torch.float32, torch.float64])
)
def test_gradients_are_finite_and_right_for_weights_of_any_size(prior, size, sign, dtype):
    w = torch.tensor(sign * 10.0**size, dtype=dtype, requires_grad=True)
    prior.log_prob(w).backward()
    assert torch.isfinite(w.grad)
    if size > 6:  # the wide Gaussian alone is left
        wide = max(prior.sigma1, prior.sigma2) if isinstance(prior, ScaleMixturePrior) else prior.sigma
        assert float(w.grad) == pytest.approx(-float(w.detach()) / wide**2, rel=1e-5)


def test_values_are_finite_up_to_where_their_square_overflows():
    w = torch.tensor([0.0, 1e-30, 1e-3, 1.0, 1e3, 1e9, 1e19])
    assert torch.isfinite(ScaleMixturePrior().log_prob(w)).all()
    assert torch.isnan(ScaleMixturePrior().log_prob(torch.tensor(torch.nan)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_spreads_and_their_gradients_are_finite_for_every_rho(dtype):
    rho = torch.linspace(-50, 200, 2001, dtype=dtype, requires_grad=True)
    sigma, log_sigma = sigma_of(rho), log_sigma_of(rho)
    assert (sigma > 0).all()
    (slope,) = torch.autograd.grad(sigma.sum(), rho)
    (log_slope,) = torch.autograd.grad(log_sigma.sum(), rho)
    exact = rho.detach().double()
    expected = torch.logaddexp(exact, torch.zeros_like(exact))
    rel = 1e-6 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(sigma.double(), expected, rtol=rel, atol=0)
    torch.testing.assert_close(log_sigma.double(), expected.log(), rtol=rel, atol=2 * rel)
    torch.testing.assert_close(slope.double(), torch.sigmoid(exact), rtol=2 * rel, atol=0)
    torch.testing.assert_close(log_slope.double(), torch.sigmoid(exact) / expected, rtol=4 * rel, atol=0)


def test_the_divergence_and_its_gradients_are_finite_for_every_rho():
    for prior in PRIORS:
        rho = torch.linspace(-50, 200, 501, requires_grad=True)
        mean = torch.linspace(-3, 3, 501, requires_grad=True)
        value = prior.kl(mean, rho, mean + sigma_of(rho) * torch.linspace(-4, 4, 501)).sum()
        assert all(torch.isfinite(part).all() for part in (value, *torch.autograd.grad(value, (mean, rho))))


@given(sigma=st.floats(1e-20, 1e6))
def test_rho_gives_sigma_back(sigma):
    assert float(sigma_of(torch.tensor(rho_of(sigma), dtype=torch.float64))) == pytest.approx(sigma, rel=1e-9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ScaleMixturePrior(pi=1.0), "pi must lie between 0 and 1, got 1.0; the paper uses pi=0.35"),
        (lambda: ScaleMixturePrior(sigma1=0), "sigma1 must be a finite number above 0, got 0"),
        (lambda: ScaleMixturePrior(sigma2=-1.0), "sigma2 must be a finite number above 0, got -1.0"),
        (
            lambda: ScaleMixturePrior(0.5, 0.2, 0.2),
            "sigma1 and sigma2 must differ, got 0.2 twice; use GaussianPrior instead",
        ),
        (lambda: GaussianPrior(math.inf), "sigma must be a finite number above 0, got inf"),
        (lambda: rho_of(0.0), "sigma must be a finite number above 0, got 0.0"),
    ],
)
def test_impossible_priors_are_refused(make, message):
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        make()
