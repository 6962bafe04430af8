"""Train the radial layer on Tiny-ImageNet, all classes but artifacts known: pre-trained and from scratch.

python -m benchmarks.tiny_imagenet --root PATH (a folder or an archive; about an hour on two cores)

Writes benchmarks/results/tiny_imagenet.{json,md}. A run that was killed resumes.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from torch import nn

from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from openradial import models
from openradial.data import Normalise
from openradial.files import write_text
from openradial.heads import RadialHead
from openradial.training import Objective, Settings, fit
from paper.image_nets import measured, start_near_zero, tiny_imagenet_parts


class Network(NamedTuple):
    """A network, the scale of its prototypes and its training."""

    build: Callable[[int], nn.Module]
    scale: float
    normalise: Normalise
    training: Settings


def pretrained(k: int) -> nn.Module:
    return start_near_zero(models.build("efficientnet_lite0", k, weights="imagenet"))


def networks() -> dict[str, Network]:
    weights = models.imagenet_weights("efficientnet_lite0")
    shared: dict[str, Any] = {"channels_last": True, "checkpoint_seconds": 120}
    return {
        "EfficientNet-Lite0, pre-trained": Network(
            pretrained,
            5.0,
            Normalise(weights.mean, weights.std),
            Settings(epochs=6, batch_size=64, learning_rate=1e-4, **shared),
        ),
        "ResNet-18, from scratch": Network(
            partial(models.build, "resnet18"),
            1.0,
            Normalise((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            Settings(epochs=10, batch_size=128, learning_rate=1e-3, schedule="cosine", **shared),
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tiny_imagenet", description=__doc__)
    parser.add_argument("--root", required=True, help="Tiny-ImageNet, a folder or an archive")
    parser.add_argument("--work", type=Path, default=Path("runs/tiny-imagenet"), help="folder for checkpoints")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    console, rows = Console(), []
    for name, network in networks().items():
        folder = options.work / name.lower().replace(", ", "-")
        rows.append({"name": name} | run(network, options.root, folder, console))
        console.print(f"[bold]{name}[/bold]: {rows[-1]['test']}")
        save(rows, options.threads)


def run(network: Network, root: str, folder: Path, console: Console) -> dict[str, Any]:
    parts = tiny_imagenet_parts(root, network.training, network.normalise)
    k = parts.classes["known_classes"]
    head = RadialHead(k, scale=network.scale)
    torch.manual_seed(network.training.seed)
    net = network.build(k)
    history = fit(
        net,
        Objective(head.loss),
        parts.train,
        parts.validation,
        settings=network.training,
        folder=folder,
        resume=True,
        report=lambda record: console.print("  ".join(f"{name} {value:.4g}" for name, value in record.items())),
    )
    if not history.finished:
        raise SystemExit(f"stopped by {history.stopped_by}; the same command resumes")
    numbers = measured(net.eval(), head, parts)
    counts = {"known_examples": len(parts.known.labels), "novel_examples": len(parts.novel.labels)}
    test = parts.classes | counts | {key: numbers[key] for key in ("top_1", "top_5", "auroc")}
    return {"test": test, "scale": network.scale, "training": network.training.as_dict(), "epochs": history.records}


def save(rows: list[dict[str, Any]], threads: int) -> None:
    facts = machine("python -m benchmarks.tiny_imagenet --root PATH") | {"threads": threads}
    write_text(RESULTS / "tiny_imagenet.json", json.dumps({"environment": facts, "runs": rows}, indent=1) + "\n")
    write_text(RESULTS / "tiny_imagenet.md", markdown(rows, facts))


def markdown(rows: list[dict[str, Any]], facts: dict[str, Any]) -> str:
    test = rows[0]["test"]
    heading = (
        f"Written by `{facts['command']}` ({facts['cpu']}, {facts['threads']} thread(s), one seed): Tiny-ImageNet, "
        f"{test['known_classes']} known classes ({test['known_examples']:,} validation images) and "
        f"{test['novel_classes']} novel ones ({test['novel_examples']:,})."
    )
    cells = [
        [
            row["name"],
            "64",
            f"{len(row['epochs'])}",
            *(f"{100 * row['test'][key]:.1f}" for key in ("top_1", "top_5", "auroc")),
            f"{sum(record['seconds'] for record in row['epochs']) / 60:.0f}",
        ]
        for row in rows
    ]
    names = ["run", "pixels", "epochs", "top-1 (%)", "top-5 (%)", "AUROC known/novel (%)", "training (min)"]
    return "\n".join([heading, "", *table(names, cells), ""])


if __name__ == "__main__":
    main()
