"""Supplement: training curves, and what the length a of the prototypes does to them and to the accuracy."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from statistics import pstdev
from typing import TYPE_CHECKING

from paper.experiment import Experiment
from paper.image_nets import image_run, image_set
from paper.mnist_nets import TRAINING, MnistRun, MnistTraining
from paper.plan import Plan, Results, Size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LENGTHS = (1.0, 2.0, 5.0, 50.0, 100.0)
DRAWN = (1.0, 5.0)


SETTINGS: dict[Size, MnistTraining] = {
    "tiny": TRAINING["tiny"],
    "quick": TRAINING["quick"],
    "full": replace(TRAINING["full"], seeds=3),
}


def run(plan: Plan) -> Results:
    settings, images = plan.settings(SETTINGS), image_set(plan)
    curves = {f"{a:g}": image_run(plan, "radial", scale=a) for a in DRAWN}
    mnist: Results = {}
    for a in LENGTHS:
        nets = [MnistRun(plan, settings, "radial", seed, scale=a) for seed in range(settings.seeds)]
        mnist[f"{a:g}"] = {
            "accuracy": [net.accuracy() for net in nets],
            "noise": [noise(net.losses()) for net in nets],
        }
    return {
        "data": images.title,
        "network": images.network,
        "curves": {a: result["steps"] for a, result in curves.items()},
        "image_accuracy": {a: {"top_1": result["top_1"], "top_5": result["top_5"]} for a, result in curves.items()},
        "image_noise": {a: noise(result["steps"]["loss"]) for a, result in curves.items()},
        "mnist": mnist,
    }


def noise(losses: Sequence[float]) -> float:
    """Return the standard deviation of the loss around its moving average, in the second half of the steps."""
    smooth = moving_average(losses, window_of(losses))
    return pstdev(loss - middle for loss, middle in list(zip(losses, smooth, strict=True))[len(losses) // 2 :])


def window_of(values: Sequence[float]) -> int:
    """Return a twentieth of the steps, but at least two."""
    return max(2, len(values) // 20)


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """Return the mean of each value and those before it, ``window`` at most.

    >>> moving_average([1.0, 3.0, 5.0, 7.0], 2)
    [1.0, 2.0, 4.0, 6.0]
    """
    sums = [0.0, *accumulate(values)]
    return [(sums[end] - sums[max(0, end - window)]) / min(end, window) for end in range(1, len(values) + 1)]


def draw(numbers: Results) -> "Figure":
    from matplotlib.figure import Figure

    from openradial.evaluation.plots import colors

    figure = Figure(figsize=(10.5, 6), layout="constrained")
    figure.suptitle(f"Above: {numbers['data']}; {numbers['network']}", fontsize=9)
    panels = figure.subplots(2, 3)
    for ax, (a, steps) in zip(panels[0], numbers["curves"].items(), strict=False):
        _draw_curve(ax, steps["loss"], colors.BLUE, "loss")
        noisy = numbers["image_noise"][a]
        ax.set(title=f"a = {a}: noise {noisy:.3f} ({100 * noisy / float(a):.1f} % of a)", ylabel="loss", ylim=(0, None))
    steps = numbers["curves"][f"{DRAWN[0]:g}"]
    for name, label, color in (("top_1", "top-1", colors.BLUE), ("top_5", "top-5", colors.ORANGE)):
        _draw_curve(panels[0, 2], [100 * value for value in steps[name]], color, label)
    panels[0, 2].set(title=f"a = {DRAWN[0]:g}: accuracy of each batch", ylabel="accuracy (%)", ylim=(0, 101))
    panels[0, 2].legend(loc="lower right")
    _draw_lengths(panels[1, 0], numbers["mnist"], "accuracy", "MNIST: test accuracy (%)", 100, colors.GREEN)
    _draw_lengths(panels[1, 1], numbers["mnist"], "noise", "MNIST: noise of the loss", 1, colors.GREEN)
    panels[1, 1].set_yscale("log")
    relative = {a: {"noise": [100 * n / float(a) for n in results["noise"]]} for a, results in numbers["mnist"].items()}
    _draw_lengths(panels[1, 2], relative, "noise", "MNIST: noise of the loss (% of a)", 1, colors.GREEN)
    return figure


def _draw_curve(ax: "Axes", values: Sequence[float], color: str, label: str) -> None:
    steps = range(1, len(values) + 1)
    ax.plot(steps, values, color=color, alpha=0.3, linewidth=0.8)
    ax.plot(
        steps, moving_average(values, window_of(values)), color=color, linewidth=1.8, label=f"{label}, moving average"
    )
    ax.set_xlabel("step")


def _draw_lengths(ax: "Axes", results: Results, name: str, title: str, unit: float, color: str) -> None:
    """Draw a dot per seed and the mean with its error, for each a."""
    from paper.claims import error_of

    for index, each in enumerate(results.values()):
        values = [unit * value for value in each[name]]
        ax.scatter([index - 0.1] * len(values), values, s=14, color=color, alpha=0.6, linewidths=0)
        ax.errorbar(index + 0.1, sum(values) / len(values), yerr=error_of(values), fmt="o", color=color, capsize=3)
    ax.set_xticks(range(len(results)), list(results))
    ax.set(xlabel="a", title=title)


EXPERIMENT = Experiment(
    id="sup4",
    title="Training curves, and the length a of the prototypes",
    caption=(
        "Above, the loss of every step for two lengths of the prototypes, and the accuracy of every batch, each with "
        "its moving average. Below, MNIST for five lengths: the noise of the loss, its deviation from the moving "
        "average, grows with a because the loss is measured in units of a; the last panel has that factor taken out."
    ),
    settings=SETTINGS,
    run=run,
    draw=draw,
    claims=(8,),
    minutes=25,
)
