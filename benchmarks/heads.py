"""Time what heads cost after training and write benchmarks/results/heads.{json,md}.

python -m benchmarks.heads, or with --quick in quick mode.
"""

import argparse
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.heads_knn import markdown_knn, measure_knn
from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from benchmarks.timing import duel
from openradial.files import write_text
from openradial.heads import OpenMaxHead
from openradial.heads.openmax import OpenMaxDistance

SEED = 0
CLASSES, EXAMPLES, ROWS = (10, 100, 1000), 30, 1000
DISTANCES: tuple[OpenMaxDistance, ...] = ("euclidean", "combined")
AT_MOST = {1000: 2.0}  # seconds of fitting so many classes: set before measuring


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.heads", description="Time what heads cost.")
    parser.add_argument("--quick", action="store_true", help="few rounds; for trying it out, not for the docs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    options = parser.parse_args()
    results: dict[str, Any] = {"environment": environment(), "openmax": measure_openmax(2 if options.quick else 9)}
    torch.set_num_threads(results["environment"]["cores"])
    results["knn"] = measure_knn(options.quick)
    results["environment"]["load_average_at_end"] = os.getloadavg()[1]
    options.out.mkdir(parents=True, exist_ok=True)
    write_text(options.out / "heads.json", json.dumps(results, indent=1) + "\n")
    write_text(options.out / "heads.md", markdown(results))
    print((options.out / "heads.md").read_text())


def measure_openmax(rounds: int) -> list[dict[str, Any]]:
    """Seconds of fitting so many classes with 30 examples each, and of all answers for 1,000 rows."""
    cases = []
    for num_classes in CLASSES:
        o, y = outputs(num_classes, EXAMPLES * num_classes)
        rows, _ = outputs(num_classes, ROWS)
        for threads in (2, 1):
            torch.set_num_threads(threads)
            for distance in DISTANCES:
                head = OpenMaxHead(num_classes, distance=distance).fit(o, y)
                fit = partial(OpenMaxHead(num_classes, distance=distance).fit, o, y)
                timings = duel({"fit": fit, "predict": partial(answer, head, rows)}, rounds=rounds)
                case: dict[str, Any] = {
                    "classes": num_classes,
                    "examples": len(o),
                    "threads": threads,
                    "distance": distance,
                }
                case["seconds"] = {name: timing.as_dict() for name, timing in timings.items()}
                cases.append(case | {"at_most_s": AT_MOST.get(num_classes)})
    return cases


def outputs(num_classes: int, count: int) -> tuple[Tensor, Tensor]:
    """Outputs of a network that is nearly always right, float32, with their classes."""
    y = torch.arange(count) % num_classes
    o = 2 * torch.randn(count, num_classes, generator=torch.Generator().manual_seed(SEED))
    o[torch.arange(count), y] += 12
    return o, y


def answer(head: OpenMaxHead, o: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        return head.log_probs(o), head.unknown_score(o)


def environment() -> dict[str, Any]:
    return machine(" ".join(["python -m benchmarks.heads", *sys.argv[1:]])) | {
        "seed": SEED,
        "load_average_at_start": os.getloadavg()[1],
    }


def markdown(results: dict[str, Any]) -> str:
    env, cases = results["environment"], results["openmax"]
    lines = [
        f"Written by `{env['command']}` on {env['date']}: {env['cpu']}, {env['cores']} cores, torch {env['torch']}, "
        f"Python {env['python']}, seed {env['seed']}; medians of {cases[0]['seconds']['fit']['rounds']} rounds. Load "
        f"average at the start {env['load_average_at_start']:.1f}, at the end {env['load_average_at_end']:.1f}.",
        "",
        f"**OpenMax**: fitting {EXAMPLES} float32 outputs per class, in seconds, and log-probabilities and scores of "
        f"{ROWS:,} rows, in milliseconds.",
        "",
        *table(["classes", "threads", "distance", "fit, s", "at most", "holds", "predict, ms"], openmax_rows(cases)),
        "",
        "**k nearest neighbours**",
        "",
        markdown_knn(results["knn"]),
    ]
    return "\n".join(lines)


def openmax_rows(cases: list[dict[str, Any]]) -> list[list[str]]:
    rows = []
    for case in cases:
        fit, predict = (case["seconds"][name]["median_s"] for name in ("fit", "predict"))
        limit = case["at_most_s"]
        verdict = "" if limit is None else "yes" if fit <= limit else "NO"
        rows.append([f"{case['classes']:,}", str(case["threads"]), case["distance"], f"{fit:.4f}"])
        rows[-1] += ["" if limit is None else f"{limit:g}", verdict, f"{1e3 * predict:.1f}"]
    return rows


if __name__ == "__main__":
    main()
