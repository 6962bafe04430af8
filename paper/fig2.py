"""Figure 2: a Bayesian softmax network, and where its samples put a training point and a point far away."""

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from paper.bayesian_nets import (
    SETTINGS,
    best_seed,
    drawn,
    measured,
    softmax_nets,
    trained_bayesian,
    two_points,
)
from paper.experiment import Experiment
from paper.plan import Plan, Results
from paper.spiral_plots import draw_classes, hidden_layer, inset_histogram, reach_of, rounded

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = ("a training point", "a point far away")


def run(plan: Plan) -> Results:
    settings = plan.settings(SETTINGS)
    nets = softmax_nets(settings)
    results = measured(plan, nets, settings.samples)
    seed = best_seed(results)
    network = trained_bayesian(plan, nets)[seed]
    z, probs = mapped(drawn(network, nets, settings.samples), two_points(nets))
    mean = hidden_layer(network, nets.data(), reach_of(z.flatten(0, 1)))
    return {
        "seed": seed,
        "told": results,
        "mean": mean,
        "points": [{"z": rounded(z[:, i]), "probs": probs[:, i].tolist()} for i in range(2)],
    }


@torch.no_grad()
def mapped(networks: list[nn.Module], x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features of points in every sample, ``(samples, b, 2)``, and winning probabilities, ``(samples, b)``."""
    each: list[Any] = networks
    z = torch.stack([net.forward_features(x) for net in each])
    probs = torch.stack([net(x).softmax(-1).amax(-1) for net in each])
    return z, probs


def draw(numbers: Results) -> "Figure":
    import numpy as np
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 4.2), layout="constrained")
    panels = figure.subplots(1, 2)
    for ax, title, point in zip(panels, TITLES, numbers["points"], strict=True):
        draw_classes(ax, numbers["mean"])
        z = np.array(point["z"])
        ax.scatter(z[:, 0], z[:, 1], s=14, color="black", alpha=0.5, linewidths=0)
        ax.set_title(title)
        inset_histogram(ax, point["probs"], beside=point["z"])
    return figure


EXPERIMENT = Experiment(
    id="fig2",
    title="A Bayesian network with softmax",
    caption=(
        "Each dot is where one sample of the network puts the point in the last hidden layer; colours are the classes "
        "of the mean network. Samples move the point far away within one class, so that nearly all of them call it "
        "with a high probability (inset): the uncertainty of the weights does not show."
    ),
    settings=SETTINGS,
    run=run,
    draw=draw,
    claims=(4,),
    minutes=10,
)
