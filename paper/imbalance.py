"""Claim 9, continued: why the paper's loss fails on topics of unequal size, and what helps.

Minimising the distance puts the output at the geometric median of the prototypes, weighted by P(y | x): on the
prototype of a class with more than half of the weight. Minimising the squared distance puts it at their mean, so that
every class keeps its share.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from openradial import RadialLoss
from openradial.data import train_test_split
from openradial.metrics import accuracy, open_f1
from paper.claims import error_of
from paper.experiment import Experiment
from paper.plan import Plan, Results, Size
from paper.sequence_tasks import TASKS, Task
from paper.trained_nets import LossFunction, outputs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SQUARED: Any = {"metric": "squared_euclidean"}
LOSSES: dict[str, Callable[[int, Tensor | None], LossFunction]] = {
    "softmax": lambda k, weight: nn.CrossEntropyLoss(weight),
    "distance": lambda k, weight: RadialLoss(weight=weight),
    "squared": lambda k, weight: RadialLoss(weight=weight, **SQUARED),
    "rescaled": lambda k, weight: RadialLoss(weight=weight, target_weight=k**0.5, **SQUARED),
}
POWERS = {"none": 0.0, "sqrt": -0.5, "balanced": -1.0}  # class weights are this power of the number of examples
VALIDATION = 0.2  # share of the training documents that loss and weights are chosen on
BALANCED, FULL = "balanced subset", "all documents"
FINAL = ("softmax", "distance", "squared")  # trained on all documents; the rescaled square was left out to save time
SCORES = ("accuracy", "macro_f1")


@dataclass(frozen=True)
class Imbalance:
    seeds: int  # of the comparison of losses and weights
    final_seeds: int  # of the networks trained on all documents
    subset_seeds: int  # of those trained on the balanced subset


SETTINGS: dict[Size, Imbalance] = {"tiny": Imbalance(1, 1, 1), "quick": Imbalance(1, 1, 1), "full": Imbalance(3, 2, 2)}


def run(plan: Plan) -> Results:
    task = text_task(plan.size)
    train, test = task.data("train"), task.data("test")
    settings = plan.settings(SETTINGS)

    def rows(part: str, ways: list[tuple[str, str]]) -> list[Results]:
        seeds = {BALANCED: settings.subset_seeds, FULL: settings.final_seeds}.get(part, settings.seeds)
        cells = {way: [cell(plan, task, part, *way, seed) for seed in range(seeds)] for way in ways}
        return [
            {"loss": loss, "weights": weights} | {name: [each[name] for each in scores] for name in scores[0]}
            for (loss, weights), scores in cells.items()
        ]

    compared = rows("validation", [(loss, weights) for loss in LOSSES for weights in POWERS])
    return {
        "title": task.title,
        "classes": list(train.classes),
        "training_documents": torch.bincount(train.labels).tolist(),
        "test_documents": torch.bincount(test.labels).tolist(),
        "held_out": VALIDATION,
        "compared": compared,
        "balanced": rows(BALANCED, [(loss, "none") for loss in LOSSES]),
        "final": rows(FULL, [(loss, weights) for loss, weights in select_weights(compared).items() if loss in FINAL]),
    }


def text_task(size: Size) -> Task:
    """Return the texts of claim 9 with its network and training."""
    task = next(task for task in TASKS[size] if task.architecture == "convolutional")
    return replace(task, steps=task.steps // 2) if size == "quick" else task  # there are 19 networks


def cell(plan: Plan, task: Task, part: str, loss: str, weights: str, seed: int) -> Results:
    """Return the results of one network, by the name of a part of the training documents."""
    name = f"imbalance-{task.name}-{part}-{loss}-{weights}-{seed}".replace(" ", "-")
    scores: Results = plan.cached(name, partial(measured, plan, task, part, loss, weights, seed))
    return scores


def measured(plan: Plan, task: Task, part: str, loss: str, weights: str, seed: int) -> Results:
    """Train on a part of the training documents and test; with part "validation", score the held-out part too."""
    train, test = task.data("train"), task.data("test")
    held_out = None
    if part == "validation":
        train, held_out = train_test_split(train, VALIDATION, seed)
    elif part == BALANCED:
        train = train.select(balanced_subset(train.labels, seed))
    k = len(train.classes)
    function = LOSSES[loss](k, class_weights(train.labels, k, POWERS[weights]))
    net = task.fit(plan, f"{part}-{loss}-{weights}".replace(" ", "-"), function, train, seed).net
    scores = results(test.labels, outputs(net, test.inputs).argmax(-1), k)
    if held_out is not None:
        validation = results(held_out.labels, outputs(net, held_out.inputs).argmax(-1), k)
        scores |= {f"validation_{name}": validation[name] for name in SCORES}
    return scores


def results(labels: Tensor, predicted: Tensor, k: int) -> Results:
    """Return accuracy, macro-F1 and the recall of each class."""
    is_right = (predicted == labels).double()
    recall = [float(is_right[labels == each].mean()) if (labels == each).any() else 0.0 for each in range(k)]
    return {"accuracy": accuracy(labels, predicted), "macro_f1": open_f1(labels, predicted, k), "recall": recall}


def class_weights(labels: Tensor, k: int, power: float) -> Tensor | None:
    """Return a weight per class, a power of its number of examples; None where all are 1."""
    return torch.bincount(labels, minlength=k).clamp_min(1).float() ** power if power else None


def balanced_subset(labels: Tensor, seed: int) -> Tensor:
    """Return as many examples of each class as the rarest one has, drawn at random."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    least = int(torch.bincount(labels).min())
    return torch.cat([order[labels[order] == label][:least] for label in range(int(labels.max()) + 1)])


def select_weights(rows: list[Results]) -> dict[str, str]:
    """Return for each loss the class weights with the highest mean macro-F1 on held-out training documents."""
    scores = {(row["loss"], row["weights"]): sum(row["validation_macro_f1"]) for row in rows}
    losses = dict.fromkeys(row["loss"] for row in rows)
    return {loss: max((way for way in scores if way[0] == loss), key=scores.__getitem__)[1] for loss in losses}


def draw(numbers: Results) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7.5), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(1, 1.1))
    _draw_scores(figure.add_subplot(grid[0, 0]), numbers, "accuracy", "test accuracy (%)")
    _draw_scores(figure.add_subplot(grid[0, 1]), numbers, "macro_f1", "test macro-F1 (%)")
    _draw_recall(figure.add_subplot(grid[1, :]), numbers)
    return figure


def _draw_scores(ax: "Axes", numbers: Results, score: str, label: str) -> None:
    """Draw mean and error of each loss: with each kind of class weights, then on the subsets."""
    groups: dict[str, tuple[str, str | None]]
    groups = {f"80 % of them,\nweights: {weights}": ("compared", weights) for weights in POWERS}
    groups |= {
        "balanced subset,\nweights: none": ("balanced", "none"),
        "all documents,\nbest weights": ("final", None),
    }
    for shift, (loss, (color, mark)) in enumerate(_styles().items()):
        for index, (part, weights) in enumerate(groups.values()):
            if part == "final" and loss not in FINAL:
                continue
            values = [100 * value for value in row_of(numbers[part], loss, weights)[score]]
            label_once = _name(loss) if index == 0 else None
            x, mean = index + 0.16 * (shift - 1.5), sum(values) / len(values)
            ax.errorbar(x, mean, yerr=error_of(values), fmt=mark, color=color, capsize=3, label=label_once)
    ax.set_xticks(range(len(groups)), groups, fontsize=7)
    ax.set(ylabel=label)
    ax.legend(loc="lower center", fontsize=8)


def _draw_recall(ax: "Axes", numbers: Results) -> None:
    """Draw the recall of each class, the rarest first."""
    sizes = numbers["training_documents"]
    order = sorted(range(len(sizes)), key=lambda k: sizes[k])
    for loss, (color, mark) in _styles().items():
        recalls = row_of(numbers["compared"], loss, "none")["recall"]
        columns = [[100 * recall[k] for recall in recalls] for k in order]
        means = [sum(column) / len(column) for column in columns]
        ax.plot(means, mark, linestyle="-", linewidth=1, color=color, label=f"{_name(loss)}, no weights")
        ax.fill_between(range(len(order)), [*map(min, columns)], [*map(max, columns)], color=color, alpha=0.12)
    ax.set_xticks(range(len(order)), [f"{numbers['classes'][k]}\n{sizes[k]:,}" for k in order], fontsize=8)
    ax.set(xlabel="class and number of training documents", ylabel="recall (%); bands: all seeds", ylim=(-3, 103))
    ax.legend(loc="lower right", fontsize=8)


def row_of(rows: list[Results], loss: str, weights: str | None) -> Results:
    """Return the row of a loss and class weights, or its only row."""
    return next(row for row in rows if row["loss"] == loss and weights in (None, row["weights"]))


def _name(loss: str) -> str:
    return loss if loss == "softmax" else f"radial, {loss}"


def _styles() -> dict[str, tuple[str, str]]:
    from openradial.evaluation.plots import colors

    return {
        "softmax": (colors.SOFTMAX, "s"),
        "distance": (colors.RADIAL, "o"),
        "squared": (colors.BLACK, "^"),
        "rescaled": (colors.GREEN, "D"),
    }


EXPERIMENT = Experiment(
    id="imbalance",
    title="Topics of unequal size: which loss swallows rare classes",
    caption=(
        "The texts and the network of claim 9, with the same number of steps for every loss. Above, marks are means "
        "and bars twice the standard deviation over seeds; class weights are one over the number of documents of a "
        "class (balanced), its square root, or none. Below, recall by class, the rarest on the left. The distance puts "
        "an output on the prototype of the more probable class, the square between the prototypes by probability, and "
        "the rescaled square counts the target's axis √15 times."
    ),
    settings=SETTINGS,
    run=run,
    draw=draw,
    claims=(9,),
    minutes=25,
)
