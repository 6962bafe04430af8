"""Drawings for the networks on the spiral: a last hidden layer of two units, and histograms inside other axes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from openradial.data import Examples
from paper.plan import Results
from paper.spiral_nets import FAR

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 600  # data points that are drawn
CELLS = 300  # of the plane, in each direction
CORNERS = (
    (0.55, 0.58),
    (0.55, 0.17),
    (0.14, 0.58),
    (0.14, 0.17),
)  # of an inset, as fractions of the axes; the first is preferred
INSET = (0.42, 0.36)  # width and height
LABELS = (0.13, 0.15)  # room on its left and below


@torch.no_grad()
def hidden_layer(network: Any, data: Examples, reach: tuple[float, float] | None = None) -> Results:
    """Return features of the data and of the far-away point, and the last layer, which divides their plane; for JSON.

    ``reach`` is the extent of the plane in both directions; by default that of the data and the point.
    """
    z, far = network.forward_features(data.inputs[:POINTS]), network.forward_features(torch.tensor([FAR]))
    return {
        "points": rounded(z),
        "labels": data.labels[:POINTS].tolist(),
        "far": rounded(far)[0],
        "reach": list(reach or reach_of(torch.cat([z, far]))),
        "weight": network.classifier.weight.tolist(),
        "bias": network.classifier.bias.tolist(),
    }


def reach_of(z: Tensor) -> tuple[float, float]:
    """Return 1.1 times the largest features of ``(n, 2)``."""
    a, b = (1.1 * z.amax(0)).clamp_min(1e-3).tolist()
    return a, b


def rounded(values: Tensor) -> list[list[float]]:
    """Round numbers to three decimals, for JSON."""
    return [[round(value, 3) for value in row] for row in values.tolist()]


def draw_hidden_layer(ax: "Axes", numbers: Results) -> None:
    """Draw the result of :func:`hidden_layer`."""
    from paper.maps import plot_points

    draw_classes(ax, numbers)
    plot_points(numbers["points"], numbers["labels"], size=8, ax=ax, edgecolors="white", linewidths=0.3)
    ax.plot(*numbers["far"], "X", color="black", markeredgecolor="white", markersize=11, clip_on=False)


def draw_classes(ax: "Axes", numbers: Results) -> None:
    """Draw the classes of the plane in pale colours, with lines between them."""
    import numpy as np

    from paper.maps import plot_prediction_map

    right, top = numbers["reach"]
    x, y = np.linspace(-0.05 * right, right, CELLS), np.linspace(-0.05 * top, top, CELLS)
    plane = np.stack(np.meshgrid(x, y), -1)  # (h, w, 2)
    o = plane @ np.array(numbers["weight"]).T + np.array(numbers["bias"])
    probs = 1 / np.exp(o - o.max(-1, keepdims=True)).sum(-1)
    plot_prediction_map(o.argmax(-1), 0.35 * probs, (x[0], x[-1], y[0], y[-1]), ax=ax)
    for label in range(o.shape[-1]):
        ahead = o[..., label] - np.delete(o, label, -1).max(-1)
        if ahead.min() < 0 < ahead.max():
            ax.contour(x, y, ahead, levels=[0], colors="black", linewidths=1)
    ax.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]), aspect="auto", xlabel="$z_1$", ylabel="$z_2$")
    ax.set_box_aspect(1)


def inset_histogram(
    ax: "Axes", probs: Sequence[float], color: str | None = None, beside: Sequence[Sequence[float]] = ()
) -> "Axes":
    """Draw a histogram of winning probabilities in the corner where it hides the fewest of the points ``beside``."""
    from openradial.evaluation.plots import colors

    corner = min(CORNERS, key=lambda corner: _hidden(ax, corner, beside))
    inset: Axes = ax.inset_axes((*corner, *INSET))
    weights = [100 / len(probs)] * len(probs)
    inset.hist(probs, bins=20, range=(0, 1), weights=weights, color=color or colors.SOFTMAX)
    inset.set(xlim=(0, 1), ylim=(0, 105), xticks=(0, 0.5, 1), yticks=(0, 50, 100))
    inset.set_xlabel("winning probability", fontsize=7, labelpad=1)
    inset.set_ylabel("samples (%)", fontsize=7, labelpad=1)
    inset.tick_params(labelsize=7, length=2)
    inset.patch.set_alpha(0.9)
    return inset


def _hidden(ax: "Axes", corner: tuple[float, float], points: Sequence[Sequence[float]]) -> int:
    """Count the points behind a histogram in this corner, within the limits of the axes."""
    count = 0
    for point in points:
        within = True
        for value, (low, high), start, size, label in zip(
            point, (ax.get_xlim(), ax.get_ylim()), corner, INSET, LABELS, strict=True
        ):
            within &= start - label <= (value - low) / (high - low) <= start + size
        count += within
    return count
