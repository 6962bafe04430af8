"""The plane as a classifier sees it, and labelled points in it."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from openradial.errors import OptionError, ShapeError
from openradial.evaluation.plots.colors import CLASSES, MARKS

Extent = Sequence[float]  # left, right, bottom, top


def plot_prediction_map(
    winners: npt.ArrayLike, probs: npt.ArrayLike, extent: Extent, *, ax: Axes | None = None
) -> Axes:
    """The winning class of every place as its colour, its probability as how strong the colour is.

    Where no class is probable there is no colour. ``winners`` and ``probs`` are ``(height, width)``, the first row at
    the bottom.

    >>> ax = plot_prediction_map([[0, 1]], [[1.0, 0.0]], extent=(0, 2, 0, 1))
    >>> ax.images[0].get_array()[0, :, 3].tolist()
    [1.0, 0.0]
    >>> plt.close(ax.figure)
    """
    labels, strength = np.asarray(winners), np.asarray(probs, dtype=np.float64)
    if labels.ndim != 2 or labels.shape != strength.shape:
        raise ShapeError(
            f"a map needs one winner and one probability per place, got shapes {labels.shape} and {strength.shape}"
        )
    if not ((strength >= 0) & (strength <= 1 + 1e-6)).all():
        raise OptionError(
            f"probs must lie between 0 and 1, got {strength.min()} to {strength.max()}; pass probs, not log_probs"
        )
    if ax is None:
        ax = plt.subplots()[1]
    colors = np.array([to_rgb(color) for color in CLASSES])[labels % len(CLASSES)]  # (h, w, 3)
    left, right, bottom, top = extent
    place = (left, right, bottom, top)
    image = np.concatenate([colors, strength[..., None].clip(0, 1)], -1)
    ax.imshow(image, origin="lower", extent=place, interpolation="nearest")
    return ax


def plot_points(
    points: npt.ArrayLike, labels: npt.ArrayLike, *, size: float = 6.0, ax: Axes | None = None, **look: Any
) -> Axes:
    """Points ``(n, 2)`` with a colour and a mark per class.

    >>> ax = plot_points([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]], [0, 1, 1])
    >>> [len(group.get_offsets()) for group in ax.collections]
    [1, 2]
    >>> plt.close(ax.figure)
    """
    places, names = np.asarray(points, dtype=np.float64), np.asarray(labels)
    if places.ndim != 2 or places.shape[1] != 2 or names.shape != places.shape[:1]:
        raise ShapeError(f"points must be (n, 2) with n labels, got {places.shape} with {names.shape} labels")
    if ax is None:
        ax = plt.subplots()[1]
    usual: dict[str, Any] = {"s": size, "linewidths": 0, "rasterized": True}
    for label in np.unique(names):
        own = places[names == label]
        color, mark = CLASSES[label % len(CLASSES)], MARKS[label % len(MARKS)]
        ax.scatter(*own.T, **({"color": color, "marker": mark} | usual | look))
    return ax
