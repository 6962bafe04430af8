"""How the recipe was chosen, and what each part of it is worth.

python -m benchmarks.recipe choice --work DIR     known classes left out, no test data, no novel data
python -m benchmarks.recipe ablation --work DIR   the recipe with one thing changed, on five splits of MNIST's classes

Writes benchmarks/results/recipe_{choice,ablation}.{json,md}. Killed, it goes on where it was.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.machine import machine
from benchmarks.run import RESULTS, write
from openradial.comparison import Comparison, compare
from openradial.comparison.methods import (
    CONVOLUTION,
    DISTANCE,
    FULLY,
    LAST,
    NEAR,
    NEAR_CONVOLUTION,
    PARZEN,
    RECIPE,
    Method,
    Part,
)
from openradial.comparison.networks import NETWORKS, Network
from openradial.comparison.report import groups, markdown, summarised
from openradial.heads import MahalanobisDensity, NeighbourDensity, RadialHead

OURS = NETWORKS[RECIPE]
CHANGED: dict[str, Network] = {
    "no outliers": replace(OURS, outliers=()),
    "the paper's loss": replace(OURS, head=RadialHead),
    "weight 0.1": replace(OURS, weight=0.1),
    "weight 1": replace(OURS, weight=1.0),
    **{f"outliers: {kind} alone": replace(OURS, outliers=(kind,)) for kind in OURS.outliers},
    "constant learning rate": replace(OURS, settings={"schedule": "constant"}),
    "batches of 1024": replace(OURS, settings={"batch_size": 1024}),
}


def near(k: int, place: str) -> Part:
    return Part(f"{k}-NN, {place}", place, lambda _: NeighbourDensity(k=k))


MERGED = (DISTANCE, NEAR, NEAR_CONVOLUTION)
SCORES: dict[str, tuple[Part, ...]] = {
    "distance": (DISTANCE,),
    "fully connected": (NEAR,),
    "convolution": (NEAR_CONVOLUTION,),
    "distance + fully connected": (DISTANCE, NEAR),
    "distance + convolution": (DISTANCE, NEAR_CONVOLUTION),
    "distance + both": MERGED,
    "distance + both + last hidden": (*MERGED, near(1, LAST)),
    "distance + both, 10 neighbours": (DISTANCE, near(10, FULLY), near(10, CONVOLUTION)),
    "distance + Parzen window": (DISTANCE, PARZEN),
    "distance + Mahalanobis": (DISTANCE, Part("Mahalanobis", FULLY, lambda _: MahalanobisDensity())),
}
MERGES = ("fisher", "mean", "min", "cauchy")


def methods() -> list[Method]:
    """The recipe's network with every score; every other network with the recipe's score."""
    rows = [Method(f"recipe; {name}", RECIPE, parts, merge_of(parts)) for name, parts in SCORES.items()]
    rows += [Method(f"recipe; distance + both, {merge}", RECIPE, MERGED, merge) for merge in MERGES]
    return rows + [Method(f"{name}; distance + both", name, MERGED, "standardised") for name in CHANGED]


def merge_of(parts: tuple[Part, ...]) -> str | None:
    return "standardised" if len(parts) > 1 else None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recipe", description=__doc__)
    parser.add_argument("part", choices=["choice", "ablation"])
    parser.add_argument("--work", type=Path, default=Path("runs/recipe"), help="folder for networks and rows")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--splits", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    comparison = Comparison(
        "mnist",
        splits=options.splits,
        whole=False,
        choosing=options.part == "choice",
        methods=methods(),
        networks=NETWORKS | CHANGED,
    )
    rows = compare(comparison, options.work / options.part, resume=True, report=Console().print)
    save(f"recipe_{options.part}", rows)


def save(name: str, rows: list[dict[str, Any]]) -> None:
    where = machine(f"python -m benchmarks.{name.replace('_', ' ')}")
    found = {group: summarised(own) for group, own in groups(rows).items()}
    write(RESULTS / f"{name}.json", json.dumps({"machine": where, "summary": found, "rows": rows}, indent=1) + "\n")
    head = f"Written by `{where['command']}` on {where['date']}: {where['cpu']}, {where['cores']} cores."
    write(RESULTS / f"{name}.md", f"{head}\n\n{markdown(rows)}")


if __name__ == "__main__":
    main()
