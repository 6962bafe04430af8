"""The error of an accuracy: twice the corrected sample standard deviation over repeated runs."""

from statistics import fmean, stdev
from typing import TYPE_CHECKING

from paper.experiment import Experiment
from paper.mnist_nets import RECIPES, TRAINING
from paper.plan import Plan, Results
from paper.tab1 import mnist_accuracies

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = (0.7292, 0.7411, 0.7619, 0.7679)  # four runs of the pre-trained VGG-19 on ImageNet; two more were planned


def run(plan: Plan) -> Results:
    settings = plan.settings(TRAINING)
    rows = [
        {"name": f"MNIST, {recipe}, {variant}", "runs": values, **_spread(values)}
        for recipe, accuracies in mnist_accuracies(plan, settings).items()
        for variant, values in accuracies.items()
    ]
    rows.append({"name": "the paper: ImageNet, VGG-19, radial", "runs": list(PAPER), **_spread(PAPER)})
    return {"rows": rows, "recipes": {name: recipe.label for name, recipe in RECIPES.items()}}


def _spread(values: "list[float] | tuple[float, ...]") -> Results:
    """Return mean and error; a single run has no error."""
    return {"mean": fmean(values), "error": 2 * stdev(values) if len(values) > 1 else None}


def draw(numbers: Results) -> "Figure":
    from matplotlib.figure import Figure

    from openradial.evaluation.plots import colors

    figure = Figure(figsize=(7.5, 0.42 * len(numbers["rows"]) + 1.2), layout="constrained")
    ax = figure.subplots()
    for index, row in enumerate(numbers["rows"]):
        color = colors.SOFTMAX if "softmax" in row["name"] else colors.RADIAL
        color = colors.BLACK if row["name"].startswith("the paper") else color
        away = [100 * (value - row["mean"]) for value in row["runs"]]
        ax.scatter(away, [index] * len(away), s=16, color=color, alpha=0.6, linewidths=0, zorder=3)
        if row["error"] is not None:
            ax.errorbar(0, index, xerr=100 * row["error"], color=color, capsize=4, fmt="|", zorder=2)
            text = f"{100 * row['mean']:.2f} ± {100 * row['error']:.2f} %"
            ax.annotate(text, (1.01, index), xycoords=("axes fraction", "data"), va="center", fontsize=8)
    ax.axvline(0, color="0.8", linewidth=0.8, zorder=1)
    ax.set_yticks(range(len(numbers["rows"])), [row["name"] for row in numbers["rows"]])
    ax.invert_yaxis()
    ax.set_xlabel("accuracy of each run, from the mean (percentage points); bars: error, twice the standard deviation")
    return figure


EXPERIMENT = Experiment(
    id="err",
    title="The error of an accuracy",
    caption=(
        "Each dot is a run, each bar the paper's error: twice the corrected sample standard deviation over runs. The "
        "paper left the number open (“X.Y”); the four ImageNet runs in its source give 3.6 points."
    ),
    settings=TRAINING,
    run=run,
    draw=draw,
    minutes=1,
)
