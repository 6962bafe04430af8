"""Figure 3: a radial network's predictions for several beta; and rings of far-away points, called by whom."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from openradial.functional import radial_distances
from paper.experiment import Experiment
from paper.plan import Plan, Results, Size
from paper.spiral_nets import EXTENT, HIDDEN, Nets, accuracy, grid, ring, rows, sample, trained, winning

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BETAS = (1.0, 2.0, 5.0, 10.0, 20.0)
BETA = 5.0  # of claim 2: exp(-beta * c) is 0.0008 for a = 1, "a very small value" as the paper asks
RADII = (2.0, 3.0, 5.0, 10.0)  # of the far-away rings; the data lie within 1.1
VARIANTS: dict[str, Any] = {
    "noise 0": {"noise": 0.0},
    "noise 0.05": {"noise": 0.05},
    "half a turn": {"turns": 0.5},
    "1.5 turns": {"turns": 1.5},
}


@dataclass(frozen=True)
class Fig3:
    epochs: int
    seeds: int
    cells: int  # of the maps, each way
    variant_epochs: int  # of the networks on other spirals, and once on the same
    learning_rate: float = 5e-4


SETTINGS: dict[Size, Fig3] = {
    "tiny": Fig3(epochs=1, seeds=2, cells=12, variant_epochs=1),
    "quick": Fig3(epochs=150, seeds=10, cells=120, variant_epochs=60, learning_rate=2e-3),
    "full": Fig3(epochs=25_000, seeds=10, cells=240, variant_epochs=2_500),
}


def run(plan: Plan) -> Results:
    settings = plan.settings(SETTINGS)
    radial = Nets("radial", settings.epochs, settings.seeds, HIDDEN["radial"], settings.learning_rate)
    softmax = replace(radial, head="softmax")  # the same network, so that only the head differs
    first = trained(plan, radial)[0]
    with torch.no_grad():
        d, winners = radial_distances(first(grid(settings.cells))).min(-1)
    both = {nets.head: nets for nets in (softmax, radial)}
    rings = [{"name": f"radius {radius:g}", **called(plan, both, [radius])} for radius in RADII]
    accuracies = tested(plan, both)
    sooner: dict[str, Any] = {f"{settings.variant_epochs:,} epochs": {}}  # tells what is due to the spiral
    for name, change in (sooner | VARIANTS).items():
        other = {head: replace(nets, epochs=settings.variant_epochs, **change) for head, nets in both.items()}
        rings.append({"name": name, **called(plan, other, RADII)})
        accuracies |= {f"{head}, {name}": values for head, values in tested(plan, other).items()}
    return {
        "betas": list(BETAS),
        "beta": BETA,
        "map": {
            "extent": list(EXTENT),
            "winners": rows(winners, settings.cells),
            "distances": rows(d, settings.cells),
        },
        "data": sample(radial.data(), 600),
        "rings": rings,
        "areas": [areas(plan, radial, beta) for beta in BETAS],
        "accuracy": accuracies,
    }


def called(plan: Plan, both: dict[str, Nets], radii: Any) -> dict[str, list[float]]:
    """Return the share of the rings' points that each network calls with p > 0.9."""
    x = torch.cat([ring(radius) for radius in radii])
    return {
        head: [float((winning(net, head, x, BETA)[1] > 0.9).float().mean()) for net in trained(plan, nets)]
        for head, nets in both.items()
    }


def tested(plan: Plan, both: dict[str, Nets]) -> dict[str, list[float]]:
    """Return the accuracy of each network on test points of its own spiral."""
    return {head: [accuracy(net, nets.data("test")) for net in trained(plan, nets)] for head, nets in both.items()}


def areas(plan: Plan, nets: Nets, beta: float) -> list[float]:
    """Return the share of the plane that each network calls with p > 0.5."""
    x = grid(120)
    return [float((winning(net, "radial", x, beta)[1] > 0.5).float().mean()) for net in trained(plan, nets)]


def draw(numbers: Results) -> "Figure":
    import numpy as np
    from matplotlib.figure import Figure

    from paper.maps import plot_prediction_map

    figure = Figure(figsize=(10.5, 5.6), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1.05), squeeze=False)[:, 0]
    distances, extent = np.array(numbers["map"]["distances"]), numbers["map"]["extent"]
    panels = top.subplots(1, len(numbers["betas"]), sharey=True)
    for ax, beta in zip(panels, numbers["betas"], strict=True):
        plot_prediction_map(numbers["map"]["winners"], np.exp(-beta * distances), extent, ax=ax)
        ax.set(title=f"$\\beta$ = {beta:g}", xlabel="$x_1$")
    panels[0].set_ylabel("$x_2$")
    draw_rings(bottom.subplots(1, 1), numbers)
    return figure


def draw_rings(ax: "Axes", numbers: Results) -> None:
    """Draw shares of each ring, a dot per seed."""
    from openradial.evaluation.plots import colors

    for head, color, shift, mark in (("softmax", colors.SOFTMAX, -0.12, "s"), ("radial", colors.RADIAL, 0.12, "o")):
        for index, each in enumerate(numbers["rings"]):
            name = f"{head}, $\\beta$ = {numbers['beta']:g}" if head == "radial" else head
            shares = [100 * share for share in each[head]]
            where = [index + shift] * len(shares)
            ax.scatter(
                where,
                shares,
                s=18,
                color=color,
                alpha=0.5,
                marker=mark,
                linewidths=0,
                label=name if index == 0 else None,
            )
            ax.hlines(sum(shares) / len(shares), index + shift - 0.1, index + shift + 0.1, color=color, linewidth=2)
    ax.set_xticks(range(len(numbers["rings"])), [each["name"] for each in numbers["rings"]])
    ax.set(ylabel="far-away points with p > 0.9 (%)", ylim=(-4, 104))
    ax.legend(loc="center right")


EXPERIMENT = Experiment(
    id="fig3",
    title="The radial layer on the spiral for several beta",
    caption=(
        "The larger beta, the closer the colour keeps to the arms; white is no class. Below, each dot is a network, on "
        "rings around the spiral above and, with fewer epochs, around it and other spirals: softmax calls nearly all "
        "far-away points with p > 0.9, the radial layer far fewer."
    ),
    settings=SETTINGS,
    run=run,
    draw=draw,
    claims=(2,),
    minutes=30,
)
