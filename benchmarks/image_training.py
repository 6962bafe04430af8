"""Compare ways to train a network on images, on known classes that are left out.

python -m benchmarks.image_training [--epochs 8] [--pairs 0 1 2] [--only plain softmax] [--work FOLDER]

Of the six known classes of the first split of CIFAR-10 that the field uses, two are left out as novel ones, a pair
after the other, because one pair alone misleads: see decision 20. A network is fitted to the other four classes, with
4,500 training images of each. Its scores see the other 500 of each known class, and 1,000 training images of each class
that was left out. Novel classes of the split and test images are not used. Finished networks are kept; writes
benchmarks/results/image_training.{json,md}, with an empty --only what is there.
"""

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import openradial
from benchmarks.from_scratch import OURS, SPLITS, all_scores, layers_of
from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from openradial.data import Examples, load
from openradial.files import write_text
from openradial.metrics import auroc

PAIRS = ((5, 9), (1, 2), (0, 4))  # classes that are left out
TRAIN, NOVEL = 4_500, 1_000
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "augment 2": {"augment": 2.0},
    "augment 0": {"augment": 0.0},
    "augment 2, cutout 10": {"augment": 2.0, "cutout": 10},
    "second seed": {"seed": 1},
    "distance": {"loss": "distance"},
    "rescaled": {"loss": "rescaled"},
    "label smoothing 0.1": {"label_smoothing": 0.1},
    "mixup 0.2": {"mixup": 0.2},
    "cutout 8": {"cutout": 8},
    "batches of 256": {"batch_size": 256},
    "batches of 2048": {"batch_size": 2048},
    "outliers 0.3, half as many epochs": {"outliers": 0.3},  # they double the work of a step
    "softmax": {"head": "softmax"},
    "4 members, four times as many epochs": {"model_options": {"members": 4}},  # the work of each member is the same
}


def parts_of(left_out: tuple[int, int]) -> tuple[Examples, Examples, Tensor]:
    """Return training examples and held-out ones of the known classes, and images of those that are left out."""
    data = load("cifar10")
    known = [k for k in SPLITS["cifar10"][0] if k not in left_out]
    generator = torch.Generator().manual_seed(0)
    rows = {k: torch.nonzero(data.labels == k)[:, 0] for k in range(10)}
    rows = {k: each[torch.randperm(len(each), generator=generator)] for k, each in rows.items()}
    train, held_out = (torch.cat([rows[k][part] for k in known]) for part in (slice(TRAIN), slice(TRAIN, None)))
    novel = data.inputs[torch.cat([rows[k][:NOVEL] for k in left_out])]
    first, second = (Examples(data.inputs[part], data.labels[part], data.classes) for part in (train, held_out))
    return first, second, novel


def run(way: str, pair: int, epochs: int, out: Path) -> dict[str, Any]:
    """Fit one network, save it, and return its accuracy, its AUROC and its core-minutes."""
    train, held_out, novel = parts_of(PAIRS[pair])
    length = epochs // 2 if "outliers" in WAYS[way] else epochs * WAYS[way].get("model_options", {}).get("members", 1)
    began = time.process_time()
    options: dict[str, Any] = {"method": "gradient", "epochs": length, "baseline": False, "show_progress": False}
    options |= {"out": out, "overwrite": True}
    model = openradial.fit((train.inputs.numpy(), train.labels.numpy()), **options | WAYS[way])
    minutes = (time.process_time() - began) / 60
    inside, outside = all_scores(model, train, [held_out.inputs, novel])
    targets = torch.tensor([model.classes.index(str(int(y))) for y in held_out.labels])
    accuracy = float((layers_of(model, held_out.inputs)["outputs"].argmax(-1) == targets).float().mean())
    scores = {name: auroc(values.numpy(), outside[name].numpy()) for name, values in inside.items() if name != OURS}
    names = [train.classes[k] for k in PAIRS[pair]]
    return {"way": way, "left_out": names, "epochs": length, "accuracy": accuracy, "auroc": scores, "minutes": minutes}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.image_training", description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--pairs", type=int, nargs="*", default=list(range(len(PAIRS))), choices=range(len(PAIRS)))
    parser.add_argument("--only", nargs="*", default=list(WAYS), choices=list(WAYS), metavar="WAY")
    parser.add_argument("--rows", type=Path, default=RESULTS / "image_training", help="folder for finished rows")
    parser.add_argument("--work", type=Path, default=Path("runs/image_training"), help="folder for networks")
    options = parser.parse_args()
    options.rows.mkdir(parents=True, exist_ok=True)
    options.work.mkdir(parents=True, exist_ok=True)
    for pair, way in itertools.product(options.pairs, options.only):
        name = f"{way.replace(' ', '-').replace(',', '')}-{options.epochs}-{pair}"
        path = options.rows / f"{name}.json"
        if not path.exists():
            print(time.strftime("%H:%M:%S"), name, flush=True)
            write_text(path, json.dumps(run(way, pair, options.epochs, options.work / name), indent=1) + "\n")
    rows = [json.loads(path.read_text()) for path in sorted(options.rows.glob("*.json"))]
    rows.sort(key=lambda row: (row["left_out"], row["epochs"], -row["auroc"]["neighbour"]))
    shown = ("neighbour", "Mahalanobis++", "maximum logit", "energy", "distance")
    cells = [
        [
            *(row["way"], ", ".join(row["left_out"]), f"{row['epochs']}"),
            *(f"{row['auroc'][name]:.4f}" if name in row["auroc"] else "" for name in shown),
            *(f"{row['accuracy']:.4f}", f"{row['minutes']:.1f}"),
        ]
        for row in rows
    ]
    header = ["training", "left out", "epochs", *(f"AUROC, {name}" for name in shown), "accuracy", "core-minutes"]
    facts = machine("python -m benchmarks.image_training")
    write_text(RESULTS / "image_training.json", json.dumps({"machine": facts, "rows": rows}, indent=1) + "\n")
    write_text(RESULTS / "image_training.md", "\n".join([*table(header, cells), ""]))


if __name__ == "__main__":
    main()
