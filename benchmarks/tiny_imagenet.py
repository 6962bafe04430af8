"""The ILSVRC path on Tiny-ImageNet: all classes but artifacts known, radial layer, pre-trained and from scratch.

python -m benchmarks.tiny_imagenet --root PATH (a folder or an archive; about an hour on two cores)

Writes benchmarks/results/tiny_imagenet.{json,md}. Killed, it goes on where it was.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from openradial.training.execution import run_job
from openradial.training.job import Job
from rich.console import Console

from benchmarks.machine import machine
from benchmarks.run import RESULTS, table, write

SHARED = {"known": "not:n00021939", "augment": True}
TRAINING = {"learning_rate": 1e-4, "channels_last": True, "checkpoint_seconds": 120}
LITE0 = {"model": "efficientnet_lite0", "weights": "imagenet", "size": 64, "scale": 5.0}
RUNS: dict[str, dict[str, Any]] = {
    "EfficientNet-Lite0, pre-trained": LITE0 | {"training": {"batch_size": 64, "epochs": 6}},
    "ResNet-18, from scratch": {
        "model": "resnet18",
        "size": 64,
        "training": {"batch_size": 128, "epochs": 10, "learning_rate": 1e-3, "schedule": "cosine"},
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tiny_imagenet", description=__doc__)
    parser.add_argument("--root", required=True, help="Tiny-ImageNet, a folder or an archive")
    parser.add_argument("--work", type=Path, default=Path("runs/tiny-imagenet"), help="folder for checkpoints")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    console, rows = Console(), []
    for name, values in RUNS.items():
        job = Job.from_mapping(
            {"data": f"tiny-imagenet:{options.root}"} | SHARED | values | {"training": TRAINING | values["training"]}
        )
        place = options.work / name.lower().replace(", ", "-")
        result = run_job(job, place, resume=True, report=lambda record: console.print(line(record)))
        if not result.history.finished:
            raise SystemExit(f"stopped by {result.history.stopped_by}; the same command goes on")
        console.print(f"[bold]{name}[/bold]: {result.test}")
        described = {key: value for key, value in job.as_dict().items() if key != "data"}
        rows.append({"name": name, "test": result.test, "job": described, "epochs": result.history.records})
        save(rows, options.threads)


def line(record: dict[str, Any]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in record.items())


def save(rows: list[dict[str, Any]], threads: int) -> None:
    facts = machine("python -m benchmarks.tiny_imagenet --root PATH") | {"threads": threads}
    write(RESULTS / "tiny_imagenet.json", json.dumps({"environment": facts, "runs": rows}, indent=1) + "\n")
    write(RESULTS / "tiny_imagenet.md", markdown(rows, facts))


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
            f"{row['job']['size']}",
            f"{len(row['epochs'])}",
            f"{100 * row['test']['accuracy']:.1f}",
            f"{100 * row['test']['top_5_accuracy']:.1f}",
            f"{100 * row['test']['auroc']:.1f}",
            f"{sum(record['seconds'] for record in row['epochs']) / 60:.0f}",
        ]
        for row in rows
    ]
    names = ["run", "pixels", "epochs", "top-1 (%)", "top-5 (%)", "AUROC known/novel (%)", "training (min)"]
    return "\n".join([heading, "", *table(names, cells), ""])


if __name__ == "__main__":
    main()
