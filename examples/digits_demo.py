"""How confident is a network about digits that it was not trained on?

A small network is trained on the digits 0 to 5, once with softmax and once with the radial layer: same initial weights,
same batches, same number of steps. It then predicts known test digits and the novel digits 6 to 9. Last, a rejector is
calibrated on known digits alone for a chosen false-reject rate, and predicts "unknown".
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import openradial
from openradial import metrics
from openradial.conformal import Rejector
from openradial.data import Batches, Examples
from openradial.evaluation.plots import KNOWN_COLOR, NOVEL_COLOR
from openradial.heads import Head, RadialHead, SoftmaxHead
from openradial.training import Objective, Settings, fit

Report = Callable[[dict[str, Any]], None]

KNOWN = 6  # the digits 0 to 5, chosen before any run; 6 to 9 are novel
CONFIDENT = 0.9
FALSE_REJECT_RATE = 0.05  # of known digits
RATE = f"{100 * FALSE_REJECT_RATE:g} %"

# Fixed before training and without novel digits: the smallest beta for which the six probabilities sum to at most 1.01
# for all outputs of the network. Accuracy and AUROC do not depend on it.
BETA = openradial.functional.safe_beta(KNOWN)

ROWS = {
    "accuracy": "accuracy on known digits (%)",
    "known": "mean winning probability, known digits (%)",
    "novel": "mean winning probability, novel digits (%)",
    "known_confident": f"known digits predicted with p > {CONFIDENT} (%)",
    "novel_confident": f"novel digits predicted with p > {CONFIDENT} (%)",
    "novel_at_95": "novel digits accepted if 95 % of the known are (%)",
    "auroc": "AUROC, known versus novel (%)",
    "known_rejected": f"known digits rejected, {RATE} requested (%)",
    "novel_rejected": "novel digits rejected at that rate (%)",
}


@dataclass(frozen=True)
class Split:
    train_x: Tensor
    train_y: Tensor
    calibration_x: Tensor
    test_x: Tensor
    test_y: Tensor
    novel_x: Tensor
    novel_y: Tensor


@dataclass(frozen=True)
class Outcome:
    """The most probable class of each input, its probability, and the unknown score."""

    classes: Tensor
    probs: Tensor
    scores: Tensor


@dataclass(frozen=True)
class Outcomes:
    """Outcomes for known digits held out for calibration, for known test digits and for novel ones."""

    calibration: Outcome
    known: Outcome
    novel: Outcome


def split_digits(seed: int) -> Split:
    digits = load_digits()
    x = torch.tensor(digits.data / 16, dtype=torch.float32)
    y = torch.tensor(digits.target)
    known = y < KNOWN
    train_x, rest_x, train_y, rest_y = split_off(x[known], y[known], 0.4, seed)
    calibration_x, test_x, _, test_y = split_off(rest_x, rest_y, 0.5, seed)
    return Split(train_x, train_y, calibration_x, test_x, test_y, x[~known], y[~known])


def split_off(x: Tensor, y: Tensor, share: float, seed: int) -> tuple[Tensor, ...]:
    return tuple(train_test_split(x, y, test_size=share, random_state=seed, stratify=y))


def make_network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, KNOWN))


def train(network: nn.Module, head: Head, split: Split, *, epochs: int, seed: int, report: Report) -> None:
    """Train in place; ``report`` is called after each epoch."""
    known = Examples(split.train_x, split.train_y, tuple(map(str, range(KNOWN))))
    batches = Batches(known, 64, shuffle=True, seed=seed)
    settings = Settings(epochs=epochs, batch_size=64, learning_rate=1e-3, seed=seed)
    fit(network, Objective(head.loss), batches, settings=settings, report=report, show_progress=False)


@torch.no_grad()
def predict(network: nn.Module, head: Head, x: Tensor) -> Outcome:
    o = network(x)
    probs, classes = head.probs(o).max(-1)
    return Outcome(classes, probs, head.unknown_score(o))


def measure(outcomes: Outcomes, test_y: Tensor) -> dict[str, float]:
    known, novel = outcomes.known, outcomes.novel
    rejector = Rejector(FALSE_REJECT_RATE).fit(outcomes.calibration.scores)
    return {
        "accuracy": share(known.classes == test_y),
        "known": known.probs.mean().item(),
        "novel": novel.probs.mean().item(),
        "known_confident": share(known.probs > CONFIDENT),
        "novel_confident": share(novel.probs > CONFIDENT),
        "novel_at_95": metrics.fpr_at_tpr(known.scores, novel.scores, 0.95),
        "auroc": metrics.auroc(known.scores, novel.scores),
        "known_rejected": share(rejector.decide(known.scores, known.classes) == -1),
        "novel_rejected": share(rejector.decide(novel.scores, novel.classes) == -1),
    }


def share(true: Tensor) -> float:
    return true.double().mean().item()


def run(seeds: int, epochs: int, console: Console) -> tuple[dict[str, list[dict[str, float]]], dict[str, Outcomes]]:
    """Return the measures of every run, and the outcomes of the two networks of the first seed."""
    methods: dict[str, Head] = {"softmax": SoftmaxHead(KNOWN), "radial": RadialHead(KNOWN, beta=BETA)}
    measures: dict[str, list[dict[str, float]]] = {method: [] for method in methods}
    shown: dict[str, Outcomes] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("training", total=seeds * len(methods) * epochs)
        for seed in range(seeds):
            split = split_digits(seed)
            for method, head in methods.items():
                progress.update(task, description=f"training {method}, seed {seed}")
                network = make_network(seed)
                train(network, head, split, epochs=epochs, seed=seed, report=lambda record: progress.advance(task))
                inputs = (split.calibration_x, split.test_x, split.novel_x)
                outcomes = Outcomes(*(predict(network, head, x) for x in inputs))
                measures[method].append(measure(outcomes, split.test_y))
                shown.setdefault(method, outcomes)
    return measures, shown


def tabulate(measures: dict[str, list[dict[str, float]]]) -> Table:
    runs = len(measures["softmax"])
    table = Table(
        title="Digits 0-5 known, 6-9 novel", caption=f"mean ± 2 s over {runs} seeds, radial with beta = {BETA:.2f}"
    )
    table.add_column()
    for method in measures:
        table.add_column(method, justify="right")
    for key, title in ROWS.items():
        table.add_row(title, *(_mean_and_spread([run[key] for run in rows]) for rows in measures.values()))
    return table


def _mean_and_spread(values: list[float]) -> str:
    percent = 100 * np.array(values)
    if len(values) == 1:
        return f"{percent[0]:.1f}"
    return f"{percent.mean():.1f} ± {2 * percent.std(ddof=1):.1f}"


def tabulate_decisions(outcomes: dict[str, Outcomes], split: Split) -> Table:
    table = Table(
        title="Decisions about the novel digits of the picture", caption=f"at most {RATE} of known digits rejected"
    )
    for name in ("digit", *outcomes):
        table.add_column(name, justify="right")
    decisions = [decide(each) for each in outcomes.values()]
    for i in pick(split):
        predicted = ("unknown" if labels[i] == -1 else str(labels[i].item()) for labels in decisions)
        table.add_row(str(split.novel_y[i].item()), *predicted)
    return table


def decide(outcomes: Outcomes) -> Tensor:
    """Return the class of each novel digit, or -1."""
    rejector = Rejector(FALSE_REJECT_RATE).fit(outcomes.calibration.scores)
    labels: Tensor = rejector.decide(outcomes.novel.scores, outcomes.novel.classes)
    return labels


def pick(split: Split) -> list[int]:
    """Return two novel examples of each digit: the first ones in the data set, not the ones that look best."""
    return [i for digit in range(KNOWN, 10) for i in (split.novel_y == digit).nonzero()[:2, 0].tolist()]


def draw_winning_probabilities(known: Tensor, novel: Tensor, ax: Axes) -> None:
    """Draw histograms of the winning probability of known and novel examples, in % of each group."""
    for probs, color in ((known, KNOWN_COLOR), (novel, NOVEL_COLOR)):
        share = np.full(len(probs), 100 / len(probs))
        style: dict[str, Any] = {"facecolor": to_rgba(color, 0.5), "edgecolor": color, "linewidth": 1.5}
        ax.hist(probs.numpy(), 20, range=(0, 1), weights=share, histtype="stepfilled", **style)
    ax.set(xlim=(0, 1), xlabel="winning probability", ylabel="share of examples (%)")


def draw_answers(image: Tensor, answers: dict[str, tuple[str, float]], names: bool, ax: Axes) -> None:
    """Draw an image, and below it the prediction of each method with its probability."""
    below: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "top"}
    ax.imshow(image.numpy(), cmap="gray_r")
    ax.set(xticks=[], yticks=[])
    for line, (method, (label, prob)) in enumerate(answers.items()):
        points = -4 - 12 * line
        ax.annotate(f"{label} ({100 * prob:.0f} %)", (0.5, 0), (0, points), ha="center", **below)
        if names:
            ax.annotate(method, (0, 0), (-6, points), ha="right", **below)


def draw(outcomes: dict[str, Outcomes], split: Split) -> Figure:
    """Draw two histograms, and below them the first two examples of each novel digit with both predictions."""
    figure = plt.figure(figsize=(7.2, 4.8), layout="constrained")
    top, bottom = figure.subfigures(2, 1, squeeze=False, height_ratios=(2.2, 1), hspace=0.04).flat
    panels = top.subplots(1, 2, sharey=True)
    for ax, (method, each) in zip(panels, outcomes.items(), strict=True):
        draw_winning_probabilities(each.known.probs, each.novel.probs, ax)
        ax.set_title(method, fontweight="bold")
        ax.spines[["top", "right"]].set_visible(False)
    panels[0].legend(["known digits (0 to 5)", "novel digits (6 to 9)"], frameon=False, loc="upper center")
    panels[1].set_ylabel("")

    picks = pick(split)
    bottom.suptitle("Novel digits, and the known digit that each network predicts (probability)", fontsize="medium")
    for column, (ax, i) in enumerate(zip(bottom.subplots(1, len(picks)), picks, strict=True)):
        predicted = {name: (str(a.novel.classes[i].item()), a.novel.probs[i].item()) for name, a in outcomes.items()}
        draw_answers(split.novel_x[i].reshape(8, 8), predicted, column == 0, ax)
        ax.set_title(str(split.novel_y[i].item()), fontsize="medium", pad=3)
    return figure


def main(argv: list[str] | None = None) -> dict[str, list[dict[str, float]]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder of the picture (default: demo)")
    parser.add_argument("--seeds", type=int, default=5, help="how often to train (default: 5)")
    parser.add_argument("--epochs", type=int, default=50, help="epochs per training (default: 50)")
    options = parser.parse_args(argv)
    if options.seeds < 1 or options.epochs < 1:
        parser.error("--seeds and --epochs must be at least 1")

    console = Console()
    measures, outcomes = run(options.seeds, options.epochs, console)
    console.print(tabulate(measures))
    console.print(tabulate_decisions(outcomes, split_digits(0)))
    options.out.mkdir(parents=True, exist_ok=True)
    picture = options.out / "openradial-demo.png"
    with plt.rc_context({"font.size": 9}):
        figure = draw(outcomes, split_digits(0))
        figure.savefig(picture, dpi=300, bbox_inches="tight", pad_inches=0.1)
    plt.close(figure)
    console.print(f"The picture is {picture}", soft_wrap=True, highlight=False)
    return measures


if __name__ == "__main__":
    main()
