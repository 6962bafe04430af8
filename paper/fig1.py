"""Figure 1: the spiral, what a softmax network predicts in the plane, and its last hidden layer."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from paper.experiment import Experiment
from paper.plan import Plan, Results, Size
from paper.spiral_nets import (
    FAR,
    HIDDEN,
    LEARNED,
    Nets,
    accuracy,
    prediction_map,
    ring,
    sample,
    trained,
    winning,
)
from paper.spiral_plots import draw_hidden_layer, hidden_layer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RADIUS = 3.0  # of the ring of far-away points


@dataclass(frozen=True)
class Fig1:
    epochs: int
    seeds: int
    cells: int  # of the maps, each way
    learning_rate: float = 5e-4


SETTINGS: dict[Size, Fig1] = {
    "tiny": Fig1(epochs=1, seeds=2, cells=12),
    "quick": Fig1(epochs=150, seeds=10, cells=120, learning_rate=2e-3),
    "full": Fig1(epochs=25_000, seeds=10, cells=240),
}


def run(plan: Plan) -> Results:
    settings = plan.settings(SETTINGS)
    nets = Nets("softmax", settings.epochs, settings.seeds, HIDDEN["softmax"], settings.learning_rate)
    networks = trained(plan, nets)
    accuracies = [accuracy(net, nets.data("test")) for net in networks]
    seed = first_that_learned(accuracies, [uses_both_units(net, nets.data().inputs) for net in networks])
    winner, prob = winning(networks[seed], "softmax", torch.tensor([FAR]))
    return {
        "seed": seed,
        "accuracy": accuracies,
        "called": [called(net) for net in networks],
        "far": {"point": list(FAR), "winner": int(winner), "prob": float(prob)},
        "data": sample(nets.data(), 900),
        "map": prediction_map(networks[seed], "softmax", settings.cells),
        "hidden": hidden_layer(networks[seed], nets.data()),
    }


def first_that_learned(accuracies: list[float], complete: list[bool]) -> int:
    """Return the first seed whose network learned the task, if there is one with both units, else the best.

    With two units before the last layer, some networks start with a unit that is never active and stay there; a few
    learn the task with the other one alone.

    >>> first_that_learned([0.67, 0.99, 1.0], [False, False, True])
    2
    """
    learned = [seed for seed, value in enumerate(accuracies) if value >= LEARNED]
    whole = [seed for seed in learned if complete[seed]]
    return (whole or learned or [accuracies.index(max(accuracies))])[0]


@torch.no_grad()
def uses_both_units(network: nn.Module, x: torch.Tensor) -> bool:
    """Return whether each unit of the last hidden layer is active for some points."""
    each: Any = network
    return bool((each.forward_features(x) > 0).any(0).all())


def called(network: nn.Module) -> float:
    """Return the share of a ring of far-away points that is called with p > 0.9."""
    return float((winning(network, "softmax", ring(RADIUS))[1] > 0.9).float().mean())


def draw(numbers: Results) -> "Figure":
    from matplotlib.figure import Figure

    from paper.maps import plot_points, plot_prediction_map

    figure = Figure(figsize=(10.5, 3.7), layout="constrained")
    data, plane, hidden = figure.subplots(1, 3)
    plot_points(numbers["data"]["points"], numbers["data"]["labels"], ax=data)
    plot_prediction_map(numbers["map"]["winners"], numbers["map"]["probs"], numbers["map"]["extent"], ax=plane)
    plot_points(numbers["data"]["points"], numbers["data"]["labels"], size=2, ax=plane, color="white", alpha=0.6)
    x, y = numbers["far"]["point"]
    for ax in (data, plane):
        ax.plot(x, y, "X", color="black", markeredgecolor="white", markersize=11)
        ax.set(xlim=(-3, 3), ylim=(-3, 3), aspect="equal", xlabel="$x_1$", ylabel="$x_2$")
    data.set_title("data, and a point far away")
    plane.set_title(f"softmax: p = {numbers['far']['prob']:.3f} far away")
    draw_hidden_layer(hidden, numbers["hidden"])
    hidden.set_title("last hidden layer (2 units, ReLU)")
    return figure


EXPERIMENT = Experiment(
    id="fig1",
    title="Softmax on the spiral",
    caption=(
        "Softmax colours the whole plane: the cross, far from all data, gets a class with a high probability. On the "
        "right, the last hidden layer, where the classes are apart and straight lines separate them; the cross lands "
        "deep inside a class."
    ),
    settings=SETTINGS,
    run=run,
    draw=draw,
    claims=(2,),
    minutes=9,
)
