"""A last hidden layer of two units: where it puts the data, and which class lives where."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from openradial.data.examples import Examples
from paper.plan import Numbers
from paper.spiral import FAR

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 600  # of the data that are drawn
PLACES = 300  # of the plane, each way


@torch.no_grad()
def hidden_layer(network: Any, data: Examples, reach: tuple[float, float] | None = None) -> Numbers:
    """Features of the data and of the far-away point, and the last layer, which divides their plane; for JSON.

    ``reach`` is how far the plane is drawn each way; without it, as far as data and point go.
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
    """A little further than features ``(n, 2)`` go, each way."""
    a, b = (1.1 * z.amax(0)).clamp_min(1e-3).tolist()
    return a, b


def rounded(values: Tensor) -> list[list[float]]:
    """Numbers with three digits after the point, for JSON."""
    return [[round(value, 3) for value in row] for row in values.tolist()]


def draw_hidden_layer(ax: "Axes", numbers: Numbers) -> None:
    """Draw what :func:`hidden_layer` found."""
    from openradial.evaluation.plots import plot_points

    draw_classes(ax, numbers)
    plot_points(numbers["points"], numbers["labels"], size=8, ax=ax, edgecolors="white", linewidths=0.3)
    ax.plot(*numbers["far"], "X", color="black", markeredgecolor="white", markersize=11, clip_on=False)


def draw_classes(ax: "Axes", numbers: Numbers) -> None:
    """The classes of the plane, pale, with lines between them."""
    import numpy as np

    from openradial.evaluation.plots import plot_prediction_map

    right, top = numbers["reach"]
    x, y = np.linspace(-0.05 * right, right, PLACES), np.linspace(-0.05 * top, top, PLACES)
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
