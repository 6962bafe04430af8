"""Supplement, figure 1: the last hidden layer of a Bayesian softmax network in several samples."""

from typing import TYPE_CHECKING

import torch

from paper.bayesian_nets import SETTINGS, best_seed, drawn, measured, softmax_nets, trained_bayesian
from paper.experiment import Experiment
from paper.plan import Plan, Results
from paper.spiral_plots import draw_hidden_layer, hidden_layer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 6


def run(plan: Plan) -> Results:
    settings = plan.settings(SETTINGS)
    nets = softmax_nets(settings)
    seed = best_seed(measured(plan, nets, settings.samples))
    networks = drawn(trained_bayesian(plan, nets)[seed], nets, SHOWN)
    layers = [hidden_layer(net, nets.data()) for net in networks]
    reach = torch.tensor([layer["reach"] for layer in layers]).amax(0).tolist()
    return {"seed": seed, "samples": [layer | {"reach": reach} for layer in layers]}


def draw(numbers: Results) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 6.6), layout="constrained")
    panels = figure.subplots(2, 3, sharex=True, sharey=True).flat
    for index, (ax, layer) in enumerate(zip(panels, numbers["samples"], strict=True)):
        draw_hidden_layer(ax, layer)
        ax.set_title(f"sample {index + 1}")
        ax.label_outer()
    return figure


EXPERIMENT = Experiment(
    id="sup1",
    title="Six samples of a Bayesian network with softmax",
    caption=(
        "The lines between the classes are nearly the same in every sample of the weights, and so is the place of the "
        "data. The cross, far from all data, stays within the same class, which is why it is called with confidence."
    ),
    settings=SETTINGS,
    run=run,
    draw=draw,
    claims=(4,),
)
