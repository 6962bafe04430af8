"""Maps of the plane: predictions as colours, and the points that a network has learned from."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from openradial.errors import OptionError, ShapeError
from openradial.evaluation.plots import colors


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
    labels, strength = np.asarray(winners), np.asarray(probs, dtype=np.float64)
    if not ((strength >= 0) & (strength <= 1 + 1e-6)).all():
        raise OptionError(
            f"probs must lie between 0 and 1, got {strength.min()} to {strength.max()}; pass probs, not log_probs"
        )
    if labels.ndim != 2 or labels.shape != strength.shape:
        raise ShapeError(
            f"a map needs one winner and one probability per pixel, got shapes {labels.shape} and {strength.shape}"
        )
    ax = ax or plt.subplots()[1]
    rgb = np.array([to_rgb(color) for color in colors.CLASSES])[labels % len(colors.CLASSES)]  # (h, w, 3)
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
        color, mark = colors.CLASSES[k % len(colors.CLASSES)], colors.MARKS[k % len(colors.MARKS)]
        ax.scatter(*xy[classes == k].T, **({"color": color, "marker": mark} | usual | style))
    return ax
