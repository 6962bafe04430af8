"""Supplement, figure 2: predictions of six samples of a Bayesian radial network, and their mean."""

from typing import TYPE_CHECKING

from openradial.bayes import predict
from paper.bayesian_nets import (
    FIGURE_BETA,
    SETTINGS,
    best_seed,
    drawn,
    measured,
    radial_nets,
    trained_bayesian,
)
from paper.experiment import Experiment
from paper.plan import Plan, Results
from paper.spiral_nets import grid, prediction_map, rows, sample

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 6
EXTENT = (-2.0, 2.0, -2.0, 2.0)


def run(plan: Plan) -> Results:
    settings = plan.settings(SETTINGS)
    nets = radial_nets(settings)
    seed = best_seed(measured(plan, nets, settings.samples))
    network = trained_bayesian(plan, nets)[seed]
    maps = [prediction_map(net, "radial", settings.cells, FIGURE_BETA, EXTENT) for net in drawn(network, nets, SHOWN)]
    mean = predict(network, grid(settings.cells, EXTENT), settings.samples, head=nets.layer, seed=0).probs
    prob, winner = mean.max(-1)
    whole = {"extent": list(EXTENT), "winners": rows(winner, settings.cells), "probs": rows(prob, settings.cells)}
    return {"seed": seed, "beta": FIGURE_BETA, "samples": maps, "mean": whole, "data": sample(nets.data(), 300)}


def draw(numbers: Results) -> "Figure":
    from matplotlib.figure import Figure

    from paper.maps import plot_points, plot_prediction_map

    figure = Figure(figsize=(10.5, 4.4), layout="constrained")
    large, small = figure.subfigures(1, 2, width_ratios=(1, 1.55), squeeze=False)[0]
    mean = large.subplots()
    panels = [mean, *small.subplots(2, 3, sharex=True, sharey=True).flat]
    titles = ["mean of all samples", *(f"sample {index + 1}" for index in range(SHOWN))]
    for ax, title, plane in zip(panels, titles, [numbers["mean"], *numbers["samples"]], strict=True):
        plot_prediction_map(plane["winners"], plane["probs"], plane["extent"], ax=ax)
        ax.set_title(title)
    plot_points(numbers["data"]["points"], numbers["data"]["labels"], size=3, ax=mean, color="black", alpha=0.6)
    mean.set(xlabel="$x_1$", ylabel="$x_2$")
    return figure


EXPERIMENT = Experiment(
    id="sup2",
    title="Six samples of a Bayesian network with the radial layer",
    caption=(
        "Single samples differ from each other, most of all away from the arms, and do not always call the data with a "
        "high probability. Their mean follows the arms, and fades with the distance from them."
    ),
    settings=SETTINGS,
    run=run,
    draw=draw,
    claims=(4,),
)
