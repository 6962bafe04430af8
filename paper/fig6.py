"""Figure 6: winning probabilities of right and wrong predictions on MNIST."""

from typing import TYPE_CHECKING

from openradial.metrics import misclassification_auroc
from paper.experiment import Experiment
from paper.mnist_nets import TRAINING, VARIANTS, MnistRun
from paper.plan import Plan, Results
from paper.winning import (
    RIGHT,
    WRONG,
    draw_shares,
    histogram,
    median,
    share_above,
    summed,
    winning_probs,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HIGH = 0.9


def run(plan: Plan) -> Results:
    settings = plan.settings(TRAINING)
    return {
        variant: [measured(MnistRun(plan, settings, variant, seed)) for seed in range(settings.seeds)]
        for variant in VARIANTS
    }


def measured(mnist_run: MnistRun) -> Results:
    """Return winning probabilities of one network."""
    o, right = mnist_run.outputs(), mnist_run.right()
    probs = winning_probs(mnist_run.head, o)
    return {
        "histograms": {RIGHT: histogram(probs[right]), WRONG: histogram(probs[~right])},
        "median_right": median(probs[right]),
        "median_wrong": median(probs[~right]),
        "wrong_above": share_above(probs[~right], HIGH),
        "auroc": misclassification_auroc(mnist_run.head.unknown_score(o).numpy(), right.numpy()),
    }


def draw(numbers: Results) -> "Figure":
    from matplotlib.figure import Figure

    from openradial.evaluation.plots import KNOWN_COLOR, NOVEL_COLOR

    figure = Figure(figsize=(10, 3.3), layout="constrained")
    panels = figure.subplots(1, len(numbers), sharey=True)
    for ax, (variant, seeds) in zip(panels, numbers.items(), strict=True):
        for part, color, hatch in ((RIGHT, KNOWN_COLOR, None), (WRONG, NOVEL_COLOR, "///")):
            counts = summed([seed["histograms"][part] for seed in seeds])
            draw_shares(ax, counts, color, part, hatch=hatch)
        share = sum(seed["wrong_above"] for seed in seeds) / len(seeds)
        ax.set_title(f"{variant}: {100 * share:.0f} % of wrong ones above {HIGH:g}")
        ax.legend(loc="upper left", title="predictions", fontsize=8)
    panels[0].set_ylabel("share of these predictions (%)")
    return figure


EXPERIMENT = Experiment(
    id="fig6",
    title="MNIST: winning probabilities of right and wrong predictions",
    caption=(
        "Shares are of right and of wrong predictions apart, on a logarithmic scale, all seeds together; beta is 1. "
        "With softmax a good part of the wrong predictions has a winning probability near 1, with the radial layer a "
        "small one, because a wrong output mostly lies between prototypes."
    ),
    settings=TRAINING,
    run=run,
    draw=draw,
    claims=(5,),
    minutes=1,
)
