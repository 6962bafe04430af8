r"""How uncertain sampled networks are, where probabilities may sum to less than one.

Each sample gives ``k`` probabilities. What they lack to 1, the *missing mass*, is the probability of "none of these"
and counts as a category of its own, number ``k``:

.. math:: p_{k} = 1 - \sum_{j<k} p_j

Where radial probabilities without a cut-off sum to more than one (see :func:`openradial.functional.safe_beta`), nothing
is missing and they are divided by their sum. Entropies are in nats and at most ``log(k + 1)``. For softmax nothing is
missing, and all is as usual.
"""

import torch
from torch import Tensor

from openradial.errors import DTypeError, ShapeError


def with_missing_mass(log_probs: Tensor) -> Tensor:
    """Probabilities that sum to one, the missing mass last: ``(..., k) -> (..., k + 1)``.

    >>> with_missing_mass(torch.tensor([[0.5, 0.25], [0.9, 0.9]]).log())
    tensor([[0.5000, 0.2500, 0.2500],
            [0.5000, 0.5000, 0.0000]])
    """
    _check(log_probs, 1, "(..., k)")
    probs = log_probs.exp()
    total = probs.sum(-1, keepdim=True)
    probs = probs / total.clamp_min(1)
    return torch.cat([probs, (1 - total).clamp_min(0)], -1)


def predictive_entropy(log_probs: Tensor) -> Tensor:
    r"""Entropy of the mean over samples, ``(samples, b, k) -> (b,)``: all uncertainty there is.

    >>> predictive_entropy(torch.tensor([[[1.0, 0.0]], [[0.0, 0.0]]]).log())  # either class 0 or none of them
    tensor([0.6931])
    """
    _check(log_probs, 3, "(samples, b, k)")
    return entropy(with_missing_mass(log_probs).mean(0))


def expected_entropy(log_probs: Tensor) -> Tensor:
    """Mean over samples of their entropies, ``(samples, b, k) -> (b,)``: what more data would not take away."""
    _check(log_probs, 3, "(samples, b, k)")
    return entropy(with_missing_mass(log_probs)).mean(0)


def mutual_information(log_probs: Tensor) -> Tensor:
    """What a sample tells about the prediction, ``(samples, b, k) -> (b,)``: how much the samples disagree.

    The predictive entropy less the expected one; never negative, and zero where all samples agree.
    """
    _check(log_probs, 3, "(samples, b, k)")
    probs = with_missing_mass(log_probs)
    return (entropy(probs.mean(0)) - entropy(probs).mean(0)).clamp_min(0)


def expected_missing_mass(log_probs: Tensor) -> Tensor:
    """Mean probability of "none of these", ``(samples, b, k) -> (b,)``; larger is more unknown."""
    _check(log_probs, 3, "(samples, b, k)")
    return with_missing_mass(log_probs)[..., -1].mean(0)


def entropy(probs: Tensor) -> Tensor:
    """Entropy in nats of probabilities that sum to one, ``(..., k) -> (...)``."""
    parts: Tensor = torch.special.entr(probs)
    return parts.sum(-1)


def _check(log_probs: Tensor, least: int, shape: str) -> None:
    if log_probs.ndim < least or (least > 1 and log_probs.ndim != least) or (least == 3 and not len(log_probs)):
        raise ShapeError(f"log_probs must have the shape {shape}, got {tuple(log_probs.shape)}")
    if not log_probs.is_floating_point():
        raise DTypeError(f"log_probs must be floating point, got {log_probs.dtype}")
