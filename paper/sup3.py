"""Supplement: winning probabilities of a radial network on MNIST for several beta."""

from typing import TYPE_CHECKING

from openradial.heads import RadialHead
from paper.experiment import Experiment
from paper.mnist_nets import TRAINING, MnistRun
from paper.plan import Plan, Results
from paper.winning import RIGHT, WRONG, draw_shares, histogram, median, summed, winning_probs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BETAS = (1.0, 2.0, 5.0, 10.0)


def run(plan: Plan) -> Results:
    settings = plan.settings(TRAINING)
    numbers: Results = {"betas": list(BETAS), "seeds": []}
    for seed in range(settings.seeds):
        net = MnistRun(plan, settings, "radial", seed)
        o, right = net.outputs(), net.right()
        probs = [winning_probs(RadialHead(10, beta), o) for beta in BETAS]
        numbers["seeds"].append(
            {
                RIGHT: [histogram(each[right]) for each in probs],
                WRONG: [histogram(each[~right]) for each in probs],
                "medians": [median(each) for each in probs],
            }
        )
    return numbers


def draw(numbers: Results) -> "Figure":
    from matplotlib.figure import Figure

    from openradial.evaluation.plots import KNOWN_COLOR, NOVEL_COLOR

    figure = Figure(figsize=(11, 3), layout="constrained")
    panels = figure.subplots(1, len(numbers["betas"]), sharey=True)
    for index, (ax, beta) in enumerate(zip(panels, numbers["betas"], strict=True)):
        for part, color, hatch in ((RIGHT, KNOWN_COLOR, None), (WRONG, NOVEL_COLOR, "///")):
            draw_shares(ax, summed([seed[part][index] for seed in numbers["seeds"]]), color, part, hatch=hatch)
        middle = sum(seed["medians"][index] for seed in numbers["seeds"]) / len(numbers["seeds"])
        ax.set_title(f"$\\beta$ = {beta:g}, median {middle:.2f}")
    panels[0].set_ylabel("share of these predictions (%)")
    panels[0].legend(loc="upper left", fontsize=8)
    return figure


EXPERIMENT = Experiment(
    id="sup3",
    title="MNIST: winning probabilities for several beta",
    caption=(
        "One set of networks, read with four beta: the larger beta, the further the mass lies to the left. No beta "
        "changes which class wins or in what order predictions are doubted."
    ),
    settings=TRAINING,
    run=run,
    draw=draw,
    minutes=1,
)
