"""Figure 7: winning probabilities of known and novel classes of photographs."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from paper.experiment import Experiment
from paper.image_nets import image_run, image_set
from paper.plan import Plan, Results, Size
from paper.winning import NOVEL, RIGHT, WRONG, draw_shares, summed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADS = ("softmax", "radial")
KEPT = ("top_1", "auroc", "median_known", "median_novel", "histograms")


@dataclass(frozen=True)
class Fig7:
    runs: int = 1  # networks per head; one takes minutes


SETTINGS: dict[Size, Fig7] = {"tiny": Fig7(), "quick": Fig7(), "full": Fig7()}


def run(plan: Plan) -> Results:
    settings = plan.settings(SETTINGS)
    results = {head: [image_run(plan, head, seed) for seed in range(settings.runs)] for head in HEADS}
    first, images = results["radial"][0], image_set(plan)
    return {
        "data": images.title,
        "network": images.network,
        **{name: first[name] for name in ("epochs", "scale", "known_classes", "novel_classes")},
        "beta": [each["beta"] for each in results["radial"]],
        "temperature": [each["temperature"] for each in results["softmax"]],
        "heads": {head: [{name: each[name] for name in KEPT} for each in runs] for head, runs in results.items()},
    }


def draw(numbers: Results) -> "Figure":
    from matplotlib.figure import Figure

    from openradial.evaluation.plots import KNOWN_COLOR, NOVEL_COLOR

    figure = Figure(figsize=(9.5, 5.6), layout="constrained")
    figure.suptitle(
        f"{numbers['data']} ({numbers['known_classes']} known, {numbers['novel_classes']} novel)\n"
        f"{numbers['network']}; {numbers['epochs']} epochs",
        fontsize=9,
    )
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for column, head in enumerate(HEADS):
        runs = numbers["heads"][head]
        counts = {part: summed([each["histograms"][part] for each in runs]) for part in (RIGHT, WRONG, NOVEL)}
        upper, lower = panels[:, column]
        draw_shares(upper, counts[RIGHT], KNOWN_COLOR, "known class, right")
        draw_shares(upper, counts[WRONG], "0.45", "known class, wrong", hatch="...")
        draw_shares(lower, counts[NOVEL], NOVEL_COLOR, "novel class", hatch="///")
        value = sum(each["auroc"] for each in runs) / len(runs)
        upper.set(title=f"{head}: AUROC known against novel {100 * value:.1f} %", xlabel="")
        for ax in (upper, lower):
            ax.legend(loc="upper left", fontsize=8)
    panels[0, 0].set_ylim(top=300)  # room for the legends
    figure.supylabel("share of these images (%)", fontsize=9)
    return figure


EXPERIMENT = Experiment(
    id="fig7",
    title="Photographs: winning probabilities of known and novel classes",
    caption=(
        "Probabilities are calibrated on held-out images of known classes (beta, or the temperature of softmax). "
        "Novel classes should lie to the left and known ones to the right; as far as they overlap, no threshold parts "
        "them."
    ),
    settings=SETTINGS,
    run=run,
    draw=draw,
    claims=(6,),
    minutes=1,  # its networks are those of tab1
)
