"""Table 1: accuracies on MNIST, and on photographs beside the paper's on ImageNet."""

from typing import TYPE_CHECKING, Any

from paper.experiment import Experiment
from paper.image_nets import image_run, image_set
from paper.mnist_nets import RECIPES, TRAINING, VARIANTS, MnistRun, MnistTraining
from paper.plan import Plan, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER = {"softmax": 0.9878, "radial": 0.9880}
IMAGENET = (  # the paper's: variant, top-1, top-5
    ("VGG-19, radial, pre-trained", 0.761, 0.914),
    ("VGG-19, radial, from scratch", 0.787, 0.900),
    ("VGG-19, softmax (Simonyan)", 0.745, 0.920),
)


def run(plan: Plan) -> Results:
    settings = plan.settings(TRAINING)
    images = image_set(plan)
    return {
        "recipes": {name: recipe.label for name, recipe in RECIPES.items()},
        "mnist": mnist_accuracies(plan, settings),
        "images": {
            "title": images.title,
            "network": images.network,
            **{head: _shortened(image_run(plan, head)) for head in ("softmax", "radial")},
        },
    }


def mnist_accuracies(plan: Plan, settings: MnistTraining) -> dict[str, dict[str, list[float]]]:
    """Return the test accuracy by settings and variant, one per seed."""
    seeds = range(settings.seeds)
    return {
        recipe: {
            variant: [MnistRun(plan, settings, variant, seed, recipe).accuracy() for seed in seeds]
            for variant in VARIANTS
        }
        for recipe in RECIPES
    }


def _shortened(result: Results) -> Results:
    return {name: result[name] for name in ("known_classes", "epochs", "top_1", "top_5")}


def draw(numbers: Results) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 6.2), layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=(1.35, 1), squeeze=False)[:, 0]
    panels = upper.subplots(1, len(numbers["mnist"]))
    for ax, (recipe, accuracies) in zip(panels, numbers["mnist"].items(), strict=True):
        _draw_accuracies(ax, accuracies)
        ax.set_title(f"MNIST, {numbers['recipes'][recipe]}", wrap=True)
    panels[0].set_ylabel("test accuracy (%)")
    _draw_table(lower.subplots(1, 1), numbers["images"])
    return figure


def _draw_accuracies(ax: "Axes", accuracies: dict[str, list[float]]) -> None:
    """Draw a dot per seed, the mean with its error, and the paper's number as a line."""
    from openradial.evaluation.plots import colors
    from paper.claims import error_of

    for index, (variant, values) in enumerate(accuracies.items()):
        color = colors.SOFTMAX if variant == "softmax" else colors.RADIAL
        percent = [100 * value for value in values]
        mean, error = sum(percent) / len(percent), error_of(percent)
        ax.scatter([index - 0.12] * len(percent), percent, s=14, color=color, alpha=0.5, linewidths=0)
        ax.errorbar(index + 0.08, mean, yerr=error, fmt="o", color=color, capsize=4, markersize=6)
        text = f"{mean:.2f}" if error is None else f"{mean:.2f}\n± {error:.2f}"
        ax.annotate(text, (index + 0.08, mean), (8, 0), textcoords="offset points", va="center", fontsize=8)
        if variant in PAPER:
            paper = 100 * PAPER[variant]
            ax.hlines(paper, index - 0.3, index + 0.3, color="0.3", linestyle="--", linewidth=1)
            above: dict[str, Any] = {"xytext": (0, 3), "textcoords": "offset points", "ha": "center", "color": "0.3"}
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
            ax.annotate(f"paper {paper:.2f}", (index, paper), fontsize=8, bbox=box, zorder=4, **above)
    ax.set_xticks(range(len(accuracies)), list(accuracies))
    ax.set_xlim(-0.5, len(accuracies) - 0.1)


def _draw_table(ax: "Axes", images: dict[str, Any]) -> None:
    """Draw the paper's numbers on ImageNet and ours on other photographs, named on every line."""
    rows = [["the paper", "ImageNet, 1,000 classes", name, *_percent(one, five)] for name, one, five in IMAGENET]
    for head in ("radial", "softmax"):
        result = images[head]
        rows.append(
            ["ours", images["title"], f"{head}: {images['network']}", *_percent(result["top_1"], result["top_5"])]
        )
    ax.axis("off")
    table = ax.table(
        rows,
        colLabels=["whose", "data", "network", "top-1 (%)", "top-5 (%)"],
        colWidths=[0.07, 0.33, 0.46, 0.07, 0.07],
        cellLoc="left",
        loc="center",
    )
    table.auto_set_font_size(False)
    table.set_fontsize(7)
    table.scale(1, 1.35)
    for (row, _), cell in table.get_celld().items():
        cell.PAD = 0.02
        cell.get_text().set_horizontalalignment("left")
        cell.set(linewidth=0.4, edgecolor="0.6", facecolor="white" if row else "0.93")
        if row > len(IMAGENET):
            cell.set_facecolor("#E8F1F8")


def _percent(*shares: float) -> list[str]:
    return [f"{100 * share:.1f}" for share in shares]


EXPERIMENT = Experiment(
    id="tab1",
    title="Accuracies of softmax and radial networks",
    caption=(
        "MNIST: a dot per run, the mean with its error (twice the standard deviation over seeds), and the paper's "
        "accuracy, dashed; within each panel softmax and radial differ in nothing but the head. The table has the "
        "paper's numbers on ImageNet and, tinted, ours on other data with other networks: they show how both heads "
        "train there, and are not to be compared with the paper's."
    ),
    settings=TRAINING,
    run=run,
    draw=draw,
    claims=(1,),
    minutes=45,
)
