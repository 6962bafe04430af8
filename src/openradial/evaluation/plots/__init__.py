"""Plots: arrays in, matplotlib Axes out."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb, to_rgba

from openradial.errors import OptionError, ShapeError
from openradial.evaluation.plots import colors
from openradial.evaluation.plots.colors import CLASSES, KNOWN_COLOR, MARKS, NOVEL_COLOR

__all__ = ["KNOWN_COLOR", "NOVEL_COLOR", "colors", "plot_answers", "plot_points", "plot_prediction_map"]
__all__ += ["plot_winning_probabilities"]
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


def plot_prediction_map(
    winners: npt.ArrayLike, probs: npt.ArrayLike, extent: Sequence[float], *, ax: Axes | None = None
) -> Axes:
    """Plot the winning class of every pixel as its colour, and the probability as the opacity.

    ``winners`` and ``probs`` are ``(height, width)``, the first row at the bottom; ``extent`` is left, right, bottom
    and top.

    >>> ax = plot_prediction_map([[0, 1]], [[1.0, 0.0]], extent=(0, 2, 0, 1))
    >>> ax.images[0].get_array()[0, :, 3].tolist()
    [1.0, 0.0]
    >>> plt.close(ax.figure)
    """
    labels, strength = np.asarray(winners), _probabilities("probs", probs)
    if labels.ndim != 2 or labels.shape != strength.shape:
        raise ShapeError(
            f"a map needs one winner and one probability per pixel, got shapes {labels.shape} and {strength.shape}"
        )
    ax = ax or plt.subplots()[1]
    rgb = np.array([to_rgb(color) for color in CLASSES])[labels % len(CLASSES)]  # (h, w, 3)
    left, right, bottom, top = extent
    image = np.concatenate([rgb, strength[..., None].clip(0, 1)], -1)
    ax.imshow(image, origin="lower", extent=(left, right, bottom, top), interpolation="nearest")
    return ax


def plot_points(
    points: npt.ArrayLike, labels: npt.ArrayLike, *, size: float = 6.0, ax: Axes | None = None, **style: Any
) -> Axes:
    """Plot points ``(n, 2)`` with a colour and a marker per class.

    >>> ax = plot_points([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]], [0, 1, 1])
    >>> [len(group.get_offsets()) for group in ax.collections]
    [1, 2]
    >>> plt.close(ax.figure)
    """
    xy, classes = np.asarray(points, dtype=np.float64), np.asarray(labels)
    if xy.ndim != 2 or xy.shape[1] != 2 or classes.shape != xy.shape[:1]:
        raise ShapeError(f"points must be (n, 2) with n labels, got {xy.shape} with {classes.shape} labels")
    ax = ax or plt.subplots()[1]
    usual: dict[str, Any] = {"s": size, "linewidths": 0, "rasterized": True}
    for k in np.unique(classes):
        color, mark = CLASSES[k % len(CLASSES)], MARKS[k % len(MARKS)]
        ax.scatter(*xy[classes == k].T, **({"color": color, "marker": mark} | usual | style))
    return ax


def _probabilities(name: str, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    probs = np.asarray(values, dtype=np.float64)
    if not ((probs >= 0) & (probs <= 1 + 1e-6)).all():
        raise OptionError(
            f"{name} must lie between 0 and 1, got {probs.min()} to {probs.max()}; pass probs, not log_probs"
        )
    return probs
