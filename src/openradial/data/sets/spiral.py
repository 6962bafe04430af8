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
    by Gaussian ``noise`` in both directions. Classes are balanced, and so is every beginning of the set; 2000 points
    are the paper's M = 40 batches of 50. ``label_noise`` is the share of points with a random label, which is drawn
    from all classes as in the paper, so about 1 in ``arms`` stays correct; it changes nothing else.
    ``split="test"`` draws other points from the same arms.

    >>> toy = spiral(6, noise=0.0)
    >>> toy.inputs.shape, toy.labels.tolist(), toy.classes
    (torch.Size([6, 2]), [0, 1, 2, 0, 1, 2], ('arm 0', 'arm 1', 'arm 2'))
    """
    check_count("n", n)
    check_count("arms", arms)
    check_count("seed", seed, least=0)
    if not 0 <= label_noise <= 1:
        raise OptionError(f"label_noise must be a share in 0..1, got {label_noise!r}; 0.1 is the paper's 10 %")
    if not 0 <= noise < math.inf:
        raise OptionError(f"noise must be a finite number of at least 0, got {noise!r}")
    if not math.isfinite(turns):
        raise OptionError(f"turns must be a finite number, got {turns!r}")
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
