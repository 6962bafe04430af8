"""How sure is a network of digits it has never seen?

One small network learns the digits 0 to 5, once with softmax and once with the radial layer: same initial weights,
same batches, same number of steps. Then it is asked about test digits of the kinds it knows, and about 6 to 9. Last, a
rejector learns from known digits alone when to answer "unknown", for a rate of false rejections that we choose.
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
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import openradial
from openradial import metrics, plots
from openradial.conformal import Rejector
from openradial.data import Batches, Examples
from openradial.heads import Head, RadialHead, SoftmaxHead
from openradial.training import Objective, Settings, fit

Report = Callable[[dict[str, Any]], None]

KNOWN = 6  # the digits 0 to 5, chosen before any run; 6 to 9 are novel
SURE = 0.9
FALSE_REJECT_RATE = 0.05  # of known digits, asked for
RATE = f"{100 * FALSE_REJECT_RATE:g} %"

# Fixed before training and without a look at novel digits: the smallest beta for which the six probabilities
# add up to at most 1.01 wherever the network puts an example. Accuracy and AUROC do not depend on it.
BETA = openradial.functional.safe_beta(KNOWN)

ROWS = {
    "accuracy": "accuracy on known digits (%)",
    "known": "mean winning probability, known digits (%)",
    "novel": "mean winning probability, novel digits (%)",
    "known_sure": f"known digits called with p > {SURE} (%)",
    "novel_sure": f"novel digits called with p > {SURE} (%)",
    "novel_at_95": "novel digits accepted if 95 % of the known are (%)",
    "auroc": "AUROC, known against novel (%)",
    "known_rejected": f"known digits rejected, {RATE} asked for (%)",
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
class Answer:
    """The winning class and its probability, and how unknown each input is."""

    classes: Tensor
    probs: Tensor
    scores: Tensor


@dataclass(frozen=True)
class Answers:
    """The answers to known digits kept for calibration, to known test digits and to novel ones."""

    calibration: Answer
    known: Answer
    novel: Answer


def split_digits(seed: int) -> Split:
    digits = load_digits()
    x = torch.tensor(digits.data / 16, dtype=torch.float32)
    y = torch.tensor(digits.target)
    known = y < KNOWN
    train_x, held_x, train_y, held_y = apart(x[known], y[known], 0.4, seed)
    calibration_x, test_x, _, test_y = apart(held_x, held_y, 0.5, seed)
    return Split(train_x, train_y, calibration_x, test_x, test_y, x[~known], y[~known])


def apart(x: Tensor, y: Tensor, share: float, seed: int) -> tuple[Tensor, ...]:
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
def answer(network: nn.Module, head: Head, x: Tensor) -> Answer:
    o = network(x)
    probs, classes = head.probs(o).max(-1)
    return Answer(classes, probs, head.unknown_score(o))


def measure(answers: Answers, test_y: Tensor) -> dict[str, float]:
    known, novel = answers.known, answers.novel
    rejector = Rejector(FALSE_REJECT_RATE).fit(answers.calibration.scores)
    return {
        "accuracy": share(known.classes == test_y),
        "known": known.probs.mean().item(),
        "novel": novel.probs.mean().item(),
        "known_sure": share(known.probs > SURE),
        "novel_sure": share(novel.probs > SURE),
        "novel_at_95": metrics.fpr_at_tpr(known.scores, novel.scores, 0.95),
        "auroc": metrics.auroc(known.scores, novel.scores),
        "known_rejected": share(rejector.decide(known.scores, known.classes) == -1),
        "novel_rejected": share(rejector.decide(novel.scores, novel.classes) == -1),
    }


def share(true: Tensor) -> float:
    return true.double().mean().item()


def run(seeds: int, epochs: int, console: Console) -> tuple[dict[str, list[dict[str, float]]], dict[str, Answers]]:
    """The measures of every run, and the answers of the first seed's two networks."""
    methods: dict[str, Head] = {"softmax": SoftmaxHead(KNOWN), "radial": RadialHead(KNOWN, beta=BETA)}
    measures: dict[str, list[dict[str, float]]] = {method: [] for method in methods}
    shown: dict[str, Answers] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("training", total=seeds * len(methods) * epochs)
        for seed in range(seeds):
            split = split_digits(seed)
            for method, head in methods.items():
                progress.update(task, description=f"training {method}, seed {seed}")
                network = make_network(seed)
                train(network, head, split, epochs=epochs, seed=seed, report=lambda record: progress.advance(task))
                asked = (split.calibration_x, split.test_x, split.novel_x)
                answers = Answers(*(answer(network, head, x) for x in asked))
                measures[method].append(measure(answers, split.test_y))
                shown.setdefault(method, answers)
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


def tabulate_decisions(answers: dict[str, Answers], split: Split) -> Table:
    table = Table(
        title="Decided about the novel digits of the picture", caption=f"at most {RATE} of known digits rejected"
    )
    for name in ("digit", *answers):
        table.add_column(name, justify="right")
    decided = [decide(answered) for answered in answers.values()]
    for i in pick(split):
        said = ("unknown" if labels[i] == -1 else str(labels[i].item()) for labels in decided)
        table.add_row(str(split.novel_y[i].item()), *said)
    return table


def decide(answers: Answers) -> Tensor:
    """The class of each novel digit, or -1."""
    rejector = Rejector(FALSE_REJECT_RATE).fit(answers.calibration.scores)
    labels: Tensor = rejector.decide(answers.novel.scores, answers.novel.classes)
    return labels


def pick(split: Split) -> list[int]:
    """Two novel examples of each digit: the first ones in the data set, not the ones that look best."""
    return [i for digit in range(KNOWN, 10) for i in (split.novel_y == digit).nonzero()[:2, 0].tolist()]


def draw(answers: dict[str, Answers], split: Split) -> Figure:
    """Two histograms, and below them the first two examples of each novel digit with both answers."""
    figure = plt.figure(figsize=(7.2, 4.8), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(2.2, 1), hspace=0.04)
    panels = top.subplots(1, 2, sharey=True)
    for ax, (method, answered) in zip(panels, answers.items(), strict=True):
        plots.plot_winning_probabilities(answered.known.probs, answered.novel.probs, ax=ax)
        ax.set_title(method, fontweight="bold")
        ax.spines[["top", "right"]].set_visible(False)
    panels[0].legend(["known digits (0 to 5)", "novel digits (6 to 9)"], frameon=False, loc="upper center")
    panels[1].legend().remove()
    panels[1].set_ylabel("")

    picks = pick(split)
    bottom.suptitle("Novel digits, and which known digit each network takes them for (how surely)", fontsize="medium")
    for column, (ax, i) in enumerate(zip(bottom.subplots(1, len(picks)), picks, strict=True)):
        said = {name: (str(a.novel.classes[i].item()), a.novel.probs[i].item()) for name, a in answers.items()}
        plots.plot_answers(split.novel_x[i].reshape(8, 8), said, names=column == 0, ax=ax)
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
    measures, answers = run(options.seeds, options.epochs, console)
    console.print(tabulate(measures))
    console.print(tabulate_decisions(answers, split_digits(0)))
    options.out.mkdir(parents=True, exist_ok=True)
    picture = options.out / "openradial-demo.png"
    with plt.rc_context({"font.size": 9}):
        figure = draw(answers, split_digits(0))
        figure.savefig(picture, dpi=300, bbox_inches="tight", pad_inches=0.1)
    plt.close(figure)
    console.print(f"The picture is {picture}", soft_wrap=True, highlight=False)
    return measures


if __name__ == "__main__":
    main()
