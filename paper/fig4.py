"""Figure 4: one label in ten is random; softmax and the radial layer, in networks that could learn it by heart."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from openradial.data import Examples
from paper.experiment import Experiment
from paper.plan import Plan, Results, Size
from paper.spiral_nets import Nets, accuracy, prediction_map, sample, trained

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EXTENT = (-1.25, 1.25, -1.25, 1.25)
HEADS = ("softmax", "radial")
BETA = 5.0  # for the colours of the map only: training and winners do not depend on it
# The paper gives neither its points nor its network; the first is the "high capacity" of claim 3.
CASES: dict[str, dict[str, Any]] = {
    "300 points, 3 × 100 units": {"points": 300, "hidden": (100, 100, 100)},
    "300 points, 3 × 50 units": {"points": 300, "hidden": (50, 50, 50)},
    "600 points, 3 × 50 units": {"points": 600, "hidden": (50, 50, 50)},
    "2,000 points, 3 × 50 units": {"points": 2000, "hidden": (50, 50, 50)},
}


@dataclass(frozen=True)
class Fig4:
    epochs: int
    seeds: int
    cells: int  # of the maps, each way
    cases: int  # how many of them
    label_noise: float = 0.1
    learning_rate: float = 5e-4


SETTINGS: dict[Size, Fig4] = {
    "tiny": Fig4(epochs=1, seeds=2, cells=12, cases=1),
    "quick": Fig4(epochs=1_000, seeds=3, cells=120, cases=2),
    "full": Fig4(epochs=25_000, seeds=5, cells=240, cases=4),
}


def run(plan: Plan) -> Results:
    settings = plan.settings(SETTINGS)
    cases = dict(list(CASES.items())[: settings.cases])
    first = next(iter(cases.values()))
    nets = {head: noisy_nets(settings, head, first) for head in HEADS}
    wrong = wrong_labels(nets["radial"])
    maps = {
        head: prediction_map(trained(plan, nets[head])[0], head, settings.cells, BETA, extent=EXTENT) for head in HEADS
    }
    return {
        "maps": maps,
        "data": sample(nets["radial"].data(), len(wrong)) | {"wrong": wrong.tolist()},
        "cases": [
            {"name": name} | {head: measured(plan, noisy_nets(settings, head, case)) for head in HEADS}
            for name, case in cases.items()
        ],
        "without_noise": {head: without_noise(plan, nets[head]) for head in HEADS},
    }


def noisy_nets(settings: Fig4, head: str, case: dict[str, Any]) -> Nets:
    return Nets(
        head,
        settings.epochs,
        settings.seeds,
        learning_rate=settings.learning_rate,
        label_noise=settings.label_noise,
        **case,
    )


def measured(plan: Plan, nets: Nets) -> dict[str, list[float]]:
    """Return the share of memorised wrong labels and the accuracy, one number per seed."""
    networks, data, wrong = trained(plan, nets), nets.data(), wrong_labels(nets)
    return {
        "memorised": [memorised(net, data, wrong) for net in networks],
        "accuracy": accuracies(networks, nets),
    }


def without_noise(plan: Plan, nets: Nets) -> list[float]:
    """Return accuracies of the same networks when every label is right."""
    return accuracies(trained(plan, replace(nets, label_noise=0.0)), nets)


def accuracies(networks: list[nn.Module], nets: Nets) -> list[float]:
    """Return accuracies on as many test points as the paper has training points, with correct labels."""
    test = replace(nets, points=2000).data("test")
    return [accuracy(net, test) for net in networks]


def wrong_labels(nets: Nets) -> torch.Tensor:
    """Return which training points have a wrong label, ``(n,)``; a random label can be the correct one."""
    return nets.data().labels != replace(nets, label_noise=0.0).data().labels


@torch.no_grad()
def memorised(network: nn.Module, data: Examples, wrong: torch.Tensor) -> float:
    """Return the share of the wrong labels that the network predicts."""
    predicted = network(data.inputs[wrong]).argmax(-1)
    return float((predicted == data.labels[wrong]).float().mean())


def draw(numbers: Results) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 3.6), layout="constrained")
    *planes, shares = figure.subplots(1, 3, width_ratios=(1, 1, 0.95))
    for ax, head in zip(planes, HEADS, strict=True):
        draw_map(ax, numbers, head)
    planes[0].set_ylabel("$x_2$")
    draw_shares(shares, numbers)
    return figure


def draw_map(ax: "Axes", numbers: Results, head: str) -> None:
    """Draw the plane, the training points, and a ring around each with a wrong label."""
    import numpy as np

    from paper.maps import plot_points, plot_prediction_map

    plane, data = numbers["maps"][head], numbers["data"]
    plot_prediction_map(plane["winners"], 0.75 * np.array(plane["probs"]), plane["extent"], ax=ax)
    points, wrong = np.array(data["points"]), np.array(data["wrong"])
    plot_points(points, data["labels"], size=11, ax=ax, edgecolors="white", linewidths=0.4)
    ax.scatter(
        points[wrong, 0],
        points[wrong, 1],
        s=55,
        facecolors="none",
        edgecolors="black",
        linewidths=1.1,
        label="wrong label",
    )
    title = head if head == "softmax" else f"radial, $\\beta$ = {BETA:g}"
    ax.set(title=title, xlabel="$x_1$")
    ax.legend(loc="lower left", frameon=True, framealpha=0.9)


def draw_shares(ax: "Axes", numbers: Results) -> None:
    """Draw the share of wrong labels that each network predicts, a dot per seed."""
    from openradial.evaluation.plots import colors

    cases = numbers["cases"]
    for head, color, mark, shift in (("softmax", colors.SOFTMAX, "s", 0.12), ("radial", colors.RADIAL, "o", -0.12)):
        for index, case in enumerate(cases):
            shares = [100 * share for share in case[head]["memorised"]]
            ax.scatter(
                shares,
                [-index + shift] * len(shares),
                s=22,
                color=color,
                marker=mark,
                alpha=0.6,
                linewidths=0,
                label=head if index == 0 else None,
            )
    names = [case["name"].replace(", ", ",\n") for case in cases]
    ax.set_yticks([-index for index in range(len(cases))], names)
    ax.set(xlim=(-4, 104), ylim=(0.5 - len(cases), 0.5), xlabel="wrong labels learned by heart (%)")
    ax.set_box_aspect(1)
    ax.legend(loc="lower right")


EXPERIMENT = Experiment(
    id="fig4",
    title="One label in ten is random",
    caption=(
        "Softmax bends its regions around wrong labels (black rings) and gives them back; the radial layer does "
        "so less often, and the colour keeps close to the point. On the right, the share of wrong labels that networks "
        "learn by heart, a dot per seed, for several numbers of points and units."
    ),
    settings=SETTINGS,
    run=run,
    draw=draw,
    claims=(3,),
    minutes=25,
)
