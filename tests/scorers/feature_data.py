"""Features for the tests of density models, and Gaussians from their definition."""

import math

import numpy as np
import torch


def data(n=80, b=7, d=3, seed=0):
    """Features and labels of three classes, and queries."""
    rng = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    spread = torch.linspace(0.5, 2.0, d, dtype=torch.float64)
    z = spread * torch.randn(n, d, generator=rng, dtype=torch.float64) + 3 * y.unsqueeze(1)
    return z, y, 4 * torch.randn(b, d, generator=rng, dtype=torch.float64)


def log_gaussian(x, mean, covariance):
    """The log of the density, from the definition."""
    difference = np.asarray(x) - np.asarray(mean)
    log_det = np.linalg.slogdet(2 * np.pi * covariance)[1]
    return -0.5 * (log_det + difference @ np.linalg.inv(covariance) @ difference)


def log_mixture(x, weights, means, covariances):
    logs = [math.log(w) + log_gaussian(x, m, c) for w, m, c in zip(weights, means, covariances, strict=True)]
    top = max(logs)
    return top + math.log(sum(math.exp(value - top) for value in logs))
