"""Plots: arrays in, matplotlib Axes out."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from openradial.errors import OptionError, ShapeError
from openradial.evaluation.plots import colors
from openradial.evaluation.plots.colors import KNOWN_COLOR, NOVEL_COLOR

__all__ = ["KNOWN_COLOR", "NOVEL_COLOR", "colors", "plot_answers", "plot_winning_probabilities"]
_BELOW: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "top"}


def plot_winning_probabilities(
    known: npt.ArrayLike, novel: npt.ArrayLike, *, bins: int = 20, ax: Axes | None = None
) -> Axes:
    """Plot histograms of the winning probability of known and novel examples, in % of each group.

    >>> ax = plot_winning_probabilities([0.9, 0.95], [0.1, 0.3, 0.2])
    >>> ax.get_xlabel()
    'winning probability'
    >>> plt.close(ax.figure)
    """
    ax = ax or plt.subplots()[1]
    for name, values, color in (("known", known, KNOWN_COLOR), ("novel", novel, NOVEL_COLOR)):
        probs = _probabilities(name, values)
        if probs.ndim != 1 or probs.size == 0:
            raise ShapeError(f"{name} needs one winning probability per example, got shape {probs.shape}")
        share = np.full(probs.shape, 100 / probs.size)
        style: dict[str, Any] = {"facecolor": to_rgba(color, 0.5), "edgecolor": color, "linewidth": 1.5}
        ax.hist(probs, bins, range=(0, 1), weights=share, histtype="stepfilled", label=name, **style)
    ax.set(xlim=(0, 1), xlabel="winning probability", ylabel="share of examples (%)")
    ax.legend(frameon=False)
    return ax


def plot_answers(
    image: npt.ArrayLike, answers: Mapping[str, tuple[str, float]], *, names: bool = True, ax: Axes | None = None
) -> Axes:
    """Plot a grey image, and below it the prediction of each method with its probability.

    ``names`` writes the names of the methods to the left.

    >>> ax = plot_answers(np.eye(8), {"softmax": ("3", 0.98), "radial": ("3", 0.02)})
    >>> [text.get_text() for text in ax.texts]
    ['3 (98 %)', 'softmax', '3 (2 %)', 'radial']
    >>> plt.close(ax.figure)
    """
    pixels = np.asarray(image, dtype=np.float64)
    if pixels.ndim != 2:
        raise ShapeError(f"an image has 2 dimensions, got {pixels.ndim}; reshape it to (height, width)")
    ax = ax or plt.subplots()[1]
    ax.imshow(pixels, cmap="gray_r")
    ax.set(xticks=[], yticks=[])
    for line, (method, (label, prob)) in enumerate(answers.items()):
        below = -4 - 12 * line  # points below the image
        ax.annotate(f"{label} ({100 * prob:.0f} %)", (0.5, 0), (0, below), ha="center", **_BELOW)
        if names:
            ax.annotate(method, (0, 0), (-6, below), ha="right", **_BELOW)
    return ax


def _probabilities(name: str, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    probs = np.asarray(values, dtype=np.float64)
    if not ((probs >= 0) & (probs <= 1 + 1e-6)).all():
        raise OptionError(
            f"{name} must lie between 0 and 1, got {probs.min()} to {probs.max()}; pass probs, not log_probs"
        )
    return probs
