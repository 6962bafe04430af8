"""Draw docs/images/far-away.png from the results of benchmarks.far_away."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from openradial.evaluation.plots import colors
from paper.maps import plot_prediction_map

STYLES = {"softmax": (colors.SOFTMAX, "--"), "radial": (colors.RADIAL, "-"), "radial + axis": (colors.GREEN, "-")}
SMALLEST = 1e-4  # slopes below, such as 0, are drawn there


def draw(results: dict[str, Any], radii: Sequence[float], path: Path) -> None:
    """Draw maps of the plane, the explanation, and probabilities along rays."""
    figure = Figure(figsize=(11, 6.8), layout="constrained")
    panels = figure.subplots(2, 3)
    measured = results["spiral"]
    plane = measured["map"]
    titles = ("radial layer", "with the far axis")
    for ax, name, title in zip(panels[0], ("radial", "axis"), titles, strict=False):
        plot_prediction_map(np.array(plane["winners"], dtype=int), plane[name], plane["extent"], ax=ax)
        ax.add_patch(_circle(measured["radius"]))
        ax.set(title=f"Spiral, {title}", xlabel="$x_1$", ylabel="$x_2$")
    draw_slopes(panels[0, 2], measured)
    draw_spiral(panels[1, 0], measured, radii)
    for ax, rays in zip(panels[1, 1:], ("random", "through test images"), strict=True):
        draw_mnist(ax, results["mnist"], rays, radii)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _circle(radius: float) -> Any:
    from matplotlib.patches import Circle

    return Circle((0, 0), radius, fill=False, color=colors.BLACK, linewidth=1, linestyle=":")


def draw_slopes(ax: Axes, measured: dict[str, Any]) -> None:
    """Draw how fast the outputs of all networks grow along rays, for confident directions and for the others."""
    nets = [net for each in measured["snapshots"] for net in each["networks"]]
    slope = np.concatenate([net["slope"] for net in nets]).clip(SMALLEST, None)
    confident = np.concatenate([net["confident_far"] for net in nets]).astype(bool)
    ax.set_ylim(0.5, 2e5)
    bins = np.geomspace(SMALLEST, slope.max() * 1.01, 40)
    for mask, name, color in (
        (~confident, "other directions", colors.RADIAL),
        (confident, "p > 0.9 at 100 radii", colors.SOFTMAX),
    ):
        if mask.any():
            ax.hist(slope[mask], bins.tolist(), color=color, alpha=0.8, label=f"{name} ({mask.sum():,})")
    ax.set(xscale="log", yscale="log", title="Why: outputs that stay constant")
    ax.set(xlabel="growth of outputs along rays (left: 0)")
    ax.set(ylabel="directions of all networks")
    ax.legend(loc="upper left", bbox_to_anchor=(0.1, 1.0), fontsize=8)


def draw_spiral(ax: Axes, measured: dict[str, Any], radii: Sequence[float]) -> None:
    """Draw the share of confident points of each network, and their mean, against the radius."""
    nets = [net for each in measured["snapshots"] for net in each["networks"]]
    for name in ("radial", "radial + axis"):
        shares = 100 * np.array([net[name]["confident"] for net in nets])  # (networks, radii)
        color, line = STYLES[name]
        ax.plot(radii, shares.T, color=color, linewidth=0.4, alpha=0.3)
        ax.plot(radii, shares.mean(0), line, color=color, linewidth=2, marker="o", label=f"{name}, mean")
    ax.set(xscale="log", xlabel="radius / radius of the data", ylabel="points with p > 0.9 (%)")
    ax.set(title=f"Spiral, {len(nets)} snapshots of networks", ylim=(-2, None))
    ax.legend(fontsize=8)


def draw_mnist(ax: Axes, runs: list[dict[str, Any]], rays: str, radii: Sequence[float]) -> None:
    """Draw the median of the largest probability on rays, with the range over seeds."""
    for name, (color, line) in STYLES.items():
        values = np.array([[at["median"] for at in run["models"][name][rays]] for run in runs])  # (seeds, radii)
        width = 4 if name == "radial" else 1.5  # with the axis it is the same near the data
        ax.plot(radii, values.mean(0), line, color=color, marker="o", linewidth=width, label=name)
        ax.fill_between(radii, values.min(0), values.max(0), color=color, alpha=0.2, linewidth=0)
    ax.set(xscale="log", xlabel="radius / radius of the data", ylabel="largest probability, median", ylim=(-0.03, 1.05))
    ax.set(title=f"MNIST, rays {rays}" if rays != "random" else "MNIST, random rays")
    ax.legend(fontsize=8)
