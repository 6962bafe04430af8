r"""Weibull distributions of the largest distances, one per class, fitted to all classes at once.

The form is libMR's, which OpenMax was published with: the distribution of a tail starts 1 below its smallest distance,
so that the translated distances :math:`x = d - \text{smallest} + 1` begin at 1 and

.. math:: F(d) = 1 - e^{-(x / \lambda)^\kappa} \quad (x > 0), \qquad F(d) = 0 \quad (x \le 0).

Shape and scale maximise the likelihood, as ``scipy.stats.weibull_min.fit(tail, floc=smallest - 1)`` does.
"""

from typing import NamedTuple

import torch
from torch import Tensor

EQUAL = 1e-6  # a tail whose distances differ by less, relative to the largest, has no shape
STEPS, CLOSE = 60, 1e-9  # Newton doubles the digits: the step after one of 1e-9 is rounding


class Tails(NamedTuple):
    """One distribution per class, float64, each of shape ``(k,)``; ``log_scale`` is the logarithm of lambda."""

    smallest: Tensor
    shape: Tensor
    log_scale: Tensor


def largest_per_class(d: Tensor, y: Tensor, num_classes: int, count: int) -> Tensor:
    """Return the ``count`` largest distances of each class, NaN for missing ones: ``(n,), (n,) -> (k, count)``.

    >>> largest_per_class(torch.tensor([1.0, 3.0, 2.0, 5.0]), torch.tensor([0, 0, 0, 1]), num_classes=2, count=2)
    tensor([[3., 2.],
            [5., nan]])
    """
    order = d.argsort(descending=True)
    order = order[y[order].argsort(stable=True)]  # (n,) by class, then from far to near
    y = y[order]
    sizes = torch.bincount(y, minlength=num_classes)  # (k,)
    rank = torch.arange(len(y), device=y.device) - (sizes.cumsum(0) - sizes)[y]  # (n,) within its class
    kept = rank < count
    tails = d.new_full((num_classes, count), torch.nan)
    tails[y[kept], rank[kept]] = d[order[kept]]
    return tails


def fit_tails(tails: Tensor) -> Tails:
    """Fit one distribution to each row of distances, NaN for none: ``(k, t) -> (k,)`` three times.

    Distances that are all equal (one or two examples always are) have no maximum of the likelihood. Such a row takes
    the medians of the rows that have one, but starts no nearer than its distances; if there is no such row it is
    exponential (shape 1) with scale 1. The same holds for a row without any distance.

    >>> tails = fit_tails(torch.tensor([[1.0, 2.0, 4.0], [9.0, torch.nan, torch.nan]]))
    >>> tails.smallest, tails.shape, tails.log_scale.exp()
    (tensor([1., 9.]), tensor([2.0125, 2.0125]), tensor([2.6493, 2.6493]))
    """
    present = ~tails.isnan()  # (k, t)
    smallest = tails.masked_fill(~present, torch.inf).amin(-1)  # (k,)
    largest = tails.masked_fill(~present, -torch.inf).amax(-1)
    usable = largest - smallest > EQUAL * largest  # (k,) rows with a shape; an empty row has none
    empty = ~present.any(-1)
    shape, log_scale = torch.ones_like(smallest), torch.zeros_like(smallest)
    smallest = smallest.masked_fill(empty, 0.0)
    shape[usable], log_scale[usable] = _maximum_likelihood(tails[usable], present[usable], smallest[usable])
    if usable.any() and not usable.all():
        smallest = torch.where(usable, smallest, smallest.clamp_min(smallest[usable].median()))
        shape = torch.where(usable, shape, shape[usable].median())
        log_scale = torch.where(usable, log_scale, log_scale[usable].median())
    return Tails(smallest, shape, log_scale)


def tail_cdf(d: Tensor, tails: Tails) -> Tensor:
    """Return the probability that a distance of the tail is at most ``d``; shapes broadcast.

    >>> tail_cdf(torch.tensor([0.0, 1.0, 4.0]), Tails(torch.tensor(1.0), torch.tensor(1.0), torch.tensor(0.0)))
    tensor([0.0000, 0.6321, 0.9817])
    """
    excess = d - tails.smallest
    below = excess <= -1
    exponent = tails.shape * (torch.log1p(excess.masked_fill(below, 0.0)) - tails.log_scale)
    return (-torch.expm1(-exponent.clamp_max(700.0).exp())).masked_fill(below, 0.0)  # e to 700 is still finite


def _maximum_likelihood(tails: Tensor, present: Tensor, smallest: Tensor) -> tuple[Tensor, Tensor]:
    """Return shape and logarithm of the scale, by Newton's method on the shape.

    In logarithms a Weibull distribution is shifted and stretched only, so they are scaled to [-1, 0] first: the
    iteration is the same for wide and for narrow tails.
    """
    logs = torch.log1p(tails - smallest.unsqueeze(-1)).masked_fill(~present, 0.0)  # (k, t) from 0 on
    width = logs.amax(-1, keepdim=True)
    x = (logs / width - 1).masked_fill(~present, 0.0)  # (k, t)
    count = present.sum(-1, keepdim=True)
    s = _stretched_shape(x, present, count)
    mean_power = ((s * x).exp() * present).sum(-1, keepdim=True) / count
    return (s / width).squeeze(-1), (width * (1 + mean_power.log() / s)).squeeze(-1)


def _stretched_shape(x: Tensor, present: Tensor, count: Tensor) -> Tensor:
    r"""Return the root of :math:`g(s) = s (\bar{x}_s - \bar{x}) - 1`, with weights :math:`e^{s x}`.

    g increases from -1 without bound, so the root is unique; a step that leaves the bracket is replaced by bisection,
    or by doubling while there is no upper end.
    """
    mean = x.sum(-1, keepdim=True) / count
    s = (1.6449 / (((x - mean).square() * present).sum(-1, keepdim=True) / count)).sqrt()  # by the variance, pi^2/6
    low, high = torch.zeros_like(s), torch.full_like(s, torch.inf)
    for _ in range(STEPS):
        weights = (s * x).exp() * present
        weights = weights / weights.sum(-1, keepdim=True)
        tilted = (weights * x).sum(-1, keepdim=True)
        variance = (weights * (x - tilted).square()).sum(-1, keepdim=True)
        g = s * (tilted - mean) - 1
        low, high = torch.where(g < 0, s, low), torch.where(g < 0, high, s)
        new = s - g / (tilted - mean + s * variance)
        halved = torch.where(high.isinf(), 2 * s, (low + high) / 2)
        new = torch.where((new >= low) & (new <= high), new, halved)
        moved, s = (new - s).abs(), new
        if bool((moved <= CLOSE * s).all()):
            break
    return s
