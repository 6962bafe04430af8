"""Figure 5: a Bayesian radial network with the two points of figure 2; and Bayesian networks far away, all seeds."""

from typing import TYPE_CHECKING

import torch

from openradial.functional import radial_distances
from paper.bayesian_nets import (
    FIGURE_BETA,
    SETTINGS,
    best_seed,
    drawn,
    measured,
    radial_nets,
    softmax_nets,
    trained_bayesian,
    two_points,
)
from paper.experiment import Experiment
from paper.fig2 import TITLES
from paper.plan import Plan, Results
from paper.spiral_nets import HIDDEN
from paper.spiral_plots import inset_histogram, rounded

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def run(plan: Plan) -> Results:
    settings = plan.settings(SETTINGS)
    nets = radial_nets(settings)
    kinds = {f"radial, beta {beta:g}": radial_nets(settings, beta) for beta in settings.betas}
    kinds["softmax"] = softmax_nets(settings, HIDDEN["radial"])  # the same network, so that only the head differs
    results = {kind: measured(plan, each, settings.samples) for kind, each in kinds.items()}
    seed = best_seed(results[f"radial, beta {FIGURE_BETA:g}"])
    networks = drawn(trained_bayesian(plan, nets)[seed], nets, settings.samples)
    with torch.no_grad():
        o = torch.stack([net(two_points(nets)) for net in networks])  # (samples, 2, 3)
    probs = (-FIGURE_BETA * radial_distances(o.flatten(0, 1)).amin(-1)).exp().view(o.shape[:2])
    return {
        "seed": seed,
        "beta": FIGURE_BETA,
        "told": results,
        "points": [{"o": rounded(o[:, i]), "probs": probs[:, i].tolist()} for i in range(2)],
    }


def draw(numbers: Results) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.5, 4.0), layout="constrained")
    *panels, seeds = figure.subplots(1, 3, width_ratios=(1, 1, 0.9))
    for ax, title, point in zip(panels, TITLES, numbers["points"], strict=True):
        draw_outputs(ax, point)
        ax.set_title(title)
    draw_seeds(seeds, numbers["told"])
    return figure


def draw_outputs(ax: "Axes", point: Results) -> None:
    """Draw outputs of the samples, seen along the line on which all three outputs are equal."""
    import numpy as np

    from openradial.evaluation.plots import colors

    view = np.array([[-1, 1, 0], [-1, -1, 2]]).T / np.sqrt([2, 6])  # (3, 2) keeps lengths in the prototypes' plane
    o = np.array(point["o"]) @ view
    ax.scatter(o[:, 0], o[:, 1], s=14, color="black", alpha=0.45, linewidths=0)
    for label, star in enumerate(view):
        ax.plot(*star, "*", color=colors.CLASSES[label], markeredgecolor="white", markersize=17)
        ax.annotate(f"$p_{label + 1}$", star, (0, 10), textcoords="offset points", ha="center")
    reach = max(1.2, 1.1 * float(np.quantile(np.abs(o), 0.98)))
    far = 1.7 * reach  # room for the inset
    ax.set(xlim=(-reach, far), ylim=(-reach, far), xlabel="$(o_2 - o_1) / \\sqrt{2}$")
    ax.set(ylabel="$(2 o_3 - o_1 - o_2) / \\sqrt{6}$")
    ax.set_box_aspect(1)
    inset_histogram(ax, point["probs"], colors.RADIAL)


def draw_seeds(ax: "Axes", told: Results) -> None:
    """Draw each network on the far-away rings: the confidence of its samples, and their spread."""
    from openradial.evaluation.plots import colors

    styles = {"softmax": (colors.SOFTMAX, "s"), "radial, beta 5": (colors.RADIAL, "o")}
    others = iter([(colors.SKY, "^"), (colors.GREEN, "D")])
    for kind, results in told.items():
        color, mark = styles.get(kind) or next(others)
        name = kind.replace("beta", "$\\beta$ =")
        ax.scatter(
            results["winning"], results["spread"], s=26, color=color, marker=mark, alpha=0.75, linewidths=0, label=name
        )
    ax.set(xlim=(-0.03, 1.03), ylim=(0, None), title="rings far away, a dot per seed")
    ax.set(xlabel="mean winning probability", ylabel="its deviation over samples")
    ax.set_box_aspect(1)
    ax.legend(loc="best")


EXPERIMENT = Experiment(
    id="fig5",
    title="A Bayesian network with the radial layer",
    caption=(
        "Each dot is where one sample puts the point among the prototypes (stars): the training point stays at its "
        "prototype, the point far away is spread out, and its winning probability (inset) is low. On the right, all "
        "seeds on rings of far-away points: samples with softmax agree on a high probability, radial ones do not."
    ),
    settings=SETTINGS,
    run=run,
    draw=draw,
    claims=(4,),
    minutes=45,
)
