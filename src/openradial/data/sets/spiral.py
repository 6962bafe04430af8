"""Spiral data: points on intertwined arms in the plane, the paper's toy set."""

import math

import numpy as np
import torch

from openradial.data.examples import Examples
from openradial.errors import OptionError, check_choice, check_count

INNER, OUTER = 0.1, 1.0  # radius at the ends of an arm; all arms would meet in 0
SPLITS = ("train", "test")


def spiral(
    n: int = 2000,
    *,
    arms: int = 3,
    noise: float = 0.02,
    label_noise: float = 0.0,
    turns: float = 1.0,
    seed: int = 0,
    split: str = "train",
) -> Examples:
    r"""Draw points ``(n, 2)`` float32 on ``arms`` spirals about the origin, one class each, within about [-1, 1].

    A point of arm j at radius r lies at the angle :math:`2\pi (j / \text{arms} + \text{turns} \cdot r)`, and is moved
    by Gaussian ``noise`` in both directions. Classes are balanced, and so is every beginning of the set. The paper does
    not give its number of points; 2000 are its M = 40 batches of 50.

    ``label_noise`` is the share of points with a random label. As in the paper ("10 % of the data points have a random
    label") it is drawn from all classes, so that about 1 in ``arms`` of them stays correct. Neither the points nor the
    other labels depend on it.

    ``split="test"`` draws other points from the same arms.

    >>> toy = spiral(6, noise=0.0)
    >>> toy.inputs.shape, toy.labels.tolist(), toy.classes
    (torch.Size([6, 2]), [0, 1, 2, 0, 1, 2], ('arm 0', 'arm 1', 'arm 2'))
    """
    check_count("n", n)
    check_count("arms", arms)
    check_count("seed", seed, least=0)
    _check_share("label_noise", label_noise)
    _check_finite("noise", noise, least=0)
    _check_finite("turns", turns, least=-math.inf)
    check_choice("split", split, SPLITS)
    random = np.random.Generator(np.random.PCG64([seed, SPLITS.index(split)]))
    labels = np.arange(n) % arms
    radius = random.uniform(INNER, OUTER, n)
    angle = 2 * np.pi * (labels / arms + turns * radius)
    points = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)  # (n, 2)
    points += noise * random.standard_normal((n, 2))
    replaced = random.permutation(n)[: round(label_noise * n)]
    labels[replaced] = random.integers(arms, size=len(replaced))
    classes = tuple(f"arm {arm}" for arm in range(arms))
    return Examples(torch.from_numpy(points.astype(np.float32)), torch.from_numpy(labels.astype(np.int64)), classes)


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise OptionError(f"{name} must be a share in 0..1, got {value!r}; 0.1 is the paper's 10 %")


def _check_finite(name: str, value: float, *, least: float) -> None:
    if not (math.isfinite(value) and value >= least):
        above = f" of at least {least}" if math.isfinite(least) else ""
        raise OptionError(f"{name} must be a finite number{above}, got {value!r}")
