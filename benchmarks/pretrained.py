"""Detect novel classes on the features of frozen encoders: what fit does, and its rivals on the same features.

python -m benchmarks.pretrained --banking FOLDER --tiny PATH (an hour on two cores; a run that was killed resumes)

FOLDER has train.csv and test.csv of BANKING77, PATH is a folder or an archive of Tiny-ImageNet; CIFAR-10,
Fashion-MNIST and QuickDraw are fetched. Every split draws the known classes at random; the others are novel and are
used for testing alone. Rivals use the last layer of an encoder, as published. Writes
benchmarks/results/pretrained.{json,md}; --only selects tasks by the start of their name, --again measures openradial
again, but not its rivals.
"""

import argparse
import csv
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from torch import Tensor

from benchmarks.machine import machine
from benchmarks.photos import fit_photographs, published
from benchmarks.run import RESULTS, table
from openradial import encoders
from openradial.data import Examples, sources
from openradial.encoders import FeatureCache
from openradial.encoders.networks import BertEncoder
from openradial.files import write_text
from openradial.fitting.closed_form import calibrate_cross, fit_closed_form
from openradial.fitting.cross import FeatureSet, assign_folds
from openradial.fitting.novelty import choose_rate
from openradial.metrics import auroc
from openradial.models.features import Features
from openradial.recipe import closed_form_recipe
from openradial.scorers import MahalanobisScorer, NeighbourScorer
from paper.imagenet.tiny_imagenet import tiny_imagenet

PATH = RESULTS / "pretrained.json"
COMMAND = "python -m benchmarks.pretrained --banking FOLDER --tiny PATH"
SPLITS, RATE, FOLDS = 5, 0.05, 3
REGULARISATION = (1.0, 10.0, 100.0, 1000.0)  # C of logistic regression, selected on held-out known examples
MATCHES = 5  # nearest sentences that semantic-router looks at
TINY = {"train": 40, "val": 20}  # images per class
CIFAR = {"train": 1_000, "test": 100}
LAST = 1280  # features of the last layer of efficientnet_lite0; those of a middle layer follow
LOGISTIC = ("maximum probability", "maximum logit", "energy")
FAR = 400  # images of each other kind
Part = tuple[Tensor, Tensor]  # features, labels


class Task(NamedTuple):
    """A data set, how many of its classes are known, and how its features are treated."""

    name: str
    kind: str  # "texts" or "images"
    known: int
    data: Callable[[], tuple[Part, Part]]  # for training and for testing
    far: Callable[[], dict[str, Tensor]]
    published: Callable[[], tuple[Part, Part]] | None = None  # features for rivals, where they are not the first ones


class Scored(NamedTuple):
    """Nearest classes and unknown scores of test examples, and which of them are called unknown at a rate."""

    nearest: Tensor
    score: Tensor
    rejected: Tensor  # at 5 %
    rate: float | None = None  # that false_reject_rate="auto" chooses
    rejected_at_rate: Tensor | None = None


Rule = Callable[[Tensor], tuple[Tensor, Tensor]]  # features -> nearest classes, unknown scores


def encode(name: str, raw: list[Any], is_published: bool = False) -> Tensor:
    """Return features, of minilm also as they are published; they are cached."""
    encoder = encoders.load(name)
    if is_published:
        net = BertEncoder().eval()
        net.load_state_dict(encoder.net.state_dict())
        encoder = replace(encoder, net=net)
    return encoders.encode(encoder, raw, cache=FeatureCache(encoder.key))[0]


def ours(kind: str, z: Tensor, y: Tensor, seed: int) -> Callable[[Tensor], Scored]:
    """Fit as openradial.fit does: closed form, cross-fitted calibration."""
    if kind == "images":
        model, left_out = fit_photographs(z, y, LAST, seed)
    else:
        classes, known = tuple(map(str, range(int(y.max()) + 1))), FeatureSet(z, y)
        recipe = closed_form_recipe(kind, len(z))
        model, left_out = fit_closed_form(Features(z.shape[1]), recipe, classes, known, seed)
        model, _ = calibrate_cross(model, recipe, RATE, known, seed)
    rate, _ = choose_rate(model, left_out, len(z))

    def score(x: Tensor) -> Scored:
        decision = model.decide(x)
        at_rate = model.decide(x, rate).labels < 0
        return Scored(decision.nearest, decision.unknown_score, decision.labels < 0, rate, at_rate)

    return score


def logistic(z: Tensor, y: Tensor, c: float) -> Callable[[Tensor], Tensor]:
    """Return the logits of a converged logistic regression."""
    model = LogisticRegression(C=c, max_iter=5_000).fit(z.numpy(), y.numpy())
    return lambda x: torch.from_numpy(np.atleast_2d(model.decision_function(x.numpy())))


def selected_c(z: Tensor, y: Tensor) -> float:
    """Return the C with the best accuracy on a fold of known examples."""
    held_out = assign_folds(y, 4) == 0

    def accuracy(c: float) -> float:
        logits = logistic(z[~held_out], y[~held_out], c)
        return float((logits(z[held_out]).argmax(1) == y[held_out]).double().mean())

    return max(REGULARISATION, key=accuracy)


def logistic_rules(c: float) -> Callable[[Tensor, Tensor], dict[str, Rule]]:
    """Return what fits logistic regression, with three unknown scores."""

    def fit(z: Tensor, y: Tensor) -> dict[str, Rule]:
        logits, scores = logistic(z, y, c), dict[str, Callable[[Tensor], Tensor]]()
        scores[LOGISTIC[0]] = lambda o: -o.softmax(1).amax(1)
        scores[LOGISTIC[1]] = lambda o: -o.amax(1)
        scores[LOGISTIC[2]] = lambda o: -o.logsumexp(1)

        def rule(score: Callable[[Tensor], Tensor]) -> Rule:
            def apply(x: Tensor) -> tuple[Tensor, Tensor]:
                o = logits(x)
                return o.argmax(1), score(o)

            return apply

        return {f"logistic regression, {name}": rule(score) for name, score in scores.items()}

    return fit


def feature_rules(z: Tensor, y: Tensor) -> dict[str, Rule]:
    """Fit the nearest neighbour by cosine, and Mahalanobis++."""
    near, far = NeighbourScorer(1, normalise=True).fit(z, y), MahalanobisScorer(normalise=True, shrinkage="oas")
    far.fit(z, y)
    count = int(y.max()) + 1
    means = torch.zeros(count, z.shape[1]).index_add_(0, y, z) / torch.bincount(y, minlength=count).unsqueeze(1)

    def by_mean(x: Tensor) -> Tensor:
        return (x @ torch.nn.functional.normalize(means).T).argmax(1)

    return {
        "nearest neighbour": lambda x: (y[(x @ z.T).argmax(1)], near.unknown_score(x)),
        "Mahalanobis++": lambda x: (by_mean(x), far.unknown_score(x)),
    }


def router_rules(z: Tensor, y: Tensor) -> dict[str, Rule]:
    """Fit the rule of semantic-router: the mean cosine of the matches of a class among the nearest sentences."""
    count = int(y.max()) + 1

    def apply(x: Tensor) -> tuple[Tensor, Tensor]:
        cosine, rows = (x @ z.T).topk(min(MATCHES, len(z)), dim=1)
        labels = y[rows]
        total = torch.zeros(len(x), count).scatter_add_(1, labels, cosine)
        matches = torch.zeros(len(x), count).scatter_add_(1, labels, torch.ones_like(cosine))
        mean = torch.where(matches > 0, total / matches.clamp_min(1), -torch.inf)
        best = mean.max(1)
        return best.indices, -best.values

    return {"semantic-router's rule": apply}


def all_rules(kind: str, z: Tensor, y: Tensor) -> list[Callable[[Tensor, Tensor], dict[str, Rule]]]:
    """Return what fits the rivals for a kind of data."""
    return [logistic_rules(selected_c(z, y)), feature_rules, *([router_rules] if kind == "texts" else [])]


def rivals(fits: list[Any], z: Tensor, y: Tensor, x: Tensor) -> dict[str, Scored]:
    """Return what the rivals answer for ``x``; their thresholds are those of cross-fitted known examples."""
    folds, found = assign_folds(y, FOLDS), dict[str, Scored]()
    for fit in fits:
        held_out: dict[str, list[tuple[Tensor, Tensor]]] = {}
        for fold in range(FOLDS):
            for name, rule in fit(z[folds != fold], y[folds != fold]).items():
                held_out.setdefault(name, []).append(rule(z[folds == fold]))
        for name, rule in fit(z, y).items():
            labels, scores = (torch.cat(column) for column in zip(*held_out[name], strict=True))
            nearest, score = rule(x)
            limit = torch.quantile(scores.double(), 1 - RATE).expand(int(y.max()) + 1)
            if name == "semantic-router's rule":  # a threshold for each class
                every = [scores[labels == k].double() for k in range(len(limit))]
                limit = torch.stack([torch.quantile(each, 1 - RATE) if len(each) else limit[0] for each in every])
            found[name] = Scored(nearest, score, score > limit[nearest])
    return found


def measure(task: Task, seed: int, before: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return the numbers of all methods for one split of the classes; those of rivals may be there from before."""
    (z, labels), (x, truth) = task.data()
    count = int(labels.max()) + 1
    drawn = torch.randperm(count, generator=torch.Generator().manual_seed(seed))[: task.known].sort().values
    code = torch.full((count,), -1)
    code[drawn] = torch.arange(task.known)
    y, t = code[labels], code[truth]
    (usual, _), (test, _) = task.data() if task.published is None or before else task.published()
    z, usual, y = z[y >= 0], usual[y >= 0], y[y >= 0]
    parts = [x, *task.far().values()]
    every = torch.cat(parts)
    answers = {"openradial": ours(task.kind, z, y, seed)(every)}
    last = slice(LAST if task.kind == "images" else None)  # rivals use the last layer, as is usual
    scored = rivals(all_rules(task.kind, z[:, last], y), z[:, last], y, every[:, last])
    answers |= {f"{name}, features of openradial": answer for name, answer in scored.items()}
    if not before:
        inputs = torch.cat([test, *parts[1:]])
        if task.kind == "images":
            usual, inputs = published(z, LAST), published(every, LAST)
        answers |= rivals(all_rules(task.kind, usual, y), usual, y, inputs)
    results = {}
    for name, answer in answers.items():
        nearest, score, rejected = (torch.split(column, [len(part) for part in parts]) for column in answer[:3])
        known, labelled = t >= 0, torch.where(rejected[0], -1, nearest[0])
        result = {"accuracy": float((nearest[0] == t)[known].double().mean())}
        result["called unknown"] = float(rejected[0][known].double().mean())
        if not known.all():
            result["AUROC"] = auroc(score[0][known], score[0][~known])
            result["detected"] = float(rejected[0][~known].double().mean())
            result["macro-F1"] = float(f1_score(t, labelled, average="macro"))
        if answer.rejected_at_rate is not None and answer.rate is not None and not known.all():
            labelled = torch.where(answer.rejected_at_rate[: len(t)], -1, nearest[0])
            result["macro-F1 at the chosen rate"] = float(f1_score(t, labelled, average="macro"))
            result["chosen rate"] = answer.rate
        for kind, far in zip(task.far(), score[1:], strict=True):
            result[kind] = auroc(score[0][known], far)
        results[name] = result
    return results | before


@cache
def banking(folder: Path, is_published: bool = False) -> tuple[Part, Part]:
    """Return the sentences of BANKING77 as features."""
    parts = []
    for part in ("train", "test"):
        with (folder / f"{part}.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        names = sorted({row["category"] for row in rows})
        labels = torch.tensor([names.index(row["category"]) for row in rows])
        parts.append((encode("minilm", [row["text"] for row in rows], is_published), labels))
    return parts[0], parts[1]


@cache
def tiny(path: Path) -> tuple[Part, Part]:
    """Return the first photographs of each class of Tiny-ImageNet as features."""
    parts = []
    for part, count in TINY.items():
        folder = tiny_imagenet(path, part)
        rows = first_rows(folder.labels, count)
        images = [Path(folder.paths[i]) for i in rows.tolist()]
        parts.append((encode("efficientnet_lite0", images), folder.labels[rows]))
    return parts[0], parts[1]


@cache
def cifar() -> tuple[Part, Part]:
    """Return the first images of each class of CIFAR-10 as features."""
    source, parts = sources.open("cifar10"), []
    for part, count in CIFAR.items():
        data = getattr(source, part)
        rows = first_rows(data.labels, count)
        parts.append((encode("efficientnet_lite0", pixels(data, rows)), data.labels[rows]))
    return parts[0], parts[1]


def far_images(photos: dict[str, Callable[[], tuple[Part, Part]]]) -> dict[str, Tensor]:
    """Return features of clothes, drawings, noise, and of the other set of photographs."""
    found = {}
    for name in ("fashion-mnist", "quickdraw"):
        data = sources.open(name).test
        assert isinstance(data, Examples)
        rows = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[:FAR]
        found[name] = encode("efficientnet_lite0", pixels(data, rows))
    noise = np.random.default_rng(0).integers(0, 256, (FAR, 64, 64, 3), dtype=np.uint8)
    found["noise"] = encode("efficientnet_lite0", list(noise))
    for name, load in photos.items():
        z = load()[1][0]
        found[name] = z[torch.randperm(len(z), generator=torch.Generator().manual_seed(0))[:FAR]]
    return found


def first_rows(labels: Tensor, count: int) -> Tensor:
    return torch.cat([(labels == k).nonzero().squeeze(1)[:count] for k in range(int(labels.max()) + 1)])


def pixels(data: Examples, rows: Tensor) -> list[Any]:
    return [image.expand(-1, -1, 3).contiguous().numpy() for image in data.inputs[rows].permute(0, 2, 3, 1)]


def markdown(results: dict[str, Any]) -> str:
    """Return one table per task: medians, with the range over splits."""
    lines = [
        f"Median over {SPLITS} splits of the classes, smallest and largest in brackets. All rows of a task use the",
        "same frozen pre-trained encoder: minilm for texts, efficientnet_lite0 for photographs, whose training on",
        "ImageNet has seen the novel classes. Rivals use its last layer, as published, unless their name says more:",
        "features of openradial are those of all layers of minilm, and square roots of those of photographs.",
        "Thresholds: 5 % of known examples called unknown, from known data alone; the chosen rate is that of",
        "false_reject_rate='auto', from known data alone too. Macro-F1 counts unknown as one more class. Other",
        "columns: AUROC against inputs of another kind.",
        "",
    ]
    for name, splits in results["tasks"].items():
        runs = list(splits.values())
        columns = list(runs[0]["openradial"])
        rows = [[method, *(_cell(runs, method, column) for column in columns)] for method in runs[0]]
        lines += [f"## {name}", "", *table(["method", *columns], rows), ""]
    environment = results["environment"]
    return "\n".join([*lines, f"`{COMMAND}`, {environment['cpu']}, {environment['date']}"]) + "\n"


def summary(results: dict[str, Any]) -> list[str]:
    """Return the short table of the README: medians of the AUROC, ours and that of each rival."""
    columns = {
        "openradial": ("openradial",),
        "logistic regression (best of three scores)": tuple(f"logistic regression, {name}" for name in LOGISTIC),
        "nearest neighbour": ("nearest neighbour",),
        "Mahalanobis++": ("Mahalanobis++",),
        "semantic-router's rule": ("semantic-router's rule",),
    }
    rows = []
    for name, splits in results["tasks"].items():
        runs = list(splits.values())
        if "AUROC" not in runs[0]["openradial"]:
            continue
        cells = []
        for methods in columns.values():
            found = [median(run[method]["AUROC"] for run in runs) for method in methods if method in runs[0]]
            cells.append(f"{max(found):.3f}" if found else "")
        accuracy, unknown = (median(run["openradial"][key] for run in runs) for key in ("accuracy", "called unknown"))
        rows.append([name, *cells, f"{100 * accuracy:.1f} %", f"{100 * unknown:.1f} %"])
    return table(["", *columns, "accuracy", "called unknown"], rows)


def _cell(runs: list[Any], method: str, column: str) -> str:
    if column not in runs[0][method]:
        return ""
    values = [run[method][column] for run in runs]
    spread = f" ({min(values):.3f}-{max(values):.3f})" if len(values) > 1 else ""
    return f"{median(values):.3f}{spread}"


def main() -> None:
    """Measure what is missing in the file of results, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--banking", type=Path, required=True)
    parser.add_argument("--tiny", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--again", action="store_true")
    arguments = parser.parse_args()
    sentences, photos = (lambda: banking(arguments.banking)), (lambda: tiny(arguments.tiny))
    published = partial(banking, arguments.banking, is_published=True)
    tasks = [
        Task(f"BANKING77, {k} of 77 intents known", "texts", k, sentences, dict, published) for k in (19, 38, 58, 77)
    ]
    for k in (20, 82):
        far: Callable[[], dict[str, Tensor]] = cache(lambda: far_images({"CIFAR-10": cifar}))
        tasks.append(Task(f"Tiny-ImageNet, {k} of 200 classes known", "images", k, photos, far))
    others = cache(lambda: far_images({"Tiny-ImageNet": photos}))
    tasks.append(Task("CIFAR-10, 6 of 10 classes known", "images", 6, cifar, others))
    console = Console()
    results: dict[str, Any] = json.loads(PATH.read_text()) if PATH.exists() else {"tasks": {}}
    results["environment"] = machine(COMMAND)
    for task in (task for task in tasks if task.name.startswith(arguments.only)):
        splits = results["tasks"].setdefault(task.name, {})
        for seed in range(1 if task.known == 77 else SPLITS):
            before = splits.get(str(seed), {})
            if arguments.again:
                before = {name: row for name, row in before.items() if "openradial" not in name}
            if "openradial" not in before:
                splits[str(seed)] = measure(task, seed, before)
                console.print(task.name, seed, {k: v.get("AUROC") for k, v in splits[str(seed)].items()})
                write_text(PATH, json.dumps(results, indent=1))
    order = [task.name for task in tasks if task.name in results["tasks"]]
    results["tasks"] = {name: results["tasks"][name] for name in order}
    write_text(RESULTS / "pretrained.md", markdown(results))


if __name__ == "__main__":
    main()
