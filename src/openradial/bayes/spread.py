"""The spread of a Gaussian weight: sigma = softplus(rho), safe for every rho."""

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

from openradial.errors import check_positive

FAR = -20.0  # below it softplus(rho) is exp(rho) to the last digit of its square


def sigma_of(rho: Tensor) -> Tensor:
    r"""Standard deviation :math:`\sigma = \log(1 + e^\rho)`.

    >>> sigma_of(torch.tensor([-40.0, 0.0, 200.0]))
    tensor([4.2484e-18, 6.9315e-01, 2.0000e+02])
    """
    return softplus(rho, threshold=30)


def log_sigma_of(rho: Tensor) -> Tensor:
    r"""Logarithm of :func:`sigma_of`, also where sigma itself is too small to be represented.

    >>> log_sigma_of(torch.tensor([-500.0]))
    tensor([-500.])
    """
    near = sigma_of(rho.clamp_min(FAR)).log()
    far = rho.clamp_max(FAR)
    return torch.where(rho < FAR, far - far.exp() / 2, near)


def rho_of(sigma: float) -> float:
    """The rho that gives a standard deviation.

    >>> round(rho_of(0.05), 4)
    -2.9706
    """
    check_positive("sigma", sigma)
    return sigma + math.log(-math.expm1(-sigma))
