"""Bounds on a share that was counted: Clopper and Pearson's, exact for every count."""

import torch
from torch import Tensor


def binomial_interval(count: int, total: int, confidence: float) -> tuple[float, float]:
    """The shares that ``count`` of ``total`` does not speak against; it holds the true one with this confidence.

    >>> low, high = binomial_interval(5, 100, confidence=0.95)
    >>> round(low, 4), round(high, 4)
    (0.0164, 0.1128)
    """
    each_side = (1 + confidence) / 2
    return 1 - binomial_upper(total - count, total, each_side), binomial_upper(count, total, each_side)


def binomial_upper(count: int, total: int, confidence: float) -> float:
    """The share that the true one does not exceed, with this confidence, where ``count`` of ``total`` were seen.

    >>> round(binomial_upper(0, 299, confidence=0.95), 4)
    0.01
    """
    if count >= total:
        return 1.0
    weights = _log_weights(count, total)
    low, high = count / total, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _chance(weights, total, middle) <= 1 - confidence else (middle, high)
    return high


def at_most(count: int, total: int, share: float) -> float:
    """The chance of at most ``count`` of ``total`` where each has the chance ``share``."""
    return _chance(_log_weights(count, total), total, share)


def _log_weights(count: int, total: int) -> Tensor:
    """Logarithms of the binomial coefficients, ``(count + 1,)``."""
    j = torch.arange(count + 1, dtype=torch.float64)
    n = torch.tensor(float(total), dtype=torch.float64)
    return torch.lgamma(n + 1) - torch.lgamma(j + 1) - torch.lgamma(n - j + 1)


def _chance(log_weights: Tensor, total: int, share: float) -> float:
    j = torch.arange(len(log_weights), dtype=torch.float64)
    p = torch.tensor(share, dtype=torch.float64)
    log_chances = log_weights + torch.xlogy(j, p) + torch.special.xlog1py(total - j, -p)
    return float(log_chances.logsumexp(0).exp())
