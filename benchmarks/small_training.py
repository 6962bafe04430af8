"""Measure the training of the paper's small networks and write benchmarks/results/small_training.{json,md}.

``python -m benchmarks.small_training``, or ``--quick`` for few rounds. For each kind of network in the full
reproduction: one network alone in a plain loop, and all seeds together by ``paper.ensemble_training``, eager and
compiled. From the compiled steps and the recorded minutes of the last full run follows how long a full run takes.
Times are CPU seconds of one thread, so that other programs on the machine hardly change them.
"""

import argparse
import json
import math
import os
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from openradial.bayes import ElboObjective, to_bayesian
from openradial.data import Batches, load
from openradial.files import write_text
from openradial.functional import radial_loss
from openradial.models import MLP
from openradial.training import Objective
from paper.ensemble_training import train_ensemble, training_step

COMMAND = "python -m benchmarks.small_training"
POINTS = load("spiral", n=2000)
BATCH, RATE, DECAY = 50, 5e-4, 0.9
STEPS = 40  # per round
LIMIT = 180  # minutes that a full run may take on two cores
EXACT = 1e-9  # largest relative difference of losses to the plain loop in float64


class Kind(NamedTuple):
    """Networks that the full reproduction trains together."""

    head: str
    hidden: tuple[int, ...]
    seeds: int
    bayesian: bool = False

    @property
    def name(self) -> str:
        width = "x".join(map(str, self.hidden))
        return f"{'bayesian-' * self.bayesian}spiral-{self.head}-{width}, {self.seeds} seeds"

    @property
    def objective(self) -> Any:
        loss = radial_loss if self.head == "radial" else F.cross_entropy
        return ElboObjective(loss, len(POINTS) // BATCH, BATCH) if self.bayesian else Objective(loss)

    def build(self) -> nn.Module:
        net = MLP(3, inputs=2, hidden=self.hidden)
        return to_bayesian(net) if self.bayesian else net


# and the microseconds per step of the hand-written backward passes and optimisers that were removed in November 2026,
# measured in CPU time on the same machine
KINDS = {
    Kind("softmax", (50, 50, 2), 10): 516.9,
    Kind("softmax", (50, 50, 50), 10): 731.1,
    Kind("radial", (50, 50, 50), 10): 689.7,
    Kind("softmax", (50, 50, 50), 5): 401.4,
    Kind("radial", (50, 50, 50), 5): 396.6,
    Kind("softmax", (100, 100, 100), 5): 861.7,
    Kind("radial", (100, 100, 100), 5): 816.4,
    Kind("softmax", (50, 50, 2), 10, bayesian=True): 1419.4,
    Kind("softmax", (50, 50, 50), 10, bayesian=True): 2410.5,
    Kind("radial", (50, 50, 50), 10, bayesian=True): 2326.7,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds; for trying it out, not for the docs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    console, rounds = Console(), 3 if options.quick else 15
    kinds = {}
    for kind, before in KINDS.items():
        with console.status(kind.name):
            kinds[kind.name] = {"before": before, **measure(kind, rounds)}
        console.print(f"{kind.name}: {kinds[kind.name]}")
    results = {
        "environment": machine(COMMAND) | {"load_average_at_the_end": os.getloadavg()[1], "rounds": rounds},
        "microseconds_per_step": kinds,
        "largest_relative_difference_of_losses": difference(),
        "full_run": estimate(kinds),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    write_text(options.out / "small_training.json", json.dumps(results, indent=1) + "\n")
    write_text(options.out / "small_training.md", markdown(results))
    console.print(markdown(results), markup=False)


def measure(kind: Kind, rounds: int) -> dict[str, float]:
    """Return the median CPU microseconds per step: a plain loop with one network, and all seeds together."""
    torch.manual_seed(0)
    networks = [kind.build().train() for _ in range(kind.seeds)]
    return {
        "plain loop, one network": microseconds(plain_step(kind), 1, rounds),
        "together": microseconds(
            training_step(networks, kind.objective, RATE, DECAY, compile=False)[1], kind.seeds, rounds
        ),
        "together, compiled": microseconds(
            training_step(networks, kind.objective, RATE, DECAY, compile=True)[1], kind.seeds, rounds
        ),
    }


def plain_step(kind: Kind) -> Callable[[Tensor, Tensor], Tensor]:
    net, objective = kind.build().train(), kind.objective
    optimiser = torch.optim.RMSprop(net.parameters(), lr=RATE, alpha=DECAY)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimiser.zero_grad()
        loss: Tensor = objective(net, x[0], y[0])[0]
        loss.backward()
        optimiser.step()
        return loss

    return step


def microseconds(step: Callable[[Tensor, Tensor], Tensor], seeds: int, rounds: int) -> float:
    order = torch.stack([torch.randperm(len(POINTS)) for _ in range(seeds)]).view(seeds, STEPS, BATCH).transpose(0, 1)
    batches = list(zip(POINTS.inputs[order].unbind(), POINTS.labels[order].unbind(), strict=True))
    samples = []
    for _ in range(rounds + 1):
        start = time.process_time()
        for x, y in batches:
            step(x, y)
        samples.append(1e6 * (time.process_time() - start) / STEPS)
    return round(statistics.median(samples[1:]), 1)  # the first round compiles


def difference() -> float:
    """Return the largest relative difference of 400 losses to a plain loop's in float64, over heads and seeds."""
    differences = []
    for kind in (Kind("radial", (50, 50, 50), 3), Kind("softmax", (50, 50, 2), 3)):
        together = train_ensemble(
            kind.build, kind.objective, POINTS, range(kind.seeds), epochs=10, dtype=torch.float64, compile=False
        )[1]
        for seed in range(kind.seeds):
            torch.manual_seed(seed)
            net = kind.build().double()
            optimiser = torch.optim.RMSprop(net.parameters(), lr=RATE, alpha=DECAY)
            source = Batches(POINTS, BATCH, shuffle=True, seed=seed)
            for step, (x, y) in enumerate(batch for epoch in range(10) for batch in source.epoch(epoch)):
                optimiser.zero_grad()
                loss, _ = kind.objective(net, x.double(), y)
                loss.backward()
                optimiser.step()
                differences.append(abs(float(loss.detach() - together[step, seed])) / float(loss.detach()))
    return max(differences)


def estimate(kinds: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return the minutes of a full run: measured steps for the spiral networks, recorded minutes for all else."""
    records = [json.loads(path.read_text()) for path in sorted((RESULTS / "reproduction").glob("*.json"))]
    parts = {name: seconds for record in records for name, seconds in record["parts"].items()}
    rest = sum(record["seconds"] - sum(record["parts"].values()) for record in records)
    pattern = r"((?:bayesian-)?spiral-\w+-[\dx]+)-(\d+)-(\d+)-[\d.]+-(\d+)-.*\.safetensors"
    recorded, now = 0.0, 0.0
    for name, seconds in parts.items():
        if (match := re.fullmatch(pattern, name)) is None:
            rest += seconds
            continue
        kind, epochs, seeds, points = match.groups()
        steps = int(epochs) * math.ceil(int(points) / BATCH)
        recorded += seconds
        now += 15 + 1e-6 * steps * kinds[f"{kind}, {seeds} seeds"]["together, compiled"]  # 15 s to compile
    values = {"spiral networks, recorded": recorded, "spiral networks, now": now, "all else, recorded": rest}
    minutes = {name: round(seconds / 60, 1) for name, seconds in values.items()}
    return minutes | {"in all, on two cores": round((now + rest) / 60 / 2, 1)}


def markdown(results: dict[str, Any]) -> str:
    env, kinds, run = results["environment"], results["microseconds_per_step"], results["full_run"]
    names = list(next(iter(kinds.values())))
    rows = [
        [name, *("" if values[each] is None else f"{values[each]:.0f}" for each in names)]
        for name, values in kinds.items()
    ]
    gap, total = results["largest_relative_difference_of_losses"], run["in all, on two cores"]
    return "\n".join(
        [
            f"Written by `{env['command']}` on {env['date']}: {env['cpu']}, one thread of {env['cores']} cores, torch "
            f"{env['torch']}, Python {env['python']}. Spiral of 2,000 points, batches of {BATCH}, RMSprop; CPU time, "
            f"medians of {env['rounds']} rounds of {STEPS} steps; load average {env['load_average_at_the_end']:.1f}. "
            "*before*: the hand-written backward passes and optimisers that this replaced.",
            "",
            *table(["microseconds per step of all seeds", *names], rows),
            "",
            f"The losses of 400 steps in float64 differ from those of plain loops by {gap:.0e} at most, relatively "
            f"(limit {EXACT:.0e}: {'holds' if gap <= EXACT else 'DOES NOT HOLD'}). A full run of `python -m paper all "
            f"--jobs 2`: the networks on the spiral take {run['spiral networks, now']:.0f} minutes of one core "
            f"({run['spiral networks, recorded']:.0f} recorded before, on a busy machine), all else "
            f"{run['all else, recorded']:.0f}; on two cores {total:.0f} minutes in all "
            f"(limit {LIMIT}: {'holds' if total <= LIMIT else 'DOES NOT HOLD'}).",
            "",
        ]
    )


if __name__ == "__main__":
    main()
