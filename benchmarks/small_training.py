"""Measure the training of small networks on the paper's spiral and write benchmarks/results/small_training.{json,md}.

Every rival trains from seed to finished network: the same start, the same batches, one thread (at this size a second
one gains little, and loses much where other programs want it).
``python -m benchmarks.small_training``, or with ``--quick`` a glance.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from openradial.training.flat_optimisers import make_update
from openradial.training.stacked import has_compiler, train_stacked
from openradial.training.stacks import FunctionalStack
from rich.console import Console
from torch import Tensor, nn

from benchmarks.machine import machine
from benchmarks.run import RESULTS, table, write
from benchmarks.timing import Run, duel
from openradial.data.batches import Batches
from openradial.data.sets.spiral import spiral
from openradial.functional import radial_loss
from openradial.models.mlp import MLP
from openradial.training import Objective, Settings

COMMAND = "python -m benchmarks.small_training"
SEEDS = list(range(10))
POINTS = spiral(2000)
PAPER = Settings(epochs=10, batch_size=50, optimiser="rmsprop", learning_rate=5e-4, decay=0.9)
STEPS = PAPER.epochs * 40
KINDS: dict[str, tuple[tuple[int, ...], Callable[[Tensor, Tensor], Tensor]]] = {
    "radial": ((50, 50, 50), radial_loss),
    "softmax": ((50, 50, 2), F.cross_entropy),
}
# Rounding grows from step to step, so that whole runs are only held to a limit in float64.
TOLERANCE = {"first 40 steps, float32": 1e-5, "all steps, float64": 1e-9, "all steps, float32": None}


def main() -> None:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds; for trying it out, not for the docs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console()
    results: dict[str, Any] = {"environment": environment(), "kinds": {}}
    for kind in KINDS:
        with console.status(f"{kind}: timing"):
            results["kinds"][kind] = measure(kind, rounds=3 if options.quick else 15)
    with console.status("any network: compiling and timing"), tempfile.TemporaryDirectory() as empty:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = empty  # compiling is timed, not finding what was compiled before
        results["any_network"] = measure_any(rounds=3 if options.quick else 15)
    results["environment"]["load_average_at_the_end"] = os.getloadavg()[1]  # of 5 minutes; this program is 1 of it
    options.out.mkdir(parents=True, exist_ok=True)
    write(options.out / "small_training.json", json.dumps(results, indent=1) + "\n")
    text = markdown(results)
    write(options.out / "small_training.md", text)
    console.print(text, markup=False)
    console.print(f"written: {options.out}/small_training.json, small_training.md")


def environment() -> dict[str, Any]:
    return machine(COMMAND) | {
        "threads": torch.get_num_threads(),
        "seeds": SEEDS,
        "points": len(POINTS),
        "steps_per_run": STEPS,
        "settings": PAPER.as_dict(),
    }


def measure(kind: str, rounds: int) -> dict[str, Any]:
    """Seconds per run of one and of ten networks, and how far the losses are apart."""
    rivals: dict[str, Run] = {
        "plain loop, 1 seed": partial(plain_loop, kind, PAPER, 0),
        "openradial, 1 seed": partial(stacked, kind, PAPER, [0]),
        "plain loop, 10 seeds in turn": lambda: [plain_loop(kind, PAPER, seed) for seed in SEEDS],
        "openradial, 10 seeds in turn": lambda: [stacked(kind, PAPER, [seed]) for seed in SEEDS],
        "openradial, 10 seeds together": partial(stacked, kind, PAPER, SEEDS),
    }
    timings = duel(rivals, rounds=rounds)
    one, ten = "1 seed", "10 seeds in turn"
    ours, together = timings["openradial, 1 seed"], timings["openradial, 10 seeds together"]
    ratios = {
        "1 seed: plain loop / openradial": (timings[f"plain loop, {one}"].median / ours.median, 4.0),
        "10 seeds: plain loop in turn / together": (timings[f"plain loop, {ten}"].median / together.median, 5.0),
        "10 seeds: openradial in turn / together": (timings[f"openradial, {ten}"].median / together.median, None),
    }
    return {
        "seconds_per_run": {name: timing.as_dict() for name, timing in timings.items()},
        "ratios": [{"what": what, "ratio": value, "at_least": least} for what, (value, least) in ratios.items()],
        "largest_relative_difference_of_losses": differences(kind),
    }


def plain_loop(kind: str, settings: Settings, seed: int) -> Tensor:
    """The rival: what one writes without thinking about speed; the losses."""
    dtype = getattr(torch, settings.precision)
    loss_of, inputs, labels = KINDS[kind][1], POINTS.inputs.to(dtype), POINTS.labels
    torch.manual_seed(seed)
    net = sequential(KINDS[kind][0]).to(dtype)
    optimiser = torch.optim.RMSprop(net.parameters(), lr=settings.learning_rate, alpha=settings.decay)
    source = Batches(POINTS, settings.batch_size, shuffle=True, seed=seed)
    losses = []
    for epoch in range(settings.epochs):
        for index in source.order(epoch).split(settings.batch_size):
            optimiser.zero_grad()
            loss = loss_of(net(inputs[index]), labels[index])
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
    return torch.stack(losses)


def sequential(hidden: tuple[int, ...]) -> nn.Sequential:
    widths = (2, *hidden)
    layers = [m for a, b in zip(widths, hidden, strict=False) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], 3))


def stacked(kind: str, settings: Settings, seeds: list[int]) -> Tensor:
    hidden, loss = KINDS[kind]
    return train_stacked(lambda: MLP(3, inputs=2, hidden=hidden), Objective(loss), POINTS, settings, seeds).losses


def differences(kind: str) -> dict[str, float]:
    """Largest relative difference of a loss to the plain loop, over all seeds."""
    exact = Settings(**{**PAPER.as_dict(), "precision": "float64"})
    found = {}
    for name, (settings, steps) in zip(TOLERANCE, ((PAPER, 40), (exact, STEPS), (PAPER, STEPS)), strict=True):
        ours = stacked(kind, settings, SEEDS)
        plain = torch.stack([plain_loop(kind, settings, seed) for seed in SEEDS], 1)
        found[name] = float(((ours - plain).abs() / plain)[:steps].max())
    return found


def measure_any(rounds: int) -> dict[str, Any]:
    """The form for any network, on the same set-up: through autograd, and compiled."""
    rivals: dict[str, Run] = {}
    compile_seconds = {}
    for seeds in (SEEDS[:1], SEEDS):
        rivals[f"autograd, {len(seeds)}"] = epoch_of_any(seeds, compiled=False)
        if has_compiler(torch.device("cpu")):
            name = f"compiled, {len(seeds)}"
            rivals[name] = epoch_of_any(seeds, compiled=True)
            start = time.perf_counter()
            rivals[name]()
            compile_seconds[name] = time.perf_counter() - start
    timings = duel(rivals, rounds=rounds)
    return {
        "seconds_per_epoch": {name: timing.as_dict() for name, timing in timings.items()},
        "seconds_to_compile": compile_seconds,
    }


def epoch_of_any(seeds: list[int], *, compiled: bool) -> Run:
    torch.manual_seed(0)
    stack = FunctionalStack([MLP(3, inputs=2) for _ in seeds], Objective(radial_loss))
    if compiled:
        stack.compile(PAPER.batch_size, strict=True)
    update = make_update(stack.parameters, PAPER)
    index = torch.stack([torch.randperm(len(POINTS)) for _ in seeds]).view(len(seeds), 40, 50).transpose(0, 1)

    @torch.no_grad()
    def epoch() -> None:
        for x, y in zip(POINTS.inputs[index].unbind(), POINTS.labels[index].unbind(), strict=True):
            update(stack.gradients(x, y)[1], PAPER.learning_rate)

    return epoch


def markdown(results: dict[str, Any]) -> str:
    env = results["environment"]
    lines = [
        f"Written by `{env['command']}` on {env['date']}: {env['cpu']}, {env['cores']} cores, {env['threads']} thread, "
        f"torch {env['torch']}, Python {env['python']}, float32. The paper's spiral set-up: "
        f"{env['points']:,} points, batch 50, RMSprop 5e-4, decay 0.9; runs of {env['steps_per_run']} steps, "
        f"set-up included, seeds 0 to 9. Load average {env['load_average_at_the_end']:.1f}, 1 of it this program.",
        "",
    ]
    rows = [
        [f"{kind}, {row['what']}", f"{row['ratio']:.1f}", f"{row['at_least'] or ''}", holds(row)]
        for kind, case in results["kinds"].items()
        for row in case["ratios"]
    ]
    lines += [*table(["medians of one run", "ratio", "at least", "holds"], rows), ""]
    rows = [
        [f"{kind}, {name}", microseconds(seconds, STEPS)]
        for kind, case in results["kinds"].items()
        for name, seconds in case["seconds_per_run"].items()
    ]
    lines += [*table(["microseconds per step (of all its networks)", "median (middle half of the rounds)"], rows), ""]
    rows = [
        [f"{kind}, {name}", f"{value:.1e}", *within(value, TOLERANCE[name])]
        for kind, case in results["kinds"].items()
        for name, value in case["largest_relative_difference_of_losses"].items()
    ]
    lines += [*table(["largest relative difference of a loss to the plain loop's", "", "at most", "holds"], rows), ""]
    found = results["any_network"]
    rows = [
        [f"{name} seed{'s' * (not name.endswith(' 1'))}", microseconds(seconds, 40), compile_cell(found, name)]
        for name, seconds in found["seconds_per_epoch"].items()
    ]
    header = ["form for any network, radial, microseconds per step", "median (middle half)", "seconds to compile"]
    return "\n".join([*lines, *table(header, rows), ""])


def holds(row: dict[str, Any]) -> str:
    return "" if row["at_least"] is None else "yes" if row["ratio"] >= row["at_least"] else "NO"


def within(value: float, limit: float | None) -> list[str]:
    return ["", ""] if limit is None else [f"{limit:.0e}", "yes" if value <= limit else "NO"]


def microseconds(seconds: dict[str, float], steps: int) -> str:
    values = [1e6 * seconds[key] / steps for key in ("median_s", "quartile_1_s", "quartile_3_s")]
    return "{:.0f} ({:.0f}–{:.0f})".format(*values)


def compile_cell(found: dict[str, Any], name: str) -> str:
    seconds = found["seconds_to_compile"].get(name)
    return "" if seconds is None else f"{seconds:.0f}"


if __name__ == "__main__":
    main()
