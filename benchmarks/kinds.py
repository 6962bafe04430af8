"""What each kind of made outlier is worth for tables, sequences and texts: python -m benchmarks.kinds --work DIR.

Two thirds of the classes are known. Each row is one network; five draws of the known classes, which are the
seeds of training too. Writes benchmarks/results/kinds.{json,md}. A run that was killed resumes.
"""

import argparse
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from openradial.data import Batches, Examples, divide, random_split, train_test_split
from openradial.errors import OptionError
from openradial.files import write_text
from openradial.heads import RadialHead, SoftmaxHead
from openradial.metrics import auroc
from openradial.nn import hidden_layers
from openradial.scorers import Combination, NeighbourScorer
from openradial.training import Objective, fit
from openradial.training.outliers import DEFAULTS, OutlierObjective
from paper.sequence_tasks import TASKS, Task

SEEDS = 5
KNOWN = 2 / 3  # of the classes
KINDS = {"digits": "table", "reuters": "texts", "vowels": "sequences"}
LAST = "classifier:input"
SOFTMAX, NONE = "softmax, msp", "radial, no outliers"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kinds", description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("runs/kinds"), help="folder for finished rows")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    console = Console()
    results: dict[str, dict[str, list[Any]]] = {}
    for task in TASKS["full"]:
        rows = results.setdefault(f"{KINDS[task.name]}: {task.title}", {})
        for way, kinds in ways(KINDS[task.name]).items():
            rows[way] = [kept(options.work, task, way, kinds, seed, console) for seed in range(SEEDS)]
    where = machine("python -m benchmarks.kinds")
    write_text(RESULTS / "kinds.json", json.dumps({"machine": where, "rows": results}, indent=1) + "\n")
    write_text(RESULTS / "kinds.md", markdown(where, results))


def ways(sort: str) -> dict[str, Sequence[str] | None]:
    """Rows of the table: the kinds of outlier of each, none of them for the radial layer alone, None for softmax."""
    kinds = DEFAULTS[sort]
    return {SOFTMAX: None, NONE: ()} | {f"{kind} alone": (kind,) for kind in kinds} | {" + ".join(kinds): kinds}


def kept(work: Path, task: Task, way: str, kinds: Sequence[str] | None, seed: int, console: Console) -> Any:
    path = work / f"{task.name}-{way}-{seed}.json"
    if not path.exists():
        console.print(f"{task.title}: {way}, seed {seed}")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(measured(task, kinds, seed)) + "\n")
    return json.loads(path.read_text())


def measured(task: Task, kinds: Sequence[str] | None, seed: int) -> dict[str, float]:
    """Accuracy, and the AUROC of the head's score and of the recipe's."""
    train, test = task.data("train"), task.data("test")
    split = random_split(train.classes, round(KNOWN * len(train.classes)), seed)
    seen, held_out = train_test_split(divide(train, split)[0], 0.2, seed)
    known, novel = divide(test, split)
    net = network(task, seen, kinds, seed)
    layers = {name: passed(net, part.inputs) for name, part in zip("shkn", (seen, held_out, known, novel), strict=True)}
    head = SoftmaxHead(len(split.known)) if kinds is None else RadialHead(len(split.known))
    near = NeighbourScorer(k=1).fit(layers["s"][LAST], seen.labels)
    scores = {
        name: torch.stack([head.unknown_score(z["outputs"]), near.unknown_score(z[LAST])], 1)
        for name, z in layers.items()
    }
    merge = merged(scores["h"])
    return {
        "accuracy": float((head.predict(layers["k"]["outputs"]) == known.labels).double().mean()),
        "head": auroc(scores["k"][:, 0].numpy(), scores["n"][:, 0].numpy()),
        "recipe": auroc(merge.unknown_score(scores["k"]).numpy(), merge.unknown_score(scores["n"]).numpy()),
    }


def merged(held_out: Tensor) -> Combination:
    """As ``openradial fit`` does it: texts that are equal have distance 0, of which there is no logarithm."""
    try:
        return Combination("standardised").fit(held_out)
    except OptionError:
        return Combination("fisher").fit(held_out)


def network(task: Task, seen: Examples, kinds: Sequence[str] | None, seed: int) -> nn.Module:
    k = len(seen.classes)
    loss = SoftmaxHead(k).loss if kinds is None else RadialHead(k, loss="squared").loss
    epochs = math.ceil(task.steps / math.ceil(len(seen) / task.training.batch_size))
    settings = replace(task.training, seed=seed, epochs=epochs)
    torch.manual_seed(seed)
    net = task.build(k)
    batches = Batches(seen, settings.batch_size, shuffle=True, seed=seed)
    fit(net, OutlierObjective(loss, kinds) if kinds else Objective(loss), batches, settings=settings)
    return net.eval()


@torch.no_grad()
def passed(net: nn.Module, inputs: Tensor) -> dict[str, Tensor]:
    parts = [hidden_layers(net, x, ["outputs", LAST]) for x in inputs.split(1024)]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def markdown(where: dict[str, Any], results: dict[str, dict[str, list[Any]]]) -> str:
    lines = [f"Written by `{where['command']}` on {where['date']}: {where['cpu']}, {where['cores']} cores.", ""]
    heads = ["network", "accuracy", "AUROC, distance or probability", "AUROC, with the nearest neighbour"]
    for title, rows in results.items():
        cells = [
            [way, *(spread([one[n] for one in own]) for n in ("accuracy", "head", "recipe"))]
            for way, own in rows.items()
        ]
        lines += [f"**{title}**, {SEEDS} draws of the known classes", "", *table(heads, cells), ""]
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    return f"{statistics.fmean(values):.3f} ± {2 * statistics.stdev(values):.3f}"


if __name__ == "__main__":
    main()
