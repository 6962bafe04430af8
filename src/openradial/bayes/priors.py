"""Priors over one weight, the same for all weights of a layer; and the standard deviation sigma = softplus(rho)."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from openradial.errors import OptionError, check_positive

FAR = -20.0  # below it softplus(rho) is exp(rho) to the last digit of its square
LOG_ROOT_TWO_PI = math.log(2 * math.pi) / 2


def sigma_of(rho: Tensor) -> Tensor:
    r"""Return the standard deviation :math:`\sigma = \log(1 + e^\rho)`.

    >>> sigma_of(torch.tensor([-40.0, 0.0, 200.0]))
    tensor([4.2484e-18, 6.9315e-01, 2.0000e+02])
    """
    return softplus(rho, threshold=30)


def log_sigma_of(rho: Tensor) -> Tensor:
    r"""Return the logarithm of :func:`sigma_of`, also where sigma itself is too small to be represented.

    >>> log_sigma_of(torch.tensor([-500.0]))
    tensor([-500.])
    """
    near = sigma_of(rho.clamp_min(FAR)).log()
    far = rho.clamp_max(FAR)
    return torch.where(rho < FAR, far - far.exp() / 2, near)


def rho_of(sigma: float) -> float:
    """Return the rho of a standard deviation.

    >>> round(rho_of(0.05), 4)
    -2.9706
    """
    check_positive("sigma", sigma)
    return sigma + math.log(-math.expm1(-sigma))


class Prior(ABC):
    """A density over one weight; frozen and without tensors, so that layers can be copied and moved."""

    @abstractmethod
    def log_prob(self, w: Tensor) -> Tensor:
        """Return the logarithm of the density at each weight, of the shape of ``w``."""

    def kl(self, mean: Tensor, rho: Tensor, w: Tensor) -> Tensor:
        r"""Return the contribution of each weight to :math:`D_{KL}[q \| p]`, of the shape of ``mean``.

        The entropy of q is known; the rest is sampled at ``w``, a draw from q:

        .. math:: -H[q] - \log p(w), \qquad H[q] = \log\sigma + \tfrac12 \log 2 \pi e

        so that its mean over draws is the divergence.
        """
        return -log_sigma_of(rho) - LOG_ROOT_TWO_PI - 0.5 - self.log_prob(w)


@dataclass(frozen=True)
class GaussianPrior(Prior):
    """One Gaussian around zero; the divergence is known in closed form and needs no sample.

    >>> kl = GaussianPrior(sigma=1.0).kl(mean=torch.tensor([2.0]), rho=torch.tensor([0.541325]), w=torch.zeros(1))
    >>> kl.round(decimals=4)
    tensor([2.])
    """

    sigma: float = 1.0

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma)

    def log_prob(self, w: Tensor) -> Tensor:
        return -(w / self.sigma).square() / 2 - math.log(self.sigma) - LOG_ROOT_TWO_PI

    def kl(self, mean: Tensor, rho: Tensor, w: Tensor) -> Tensor:
        r"""Return :math:`\log\frac{s}{\sigma} + \frac{\sigma^2 + \mu^2}{2 s^2} - \frac12`; ``w`` is not used."""
        ratio, shift = sigma_of(rho) / self.sigma, mean / self.sigma
        return math.log(self.sigma) - log_sigma_of(rho) + (ratio.square() + shift.square() - 1) / 2


@dataclass(frozen=True)
class ScaleMixturePrior(Prior):
    r"""Two Gaussians around zero, a wide and a narrow one (Blundell et al. 2015); the defaults are the paper's.

    .. math:: p(w) = \pi\, N(w; 0, \sigma_1^2) + (1 - \pi)\, N(w; 0, \sigma_2^2)

    ``sigma1`` and ``sigma2`` are standard deviations: the paper's variances are 1.0 and 0.0183.

    >>> ScaleMixturePrior().log_prob(torch.tensor([0.0, 1.0, 1e10]))
    tensor([ 7.2102e-01, -2.4688e+00, -5.0000e+19])
    """

    pi: float = 0.35
    sigma1: float = 1.0
    sigma2: float = math.sqrt(0.0183)

    def __post_init__(self) -> None:
        check_positive("sigma1", self.sigma1)
        check_positive("sigma2", self.sigma2)
        if not 0 < self.pi < 1:
            raise OptionError(f"pi must lie between 0 and 1, got {self.pi!r}; the paper uses pi=0.35")
        if self.sigma1 == self.sigma2:
            raise OptionError(f"sigma1 and sigma2 must differ, got {self.sigma1!r} twice; use GaussianPrior instead")

    def log_prob(self, w: Tensor) -> Tensor:
        share = self.pi if self.sigma1 > self.sigma2 else 1 - self.pi  # of the wide Gaussian
        wide, narrow = max(self.sigma1, self.sigma2), min(self.sigma1, self.sigma2)
        level = math.log(share) - math.log(wide) - LOG_ROOT_TWO_PI
        # log-sum-exp around the wide Gaussian: narrow over wide is exp(odds - (steepness * w)^2) ...
        odds = math.log1p(-share) - math.log(share) + math.log(wide / narrow)
        steepness = math.sqrt((1 / narrow - 1 / wide) * (1 / narrow + 1 / wide) / 2)
        reach = math.sqrt(odds + 800) / steepness  # ... and nothing from here on, where squares may overflow
        inner = w.clamp(-reach, reach) * steepness
        return level - (w / wide).square() / 2 + softplus(odds - inner.square(), threshold=40)


PAPER_PRIOR = ScaleMixturePrior()
