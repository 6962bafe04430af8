"""Train networks from scratch on six classes of CIFAR-10 or MNIST, and detect the other four.

python -m benchmarks.from_scratch [--data cifar10] [--work FOLDER] [--part I/N] (a night on two cores; it resumes)

Each network is fitted by ``openradial.fit`` with its defaults, for the radial and for the softmax head alike, on the
five splits of classes that the field uses. All scores are computed on the same networks; novel classes are for testing
alone.
``--part 0/2`` and ``1/2`` share the networks between two processes; ``--train-only`` measures no scores, which the same
command without it does later; ``--lengths`` trains others for the figure; ``--only 'cifar10-split?-radial-8'``
trains those with such a name;
``--write`` writes benchmarks/results/from_scratch_{cifar10,mnist}.{json,md} and the figure from what is there.
"""

import argparse
import fnmatch
import itertools
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

import openradial
from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from openradial.classifier import OpenClassifier
from openradial.data import Examples, load, sources
from openradial.data.inputs import ImageInputs
from openradial.evaluation.plots.colors import BLUE, ORANGE
from openradial.files import write_text
from openradial.heads import RadialHead
from openradial.metrics import auroc
from openradial.nn import hidden_layers
from openradial.scorers import MahalanobisScorer, NeighbourScorer, Scorer

SPLITS = {  # known classes: of Vaze et al. (2022) for CIFAR-10, of ARPL (Chen et al., 2021) for MNIST
    "cifar10": ((0, 1, 2, 4, 5, 9), (0, 3, 5, 7, 8, 9), (0, 1, 5, 6, 7, 8), (3, 4, 5, 7, 8, 9), (0, 1, 2, 3, 7, 8)),
    "mnist": ((2, 4, 5, 9, 8, 3), (3, 2, 6, 9, 4, 0), (5, 8, 3, 2, 4, 6), (3, 7, 8, 4, 0, 5), (6, 3, 4, 9, 8, 2)),
}
HEADS = ("radial", "softmax", "cac")
EPOCHS = {"cifar10": 16, "mnist": 8}
ENSEMBLES = {"cifar10": (40, 4), "mnist": ()}  # epochs and members: 40 take up to 80 core-minutes
ALL_EPOCHS = (16, 32)  # on all ten classes
LENGTHS = {"cifar10": (8, 4), "mnist": ()}  # epochs of other networks, for the figure, on the first split
OURS, RELATIVE, FEATURES = "openradial's score", "relative neighbour", "classifier:input"
NOTES = {
    "cifar10": "openradial's score is that of the fitted model: the projection (the maximum logit) and the relative "
    "nearest neighbour. Means are over splits that both networks have.",
    "mnist": "openradial's score is that of the fitted model: the distance and the nearest neighbour, the default when "
    "these networks were fitted. They were trained with SGD and without Muon. Means are over splits that both networks "
    "have.",
}
REFERENCES = 10_000  # training examples of neighbours and of covariances
CHUNK = 500
COPIED = {  # AUROC in the literature
    "cifar10": {
        "softmax (2018 protocol)": 0.677,
        "ARPL (Chen et al., 2021)": 0.894,
        "DSPL": 0.908,
        "maximum logit of a well-trained classifier (Vaze et al., 2022)": 0.936,
        "SpHOR": 0.945,
    },
    "mnist": {
        "softmax (2018 protocol)": 0.978,
        "ARPL (Chen et al., 2021)": 0.996,
        "DSPL": 0.995,
        "maximum logit of a well-trained classifier (Vaze et al., 2022)": 0.993,
    },
}


class Job(NamedTuple):
    """One network or ensemble: data, the number of a split or None for all ten classes, head, epochs, and members."""

    data: str
    split: int | None
    head: str
    epochs: int
    members: int = 1

    @property
    def name(self) -> str:
        part = "all" if self.split is None else f"split{self.split}"
        parts = (self.data, part, self.head, self.epochs, *([self.members] if self.members > 1 else []))
        return "-".join(map(str, parts))


def jobs(data: str, lengths: bool, all_classes: bool) -> Iterator[Job]:
    """Yield the networks, those of the table first."""
    for head in HEADS:
        for split in range(len(SPLITS[data])):
            yield Job(data, split, head, EPOCHS[data])
    if ENSEMBLES[data]:
        yield from (
            Job(data, split, head, *ENSEMBLES[data]) for split in range(len(SPLITS[data])) for head in HEADS[:2]
        )
    if all_classes:
        yield from (Job(data, None, head, epochs) for epochs, head in itertools.product(ALL_EPOCHS, HEADS[:2]))
    if lengths:
        yield from (Job(data, 0, head, epochs) for epochs, head in itertools.product(LENGTHS[data], HEADS[:2]))


def run(job: Job, work: Path, rows: Path) -> None:
    """Train one network, unless its row exists."""
    folder, kept = work / job.name, rows / f"{job.name}.json"
    if kept.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    source, log, before = sources.open(job.data), folder / "cpu_seconds.jsonl", [time.process_time()]
    known = source.classes if job.split is None else [source.classes[k] for k in SPLITS[job.data][job.split]]

    def on_epoch(record: dict[str, Any]) -> None:
        now = time.process_time()
        with log.open("a") as out:
            out.write(json.dumps(record | {"cpu_seconds": now - before[0]}) + "\n")
        before[0] = now

    training = (folder / "model.training").exists()
    options: dict[str, Any] = {"known": known, "head": job.head, "epochs": job.epochs, "baseline": False}
    if job.members > 1:
        options["model_options"] = {"members": job.members}
    options |= {"method": "gradient", "out": folder / "model", "resume": training, "overwrite": True}
    model = openradial.fit(job.data, on_epoch=on_epoch, show_progress=False, **options)
    epochs = {row["epoch"]: row["cpu_seconds"] for row in map(json.loads, log.read_text().splitlines())}
    facts: dict[str, Any] = {**job._asdict(), "known": list(known), "core_minutes": sum(epochs.values()) / 60}
    facts["settings"] = model.metadata["training"]["settings"]
    facts["accuracy"] = model.report.accuracy
    write_text(kept, json.dumps(facts, indent=1) + "\n")


@torch.no_grad()
def layers_of(model: OpenClassifier, inputs: Tensor) -> dict[str, Tensor]:
    """Return the outputs, and the layers that the scores of a model read, of images as they are loaded."""
    assert isinstance(model.preprocessing, ImageInputs)
    normalise, names = model.preprocessing.normalise(), {"outputs", FEATURES, *model.layers, model.far_layer}
    parts = [hidden_layers(model.net.eval(), normalise(x), sorted(names)) for x in inputs.split(CHUNK)]
    return {name: torch.cat([part[name] for part in parts]) for name in sorted(names)}


@torch.no_grad()
def output_scores(model: OpenClassifier, layers: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the unknown score of the fitted model, and scores of the outputs alone."""
    o = layers["outputs"]
    far = None if model.far_axis is None else model.far_axis.unknown_score(layers[model.far_layer])
    head = model.head.compute(o, far) if isinstance(model.head, RadialHead) else model.head.compute(o)
    parts = [
        head.unknown_score if scorer is model.head else scorer.unknown_score(layers[layer])
        for layer, scorer in model.layer_scorers()
    ]
    fitted = model.combination.unknown_score(torch.stack(parts, 1)) if model.combination else head.unknown_score
    scores = {OURS: fitted, "maximum logit": -o.amax(-1), "energy": -o.logsumexp(-1)}
    scores["maximum probability"] = -o.softmax(-1).amax(-1)
    if isinstance(model.head, RadialHead):
        scores["distance"] = model.head.layer.nearest(o)[0].squeeze(-1)
    return scores


@torch.no_grad()
def all_scores(model: OpenClassifier, train: Examples, parts: Sequence[Tensor]) -> list[dict[str, Tensor]]:
    """Return all scores of the images of each part; ``train`` are training images of known classes."""
    rows = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:REFERENCES]
    references, y = layers_of(model, train.inputs[rows])[FEATURES], train.labels[rows]
    scorers: dict[str, Scorer] = {
        "neighbour": NeighbourScorer(1, normalise=True).fit(references, y),
        RELATIVE: NeighbourScorer(1, normalise=True, relative=True).fit(references, y),
        "Mahalanobis++": MahalanobisScorer(normalise=True, shrinkage="oas").fit(references, y),
    }

    def scores(inputs: Tensor) -> dict[str, Tensor]:
        layers = layers_of(model, inputs)
        values = {name: scorer.unknown_score(layers[FEATURES]) for name, scorer in scorers.items()}
        return output_scores(model, layers) | values

    return [scores(part) for part in parts]


def measured(model: OpenClassifier, job: Job, known: list[str]) -> dict[str, dict[str, float]]:
    """Return the AUROC of each score on the test data, for all novel classes together and for the hardest one."""
    train, test = load(job.data), load(job.data, "test")
    labels = torch.tensor([known.index(name) if name in known else -1 for name in train.classes])
    is_known, is_inside = labels[train.labels] >= 0, labels[test.labels] >= 0
    references = Examples(train.inputs[is_known], labels[train.labels[is_known]], tuple(known))
    inside, outside = all_scores(model, references, [test.inputs[is_inside], test.inputs[~is_inside]])
    novel = test.labels[~is_inside]
    groups = [torch.ones_like(novel, dtype=torch.bool), *(novel == label for label in novel.unique())]
    every = {
        name: [auroc(values.numpy(), outside[name][group].numpy()) for group in groups]
        for name, values in inside.items()
    }
    return {
        "auroc": {name: values[0] for name, values in every.items()},
        "hardest": {name: min(values[1:]) for name, values in every.items()},
    }


def add_scores(job: Job, work: Path, rows: Path) -> None:
    """Measure a network that was trained, unless that was done."""
    path = rows / f"{job.name}.json"
    row = json.loads(path.read_text())
    if job.split is not None and "auroc" not in row:
        row |= measured(openradial.load(work / job.name / "model"), job, row["known"])
        write_text(path, json.dumps(row, indent=1) + "\n")


def spread(values: list[float], digits: int = 4) -> str:
    """Return the mean and the standard deviation over splits."""
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean + (f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else "")


def paired(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of splits that have a softmax network, if there is one: means over other splits differ."""
    splits = {row["split"] for row in rows if row["head"] == "softmax"} or {row["split"] for row in rows}
    return [row for row in rows if row["split"] in splits]


def training(row: dict[str, Any]) -> tuple[int, int]:
    """Return members and epochs of a row; the first rows had no members."""
    return row.get("members", 1), row["epochs"]


def training_name(members: int, epochs: int) -> str:
    return f"{epochs} epochs" if members == 1 else f"{members} members, {epochs} epochs"


def each_split(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return header and cells of a table with one row per network."""
    runs = sorted(rows, key=lambda r: (r["split"], r["head"]))
    names = (OURS, "maximum logit", "energy", "neighbour", RELATIVE)
    shown = [name for name in names if all(name in row["auroc"] for row in runs)]
    cells = [
        [
            f"{row['split'] + 1}",
            row["head"],
            *(f"{row['auroc'][score]:.4f}" for score in shown),
            f"{row['accuracy']:.4f}",
        ]
        for row in runs
    ]
    return ["split", "network", "fitted score", *shown[1:], "accuracy"], cells


def write(data: str, rows: Path) -> None:
    """Write tables and figure from the rows of the networks that are finished."""
    every = [json.loads(path.read_text()) for path in sorted(rows.glob(f"{data}-*.json"))]
    splits = [row for row in every if row["split"] is not None and "auroc" in row]
    lines = [f"# Trained from scratch: {data}, six classes known, four novel", ""]
    for kind in sorted({training(row) for row in splits}, reverse=True):
        same = [row for row in splits if training(row) == kind]
        cells, both = [], paired(same)
        for head in HEADS:
            runs = [row for row in both if row["head"] == head]
            numbers = {score: [row["auroc"][score] for row in runs] for score in (runs[0]["auroc"] if runs else ())}
            for score in sorted(numbers, key=lambda name: -statistics.fmean(numbers[name])):
                if head == "radial" or (score == OURS) == (head == "cac"):  # only radial models have both
                    minutes = statistics.fmean([row["core_minutes"] for row in runs])
                    hardest = [row["hardest"][score] for row in runs if "hardest" in row]
                    hardest = hardest if len(hardest) == len(runs) else []  # the first rows have none
                    measures = [spread(each) if each else "" for each in (numbers[score], hardest)]
                    measures.append(spread([row["accuracy"] for row in runs]))
                    name = "published score" if head == "cac" else score
                    cells.append([head, name, *measures, f"{len(runs)}", f"{minutes:.1f}"])
        header = ["network", "score", "AUROC", "hardest novel class", "accuracy", "splits", "core-minutes each"]
        title = f"{training_name(*kind)}, mean and standard deviation over the splits:"
        lines += [title, "", *table(header, cells), "", "AUROC of each split:", "", *table(*each_split(same)), ""]
    lines += [NOTES[data], ""]
    literature = [[name, f"{value:.3f}"] for name, value in COPIED[data].items()]
    lines += ["Copied from the literature, five splits:", "", *table(["method", "AUROC"], literature), ""]
    ten = [
        [row["head"], f"{row['epochs']}", f"{row['accuracy']:.4f}", f"{row['core_minutes']:.0f}"]
        for row in sorted(every, key=lambda row: row["epochs"])
        if row["split"] is None
    ]
    if ten:
        title = "All ten classes, on 45,000 training images:"
        lines += [title, "", *table(["network", "epochs", "accuracy", "core-minutes"], ten), ""]
    facts = {"machine": machine(f"python -m benchmarks.from_scratch --data {data} --write"), "rows": every}
    write_text(RESULTS / f"from_scratch_{data}.json", json.dumps(facts, indent=1) + "\n")
    write_text(RESULTS / f"from_scratch_{data}.md", "\n".join(lines))
    draw(splits, RESULTS / f"from_scratch_{data}.png")


def summary(every: list[dict[str, Any]]) -> list[str]:
    """Return the short table of the README: means over splits, a row for each length of training."""
    names = {"mnist": "MNIST", "cifar10": "CIFAR-10"}

    def order(each: tuple[str, tuple[int, int]]) -> tuple[int, tuple[int, int]]:
        return list(names).index(each[0]), each[1]

    rows = [row for row in every if row["split"] is not None and "auroc" in row]
    cells = []
    for data, kind in sorted({(row["data"], training(row)) for row in rows}, key=order):
        runs = paired([row for row in rows if (row["data"], training(row)) == (data, kind)])
        radial, softmax = ([row for row in runs if row["head"] == head] for head in HEADS[:2])
        columns = (
            [row["auroc"][OURS] for row in radial],
            [row["auroc"]["maximum logit"] for row in radial],
            [row["auroc"]["maximum logit"] for row in softmax],
            [row["auroc"]["neighbour"] for row in softmax],
            *([100 * row["accuracy"] for row in part] for part in (radial, softmax)),
        )
        digits = 4 if data == "mnist" else 3
        shown = [spread(column, digits if n < 4 else 2) if column else "not run" for n, column in enumerate(columns)]
        minutes = f"{statistics.fmean(row['core_minutes'] for row in radial + softmax):.1f}"
        cells.append([f"{names[data]}, {training_name(*kind)}", f"{len(radial)}", *shown, minutes])
    header = ["", "splits", "radial, openradial's score", "radial, projection", "softmax, maximum logit"]
    return table(
        [*header, "softmax, neighbour", "accuracy (%), radial", "accuracy (%), softmax", "core-minutes per network"],
        cells,
    )


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw closed-set accuracy against AUROC of the same score: a point per network, a mark per length of training."""
    figure = Figure(figsize=(6.2, 3.9), layout="constrained")
    ax = figure.subplots()
    kinds = sorted({training(row) for row in rows})
    marks = dict(zip(kinds, "o^sDvP", strict=False))
    for (head, color), kind in itertools.product((("radial", BLUE), ("softmax", ORANGE)), kinds):
        runs = [row for row in rows if row["head"] == head and training(row) == kind]
        if runs:
            points = [(100 * row["accuracy"], row["auroc"]["maximum logit"]) for row in runs]
            label = f"{head}, {training_name(*kind)}"
            ax.scatter(*zip(*points, strict=True), color=color, marker=marks[kind], label=label, alpha=0.85)
    ax.set(xlabel="accuracy on known classes (%)", ylabel="AUROC of the maximum logit")
    ax.margins(0.12)
    ax.grid(alpha=0.3)
    figure.legend(loc="outside right upper", frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.from_scratch", description=__doc__)
    parser.add_argument("--data", default="cifar10", choices=list(SPLITS))
    parser.add_argument("--work", type=Path, default=Path("runs/from_scratch"), help="folder for networks")
    parser.add_argument("--rows", type=Path, default=RESULTS / "from_scratch", help="folder for finished rows")
    parser.add_argument("--part", default="0/1", help="which part of the networks, as in 0/2")
    parser.add_argument("--lengths", action="store_true", help="also train others, for the figure")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="names of networks, with * and ?")
    parser.add_argument("--all-classes", action="store_true", help="also train on all ten classes")
    parser.add_argument("--train-only", action="store_true", help="leave the scores to a later run")
    parser.add_argument("--write", action="store_true", help="write the results of what is there")
    options = parser.parse_args()
    options.rows.mkdir(parents=True, exist_ok=True)
    number, count = map(int, options.part.split("/"))
    networks = jobs(options.data, options.lengths, options.all_classes)
    for job in [job for job in networks if fnmatch.fnmatchcase(job.name, options.only)][number::count]:
        if not options.write:
            print(time.strftime("%H:%M:%S"), job.name, flush=True)
            run(job, options.work, options.rows)
            if not options.train_only:
                add_scores(job, options.work, options.rows)
    if options.write:
        write(options.data, options.rows)


if __name__ == "__main__":
    main()
