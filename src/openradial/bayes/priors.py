"""What weights are believed to be before any data: priors over one weight, the same for all weights of a layer."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import softplus

from openradial.bayes.spread import log_sigma_of, sigma_of
from openradial.errors import OptionError, check_positive

LOG_ROOT_TWO_PI = math.log(2 * math.pi) / 2


class Prior(ABC):
    """A density over one weight; frozen and without tensors, so that a layer can carry it anywhere."""

    @abstractmethod
    def log_prob(self, w: Tensor) -> Tensor:
        """Logarithm of the density at each weight, of the shape of ``w``."""

    def kl(self, mean: Tensor, rho: Tensor, w: Tensor) -> Tensor:
        r"""What each weight adds to the divergence :math:`D_{KL}[q \| p]`, of the shape of ``mean``.

        The entropy of q is known; the rest is sampled at ``w``, a draw from q:

        .. math:: -H[q] - \log p(w), \qquad H[q] = \log\sigma + \tfrac12 \log 2 \pi e

        so that its mean over draws is the divergence.
        """
        return -log_sigma_of(rho) - LOG_ROOT_TWO_PI - 0.5 - self.log_prob(w)


@dataclass(frozen=True)
class GaussianPrior(Prior):
    """One Gaussian around zero; the divergence is known in closed form and needs no sample.

    >>> import torch
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
        r""":math:`\log\frac{s}{\sigma} + \frac{\sigma^2 + \mu^2}{2 s^2} - \frac12`, whatever ``w`` is."""
        ratio, shift = sigma_of(rho) / self.sigma, mean / self.sigma
        return math.log(self.sigma) - log_sigma_of(rho) + (ratio.square() + shift.square() - 1) / 2


@dataclass(frozen=True)
class ScaleMixturePrior(Prior):
    r"""Two Gaussians around zero, a wide and a narrow one (Blundell et al. 2015); the defaults are the paper's.

    .. math:: p(w) = \pi\, N(w; 0, \sigma_1^2) + (1 - \pi)\, N(w; 0, \sigma_2^2)

    ``sigma1`` and ``sigma2`` are standard deviations: the paper's variances are 1.0 and 0.0183.

    >>> import torch
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
