"""Claim 9: other architectures; and topics and speakers in the open world, with 25 to 75 % of the classes known."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from openradial.conformal import Rejector
from openradial.data import Examples, divide, random_split, train_test_split
from openradial.heads import DOCHead, Head, OpenMaxHead, RadialHead, SoftmaxHead
from openradial.metrics import open_f1
from paper.experiment import Experiment
from paper.plan import Plan, Results, Size
from paper.sequence_tasks import HEADS, TASKS, Task
from paper.trained_nets import outputs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FALSE_REJECT_RATE = 0.05
METHODS = (
    "softmax, p < 0.5",
    "softmax, calibrated",
    "OpenMax",
    "DOC",
    "radial, p < 0.5",
    "radial, calibrated",
    "radial, squared, calibrated",
)


@dataclass(frozen=True)
class Rnn:
    seeds: int  # networks per head, and splits into known and novel classes


SETTINGS: dict[Size, Rnn] = {"tiny": Rnn(seeds=2), "quick": Rnn(seeds=2), "full": Rnn(seeds=5)}


def run(plan: Plan) -> Results:
    seeds, tasks = range(plan.settings(SETTINGS).seeds), TASKS[plan.size]
    closed = [
        {
            "architecture": task.architecture,
            "title": task.title,
            "steps": task.steps,
            "accuracy": {
                head: [
                    plan.cached(f"{task.name}-all-{head}-{seed}", partial(accuracy, plan, task, head, seed))
                    for seed in seeds
                ]
                for head in ("softmax", "radial")
            },
        }
        for task in tasks
    ]
    opened = [
        {
            "title": task.title,
            "share": share,
            "known_classes": known_count(task, share),
            "f1": by_method(
                [
                    plan.cached(f"{task.name}-{share}-{seed}", partial(open_world, plan, task, share, seed))
                    for seed in seeds
                ]
            ),
        }
        for task in tasks
        for share in task.shares
    ]
    return {"architectures": closed, "open_world": opened}


def accuracy(plan: Plan, task: Task, head: str, seed: int) -> float:
    """Return the test accuracy with all classes known."""
    train, test = task.data("train"), task.data("test")
    net = task.net(plan, head, train, seed, "all").net
    return float((outputs(net, test.inputs).argmax(-1) == test.labels).double().mean())


def known_count(task: Task, share: float) -> int:
    """Return the number of known classes, rounded half up."""
    return int(share * len(task.data("train").classes) + 0.5)


def by_method(seeds: list[dict[str, float]]) -> dict[str, list[float]]:
    return {method: [results[method] for results in seeds] for method in METHODS}


def open_world(plan: Plan, task: Task, share: float, seed: int) -> dict[str, float]:
    """Return the macro-F1 over the known classes and "unknown" of every method, for one draw of the known classes."""
    plan.note(f"{task.title}: {100 * share:g} % of the classes known, seed {seed}")
    train, test = task.data("train"), task.data("test")
    split = random_split(train.classes, known_count(task, share), seed)
    seen, held_out = train_test_split(divide(train, split)[0], task.held_out, seed)
    parts = divide(test, split)
    x, y = (
        torch.cat([part.inputs for part in parts]),
        torch.cat([parts[0].labels, torch.full_like(parts[1].labels, -1)]),
    )
    answers: dict[str, Tensor] = {}
    for head in HEADS:
        net = task.net(plan, head, seen, seed, f"{share}").net
        answers |= decided(head, net, seen, held_out, x)
    return {method: open_f1(y.numpy(), answers[method].numpy(), len(split.known)) for method in METHODS}


def decided(name: str, net: nn.Module, seen: Examples, held_out: Examples, x: Tensor) -> dict[str, Tensor]:
    """Return the class of each input or -1, by every method that works with this network."""
    o, o_seen, o_held_out = (outputs(net, each) for each in (x, seen.inputs, held_out.inputs))
    k = len(seen.classes)
    if name == "DOC":
        return {"DOC": DOCHead(k).fit(o_seen, seen.labels).decide(o)}
    head: Head = SoftmaxHead(k) if name == "softmax" else RadialHead(k)
    results = {
        f"{name}, p < 0.5": torch.where(head.log_probs(o).amax(-1).exp() >= 0.5, head.predict(o), -1),
        f"{name}, calibrated": _calibrated(head, o_held_out, o),
    }
    return results | ({"OpenMax": _openmax(k, o_seen, seen.labels, o)} if name == "softmax" else {})


def _calibrated(head: Head, held_out: Tensor, o: Tensor) -> Tensor:
    rejector = Rejector(FALSE_REJECT_RATE).fit(head.unknown_score(held_out))
    labels: Tensor = rejector.decide(head.unknown_score(o), head.predict(o))
    return labels


def _openmax(k: int, seen: Tensor, y: Tensor, o: Tensor) -> Tensor:
    """Return classes, and -1 where unknown is more probable than every class."""
    head = OpenMaxHead(k).fit(seen, y)
    return torch.where(head.unknown_log_prob(o) <= head.log_probs(o).amax(-1), head.predict(o), -1)


def draw(numbers: Results) -> "Figure":
    from matplotlib.figure import Figure

    titles = list(dict.fromkeys(each["title"] for each in numbers["open_world"]))
    figure = Figure(figsize=(11, 7), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(1, 1.9))
    _draw_closed(figure.add_subplot(grid[:, 0]), numbers["architectures"])
    for row, title in enumerate(titles):
        ax = figure.add_subplot(grid[row, 1])
        _draw_open(ax, [each for each in numbers["open_world"] if each["title"] == title])
        ax.set_title(f"{title}: macro-F1 over known classes and unknown")
    handles, labels = figure.axes[-1].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=len(METHODS), fontsize=8, loc="outside upper right")
    return figure


def _draw_closed(ax: "Axes", results: list[Results]) -> None:
    from openradial.evaluation.plots import colors
    from paper.claims import error_of

    for head, color, shift, mark in (("softmax", colors.SOFTMAX, -0.12, "s"), ("radial", colors.RADIAL, 0.12, "o")):
        for index, each in enumerate(results):
            values = [100 * value for value in each["accuracy"][head]]
            label = head if index == 0 else None
            mean = sum(values) / len(values)
            ax.errorbar(index + shift, mean, yerr=error_of(values), fmt=mark, color=color, capsize=4, label=label)
            beside: dict[str, Any] = {
                "xytext": (60 * shift, 0),
                "textcoords": "offset points",
                "va": "center",
                "fontsize": 8,
            }
            ax.annotate(f"{mean:.1f}", (index + shift, mean), ha="right" if shift < 0 else "left", **beside)
    ax.set_xticks(
        range(len(results)), [f"{each['architecture']}\n{each['title'].replace(', ', chr(10))}" for each in results]
    )
    ax.set(
        title="all classes known", ylabel="test accuracy (%); bars: error over seeds", xlim=(-0.5, len(results) - 0.5)
    )
    ax.legend(loc="lower left")


def _draw_open(ax: "Axes", results: list[Results]) -> None:
    from openradial.evaluation.plots import colors
    from paper.claims import error_of

    palette = (colors.ORANGE, colors.VERMILION, colors.PURPLE, colors.GREEN, colors.SKY, colors.BLUE, colors.BLACK)
    width = 0.8 / len(METHODS)
    for at, (method, color) in enumerate(zip(METHODS, palette, strict=True)):
        groups = [[100 * value for value in each["f1"][method]] for each in results]
        positions = [index + (at - (len(METHODS) - 1) / 2) * width for index in range(len(results))]
        means, errors = [sum(group) / len(group) for group in groups], [error_of(group) or 0.0 for group in groups]
        ax.bar(
            positions,
            means,
            width * 0.92,
            yerr=errors,
            color=color,
            label=method,
            capsize=2,
            error_kw={"linewidth": 0.8},
        )
    ax.set_xticks(
        range(len(results)), [f"{100 * each['share']:g} % known ({each['known_classes']} classes)" for each in results]
    )
    ax.set(ylabel="macro-F1 (%)", ylim=(0, 100))


EXPERIMENT = Experiment(
    id="rnn",
    title="Other architectures, and the open world of texts and sequences",
    caption=(
        "Left: one network of each architecture with either head; bars are twice the standard deviation over seeds. "
        "Right: some classes are unknown in training, as in the DOC paper, and an answer is a class or unknown; each "
        "seed draws other known classes, which is most of the spread. Topics are of very different size, and F1 counts "
        "all alike; black is a network trained with the square of the radial loss."
    ),
    settings=SETTINGS,
    run=run,
    draw=draw,
    claims=(9,),
    minutes=20,
)
