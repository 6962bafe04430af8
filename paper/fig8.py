"""Figure 8: accuracy on MNIST under FGSM of growing epsilon."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor, nn

from openradial.attacks import fgsm
from paper.attacks import HeadLoss, accuracy_under_attack
from paper.experiment import Experiment
from paper.mnist_nets import TRAINING, VARIANTS, MnistRun, MnistTraining, some_images
from paper.plan import Plan, Results, Size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EPSILONS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)


@dataclass(frozen=True, kw_only=True)
class Fig8(MnistTraining):
    images: int  # that are attacked


SETTINGS: dict[Size, Fig8] = {
    "tiny": Fig8(**asdict(TRAINING["tiny"]), images=50),
    "quick": Fig8(**asdict(TRAINING["quick"]) | {"seeds": 3}, images=1_000),
    "full": Fig8(**asdict(TRAINING["full"]), images=10_000),
}


def run(plan: Plan) -> Results:
    settings = plan.settings(SETTINGS)
    curves = {
        variant: [
            plan.cached(f"fgsm-{variant.replace(' + ', '-')}-{seed}", partial(curve, plan, variant, seed))
            for seed in range(settings.seeds)
        ]
        for variant in VARIANTS
    }
    return {"epsilons": list(EPSILONS), "accuracy": curves}


def curve(plan: Plan, variant: str, seed: int) -> list[float]:
    """Return the accuracy of one network for each epsilon, attacked through its training loss as in the paper."""
    settings = plan.settings(SETTINGS)
    plan.note(f"attacking {variant}, seed {seed}, by FGSM")
    mnist_run, images = MnistRun(plan, settings, variant, seed), some_images(settings.images)
    inputs = mnist_run.net(), mnist_run.head, images.inputs, images.labels
    return accuracy_under_attack(*inputs, EPSILONS, single_step, ["target"])["target"]


def single_step(net: nn.Module, x: Tensor, y: Tensor, epsilon: float, loss: HeadLoss) -> Tensor:
    """Attack by FGSM."""
    return fgsm(net, x, y, epsilon, loss=loss)


def draw(numbers: Results) -> "Figure":
    from matplotlib.figure import Figure

    from openradial.evaluation.plots import colors

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    ax = figure.subplots()
    looks = {"softmax": (colors.SOFTMAX, "s"), "radial": (colors.RADIAL, "o"), "radial + dropout": (colors.GREEN, "^")}
    for variant, curves in numbers["accuracy"].items():
        draw_band(ax, numbers["epsilons"], curves, *looks[variant], label=variant)
    ax.set(xlabel="$\\epsilon$ (largest change of a pixel, of its range from 0 to 1)", ylim=(0, 101))
    ax.set_ylabel("test accuracy under FGSM (%)")
    ax.legend()
    return figure


def draw_band(
    ax: "Axes",
    epsilons: Sequence[float],
    curves: Sequence[Sequence[float]],
    color: str,
    mark: str,
    *,
    label: str,
    linestyle: str = "-",
) -> None:
    """Draw the mean over seeds; a solid line has a band of the error."""
    from paper.claims import error_of

    columns = [[100 * value for value in column] for column in zip(*curves, strict=True)]
    means, errors = [sum(column) / len(column) for column in columns], [error_of(column) or 0.0 for column in columns]
    ax.plot(epsilons, means, color=color, marker=mark, markersize=5, label=label, linestyle=linestyle)
    if linestyle == "-":
        low, high = ([mean + sign * error for mean, error in zip(means, errors, strict=True)] for sign in (-1, 1))
        ax.fill_between(epsilons, low, high, color=color, alpha=0.2, linewidth=0)


EXPERIMENT = Experiment(
    id="fig8",
    title="MNIST: accuracy under FGSM",
    caption=(
        "Each network is attacked through the loss that it was trained with, as in the paper; bands are twice the "
        "standard deviation over seeds. The radial network's curve falls more slowly; how much of that is left under "
        "attacks that know the head is the next question."
    ),
    settings=SETTINGS,
    run=run,
    draw=draw,
    claims=(7,),
    minutes=10,
)
