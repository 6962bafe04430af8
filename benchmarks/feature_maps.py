"""Compare scores of feature maps of networks that were trained from scratch, on known classes that were left out.

python -m benchmarks.feature_maps [--work FOLDER]

Takes the networks that benchmarks.image_training left in FOLDER: of each, two known classes of CIFAR-10 were left out.
All scores compare an image with 10,000 training images; benchmarks/results/feature_maps.{json,md} has their AUROC.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import openradial
from benchmarks.from_scratch import FEATURES, MAPS, REFERENCES, layers_of
from benchmarks.image_training import PAIRS, parts_of
from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from openradial.files import write_text
from openradial.metrics import auroc
from openradial.models import FastCNN
from openradial.models.fast_cnn import PARTS
from openradial.scorers import Combination, NeighbourScorer

OURS: dict[str, Any] = {"k": 5, "reduce": "mean", "normalise": True, "components": 512}
USUAL = "three maps, 3 x 3 parts, roots, 512 components, mean of 5"
WEIGHTS = (8.0, 4.0, 2.0, 1.0)
Rows = dict[str, Tensor]


def ways(net: FastCNN, rows: Rows) -> dict[str, tuple[Tensor, dict[str, Any]]]:
    """Return the features of each way to compare images, with the settings of the scorer."""
    maps = rows[MAPS].unflatten(1, (-1, PARTS**2))  # (n, channels, parts)
    last = maps[:, -net.classifier.in_features :].flatten(1)
    return {
        "last hidden layer, nearest": (rows[FEATURES], {"k": 1, "normalise": True}),
        "last map, nearest": (last, {"k": 1, "normalise": True}),
        "last map, 512 components, mean of 5": (last, OURS),
        USUAL: (rows[MAPS], OURS),
        "the same without roots": (rows[MAPS].square(), OURS),
        "the same with means over the whole image": (maps.square().mean(2).sqrt(), OURS),
        "the same without components": (rows[MAPS], OURS | {"components": 0}),
        "the same with 128 components": (rows[MAPS], OURS | {"components": 128}),
        "the same with the nearest": (rows[MAPS], OURS | {"k": 1}),
        "the same with the fifth nearest": (rows[MAPS], OURS | {"reduce": "kth"}),
    }


def measure(folder: Path) -> dict[str, float]:
    """Return the AUROC of each way for one network."""
    model = openradial.load(folder)
    assert isinstance(model.net, FastCNN)
    train, held_out, novel = parts_of(PAIRS[int(folder.name.rsplit("-", 1)[1])])
    chosen = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:REFERENCES]
    layers = [layers_of(model, inputs) for inputs in (train.inputs[chosen], held_out.inputs, novel)]
    references, inside, outside = (ways(model.net, rows) for rows in layers)
    found, scores = {}, {}
    for name, (z, settings) in references.items():
        scorer = NeighbourScorer(**settings).fit(z)
        scores[name] = [scorer.unknown_score(part[name][0]) for part in (inside, outside)]
        found[name] = auroc(*(part.numpy() for part in scores[name]))
    distances = [model.head.compute(rows["outputs"]).unknown_score for rows in layers[1:]]
    for weight in WEIGHTS:
        columns = [torch.stack(pair, 1) for pair in zip(distances, scores[USUAL], strict=True)]
        merge = Combination("standardised", weights=(1.0, weight)).fit(columns[0])
        found[f"radial score + {weight:g} x ours"] = auroc(*(merge.unknown_score(part).numpy() for part in columns))
    return found | {"radial score alone": auroc(*(part.numpy() for part in distances))}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.feature_maps", description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("runs/image_training"), help="folder of networks")
    folders = sorted(path.parent for path in parser.parse_args().work.glob("*/bundle.json"))
    found = {folder.name: measure(folder) for folder in folders}
    names = list(next(iter(found.values())))
    cells = [[name.replace(USUAL, f"{USUAL} (ours)"), *(f"{found[net][name]:.4f}" for net in found)] for name in names]
    text = "\n".join(["AUROC of left-out known classes, a column per network:", "", *table(["score", *found], cells)])
    facts = {"machine": machine("python -m benchmarks.feature_maps"), "auroc": found}
    write_text(RESULTS / "feature_maps.json", json.dumps(facts, indent=1) + "\n")
    write_text(RESULTS / "feature_maps.md", text + "\n")


if __name__ == "__main__":
    main()
