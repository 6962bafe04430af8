"""Measure what the size of photographs and several views are worth on frozen features.

python -m benchmarks.views --tiny PATH (a quarter of an hour on two cores; features are cached)

PATH is a folder or an archive of Tiny-ImageNet. 20 random classes are known, 20 others novel; two splits, with the
encoder efficientnet_lite0 unless another is named. Writes benchmarks/results/views.{json,md}.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from benchmarks.machine import machine
from benchmarks.photos import measure_photographs
from benchmarks.run import RESULTS, table
from openradial import encoders
from openradial.encoders import FeatureCache
from openradial.files import write_text
from paper.imagenet.tiny_imagenet import tiny_imagenet

COMMAND = "python -m benchmarks.views --tiny PATH"
SPLITS, KNOWN, TRAIN, TEST = 2, 20, 40, 20
WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("efficientnet_lite0", {"size": 160}),
    ("efficientnet_lite0", {}),
    ("efficientnet_lite0", {"size": 288}),
    ("efficientnet_lite0", {"views": "flip"}),
    ("efficientnet_lite0", {"views": "crops"}),
    ("mobilenetv2", {}),
    ("efficientnet_lite2", {}),
)


def photographs(path: Path, part: str, classes: Tensor, count: int) -> tuple[list[Path], Tensor]:
    """Return the first photographs of classes, and their labels."""
    folder = tiny_imagenet(path, part)
    rows = torch.cat([(folder.labels == k).nonzero().squeeze(1)[:count] for k in classes])
    return [Path(folder.paths[i]) for i in rows.tolist()], torch.arange(len(classes)).repeat_interleave(count)


def measure(path: Path, name: str, options: dict[str, Any], seed: int) -> dict[str, float]:
    """Return accuracy, AUROC and the speed of the encoder for one split."""
    drawn = torch.randperm(200, generator=torch.Generator().manual_seed(seed))
    encoder, found, seconds, encoded = encoders.load(name, **options), [], 0.0, 0
    parts = ((drawn[:KNOWN], "train", TRAIN), (drawn[:KNOWN], "val", TEST), (drawn[KNOWN : 2 * KNOWN], "val", TEST))
    for classes, part, count in parts:
        files, labels = photographs(path, part, classes, count)
        began = time.perf_counter()
        features, _ = encoders.encode(encoder, files, cache=FeatureCache(encoder.key))
        seconds, encoded = seconds + time.perf_counter() - began, encoded + len(files)
        found.append((features, labels))
    (z, y), (x, t), (novel, _) = found
    labels = torch.cat([t, torch.full((len(novel),), -1)])
    values = measure_photographs(z, y, torch.cat([x, novel]), labels, encoder.num_features, seed)
    return values | {"images per second": encoded / seconds}


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", type=Path, required=True)
    arguments = parser.parse_args()
    results: dict[str, Any] = {"environment": machine(COMMAND), "ways": []}
    console, rows = Console(), []
    for name, options in WAYS:
        runs = [measure(arguments.tiny, name, options, seed) for seed in range(SPLITS)]
        results["ways"].append({"encoder": name, "options": options, "splits": runs})
        shown = ", ".join(f"{key} {value}" for key, value in options.items()) or "as published"
        rows.append([name, shown, *(f"{fmean(run[key] for run in runs):.3f}" for key in ("accuracy", "AUROC"))])
        console.print(rows[-1])
    environment = results["environment"]
    lines = [
        f"Mean over {SPLITS} splits of Tiny-ImageNet's classes, {KNOWN} known and {KNOWN} novel, {TRAIN} images per",
        "class for training. Pre-trained encoders; the photographs have 64 pixels and are enlarged.",
        "",
        *table(["encoder", "options", "accuracy", "AUROC"], rows),
        "",
        f"`{COMMAND}`, {environment['cpu']}, {environment['date']}",
    ]
    write_text(RESULTS / "views.json", json.dumps(results, indent=1))
    write_text(RESULTS / "views.md", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
