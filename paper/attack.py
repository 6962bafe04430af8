"""Claim 7 under attacks that know the head: the worst of several losses, and what a rejector lets pass."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from openradial.attacks import fgsm, pgd
from openradial.conformal import Rejector
from openradial.data import Examples
from openradial.heads import Head
from paper.attacks import Attack, HeadLoss, accuracy_under_attack, losses_for, outcomes, worst
from paper.experiment import Experiment
from paper.fig8 import draw_band, single_step
from paper.mnist_nets import TRAINING, MnistRun, MnistTraining, other_images, some_images
from paper.plan import Plan, Results, Size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EPSILONS = (0.0, 0.1, 0.2, 0.3)
HEADS = ("softmax", "radial")
FALSE_REJECT_RATE = 0.05
AWARE = 4  # every fourth image is attacked again by an attacker who knows the rejector


@dataclass(frozen=True, kw_only=True)
class AttackSettings(MnistTraining):
    images: int  # that are attacked
    calibration: int  # other test images, for the rejector
    steps: int
    restarts: int


SETTINGS: dict[Size, AttackSettings] = {
    "tiny": AttackSettings(**asdict(TRAINING["tiny"]), images=10, calibration=50, steps=1, restarts=1),
    "quick": AttackSettings(
        **asdict(TRAINING["quick"]) | {"seeds": 3}, images=200, calibration=1_000, steps=10, restarts=1
    ),
    "full": AttackSettings(
        **asdict(TRAINING["full"]) | {"seeds": 3}, images=2_000, calibration=5_000, steps=20, restarts=2
    ),
}


def run(plan: Plan) -> Results:
    settings = plan.settings(SETTINGS)
    parts = {
        head: [
            plan.cached(f"attack-{head}-{seed}", partial(attacked, plan, head, seed)) for seed in range(settings.seeds)
        ]
        for head in HEADS
    }
    return {"epsilons": list(EPSILONS), "false_reject_rate": FALSE_REJECT_RATE, "heads": parts}


def attacked(plan: Plan, head: str, seed: int) -> Results:
    """Attack one network by FGSM through its training loss and by PGD through every loss, and add a rejector."""
    settings = plan.settings(SETTINGS)
    plan.note(f"attacking {head}, seed {seed}, knowing the head")
    mnist_run, images = MnistRun(plan, settings, head, seed), some_images(settings.images)
    net = mnist_run.net()

    def strong(net: nn.Module, x: Tensor, y: Tensor, epsilon: float, loss: HeadLoss) -> Tensor:
        options: dict[str, Any] = {"steps": settings.steps, "restarts": settings.restarts}
        return pgd(net, x, y, epsilon, loss=loss, fooled=loss.fooled, **options)

    measure = partial(accuracy_under_attack, net, mnist_run.head, images.inputs, images.labels, EPSILONS)
    return {
        "fgsm": measure(single_step, ["target"])["target"],
        "pgd": measure(strong),
        "outcomes": with_rejector(net, mnist_run.head, images, settings, strong),
    }


def with_rejector(
    net: nn.Module, head: Head, images: Examples, settings: AttackSettings, strong: Attack
) -> dict[str, list[dict[str, float]]]:
    """Return the outcomes of FGSM and of an attacker who knows the rejector, for each epsilon."""
    others = other_images(settings.images).inputs[: settings.calibration]
    with torch.no_grad():
        rejector = Rejector(FALSE_REJECT_RATE).fit(head.unknown_score(net(others)))
    x, y = images.inputs[::AWARE], images.labels[::AWARE]
    target_loss, all_losses = HeadLoss("target", head), losses_for(head, rejector)
    ways: dict[str, Any] = {
        "fgsm": lambda epsilon: fgsm(net, x, y, epsilon, loss=target_loss),
        "aware": lambda epsilon: worst(net, x, y, epsilon, all_losses, strong),
    }
    return {
        way: [asdict(outcomes(net, head, rejector, move(epsilon), y)) for epsilon in EPSILONS]
        for way, move in ways.items()
    }


def draw(numbers: Results) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.3), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.35), squeeze=False)[0]
    curves = left.subplots()
    _draw_curves(curves, numbers)
    left.legend(
        *curves.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=7.5, handlelength=3.5
    )
    panels = right.subplots(1, len(HEADS), sharey=True)
    for ax, head in zip(panels, HEADS, strict=True):
        _draw_outcomes(ax, numbers["epsilons"], [seed["outcomes"]["aware"] for seed in numbers["heads"][head]])
        ax.set_title(f"{head}, attacker knows the rejector")
    panels[0].set_ylabel("share of attacked images (%)")
    handles, labels = panels[0].get_legend_handles_labels()
    right.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _draw_curves(ax: "Axes", numbers: Results) -> None:
    from openradial.evaluation.plots import colors

    for head, color, mark in (("softmax", colors.SOFTMAX, "s"), ("radial", colors.RADIAL, "o")):
        seeds = numbers["heads"][head]
        ways = {
            "FGSM, its own loss": ([seed["fgsm"] for seed in seeds], ":"),
            "PGD, its own loss": ([seed["pgd"][_own(head)] for seed in seeds], "--"),
            "PGD, worst of all losses": ([seed["pgd"]["worst"] for seed in seeds], "-"),
        }
        for way, (curves, linestyle) in ways.items():
            draw_band(ax, numbers["epsilons"], curves, color, mark, label=f"{head}: {way}", linestyle=linestyle)
    ax.set(xlabel="$\\epsilon$ (largest change of a pixel, of 0 to 1)", ylabel="test accuracy (%)", ylim=(0, 101))


def _own(head: str) -> str:
    return "cross_entropy" if head == "softmax" else "target"


def _draw_outcomes(ax: "Axes", epsilons: Sequence[float], seeds: Sequence[Sequence[dict[str, float]]]) -> None:
    from openradial.evaluation.plots import colors

    looks = {
        "accepted_right": ("accepted and right", colors.GREEN, ""),
        "rejected": ("rejected", "0.85", ""),
        "accepted_wrong": ("accepted and wrong", colors.VERMILION, "///"),
    }
    below = [0.0] * len(epsilons)
    for name, (label, color, hatch) in looks.items():
        shares = [100 * sum(seed[at][name] for seed in seeds) / len(seeds) for at in range(len(epsilons))]
        bars = ax.bar(
            range(len(epsilons)), shares, bottom=below, color=color, hatch=hatch, edgecolor="white", label=label
        )
        ax.bar_label(bars, [f"{share:.0f}" if share >= 6 else "" for share in shares], label_type="center", fontsize=8)
        below = [low + share for low, share in zip(below, shares, strict=True)]
    ax.set_xticks(range(len(epsilons)), [f"{epsilon:g}" for epsilon in epsilons])
    ax.set(xlabel="$\\epsilon$", ylim=(0, 100))


EXPERIMENT = Experiment(
    id="attack",
    title="MNIST: attacks that know the head",
    caption=(
        "Left: FGSM through a network's own loss flatters it; the solid curves, the worst of PGD through all losses, "
        "are the ones to quote. Right: what a rejector, set to refuse 5 % of clean images, does with images moved by "
        "an attacker who knows of it; red is what a safety engineer fears, a wrong class that is accepted."
    ),
    settings=SETTINGS,
    run=run,
    draw=draw,
    claims=(7,),
    minutes=22,
)
