"""Measure the layer and write benchmarks/results/layer.{json,md,png}: ``make bench``; ``--quick`` runs few rounds."""

import argparse
import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks import layer, memory
from benchmarks.exactness import FORMS, largest_errors
from benchmarks.figure import draw
from benchmarks.machine import machine
from benchmarks.timing import Timing
from openradial.files import write_text

RESULTS = Path(__file__).parent / "results"
FIGURE = RESULTS.parents[1] / "docs" / "images" / "speed.png"
TASKS = ("loss", "log_probs", "nearest", "step")
CASES = [
    *((task, n, k) for task in TASKS[:3] for n, k in layer.SIZES),
    ("step", layer.STEP_BATCH, 10),
]


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds; for trying it out, not for the docs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    options = parser.parse_args()
    console = Console()
    results = run(rounds=10 if options.quick else 60, console=console)
    options.out.mkdir(parents=True, exist_ok=True)
    write_text(options.out / "layer.json", json.dumps(results, indent=1) + "\n")
    write_text(options.out / "layer.md", markdown(results))
    draw(results, options.out / "layer.png")
    if options.out == RESULTS:
        shutil.copy(options.out / "layer.png", FIGURE)
    console.print(verdict_table(results))
    console.print(f"written: {options.out}/layer.json, layer.md, layer.png")


def run(*, rounds: int, console: Console) -> dict[str, Any]:
    cases = [(threads, *case) for threads in (2, 1) for case in CASES]
    columns = (TextColumn("{task.description:<34}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    measured, verdicts = [], []
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=len(cases) + 1)
        for threads, task, n, k in cases:
            progress.update(bar, description=f"{task} ({n}, {k}), {threads} thread{'s'[: threads - 1]}")
            torch.set_num_threads(threads)
            timings = layer.measure(task, n, k, rounds)
            rows = {name: timing.as_dict() for name, timing in timings.items()}
            measured.append({"task": task, "n": n, "k": k, "threads": threads, "seconds": rows})
            verdicts += judge(task, (n, k), threads, timings)
            progress.advance(bar)
        progress.update(bar, description="peak memory")
        peaks = {name: memory.peak_ratio(name, 128, 100_000) for name in ("cross_entropy", layer.OPENRADIAL)}
        progress.advance(bar)
    if (peak := peaks[layer.OPENRADIAL]) is not None:
        verdicts.append(verdict("peak memory of the loss / size of o", (128, 100_000), None, "x", 2.2, peak))
    return {
        "environment": environment(),
        "measured": measured,
        "peak_memory": peaks,
        "exactness": largest_errors(),
        "verdicts": verdicts,
        "bandwidth": bandwidth(measured),
    }


def environment(command: str = "make bench") -> dict[str, Any]:
    return machine(command) | {
        "dtype": "float32",
        "allocator": {name: os.environ.get(name) for name in ("MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_")},
        "seeds": {"outputs": 0, "targets": 1},
        "load_average": os.getloadavg()[0],
    }


def judge(task: str, size: tuple[int, int], threads: int, timings: dict[str, Timing]) -> list[dict[str, Any]]:
    """Compare the limits for one case with the fastest round of each rival."""
    ours, verdicts = timings[layer.OPENRADIAL].fastest, []
    if (task, size) in layer.LIMITS:
        (unit, limit), rival = layer.LIMITS[task, size], layer.RIVAL[task]
        theirs = timings[rival].fastest
        value = ours / theirs if unit == "x" else 1e3 * (ours - theirs)
        what = f"{task} / {rival}" if unit == "x" else f"{task} beyond {rival}"
        verdicts.append(verdict(what, size, threads, unit, limit, value))
    if (task, size) == ("loss", (256, 1000)):
        ratio = ours / timings["paper's form"].fastest
        verdicts.append(verdict("loss / paper's form", size, threads, "x", 1 / 1000, ratio))
    return verdicts


def verdict(
    what: str, size: tuple[int, int], threads: int | None, unit: str, limit: float, value: float
) -> dict[str, Any]:
    return {
        "what": what,
        "size": size,
        "threads": threads,
        "unit": unit,
        "at_most": limit,
        "measured": value,
        "holds": value <= limit,
    }


def bandwidth(measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Bytes that have to move (loss: read, read, write; copy: read, write) per second, in GB/s."""
    rows = []
    for case in measured:
        if case["task"] != "loss":
            continue
        size = 4 * case["n"] * case["k"]
        loss, copy = (case["seconds"][name]["median_s"] for name in (layer.OPENRADIAL, "copy"))
        rates = {"copy_GB_s": 2 * size / copy / 1e9, "loss_GB_s": 3 * size / loss / 1e9}
        rows.append({"n": case["n"], "k": case["k"], "threads": case["threads"], **rates})
    return rows


HEADER = ["what", "(n, k)", "threads", "at most", "measured", "verdict"]


def verdict_table(results: dict[str, Any]) -> Table:
    table = Table(title="openradial beside its rivals, fastest rounds of one run")
    for name in HEADER:
        table.add_column(name, justify="left" if name == "what" else "right")
    for row in verdict_rows(results):
        table.add_row(*row)
    return table


def verdict_rows(results: dict[str, Any]) -> list[list[str]]:
    rows = []
    for v in results["verdicts"]:
        number = "{:.5f} {}" if v["at_most"] < 0.01 else "{:.3f} {}"
        size = "({:,}, {:,})".format(*v["size"])
        limit, value = f"{v['at_most']:g} {v['unit']}", number.format(v["measured"], v["unit"])
        rows.append([v["what"], size, str(v["threads"] or ""), limit, value, "pass" if v["holds"] else "FAIL"])
    return rows


def markdown(results: dict[str, Any]) -> str:
    """The tables of the speed page."""
    env = results["environment"]
    lines = [
        f"Written by `{env['command']}` on {env['date']}: {env['cpu']}, {env['cores']} cores, torch {env['torch']}, "
        f"Python {env['python']}, float32, load average {env['load_average']:.1f}.",
        "",
        *table(HEADER, verdict_rows(results)),
        "",
    ]
    for task in TASKS:
        cases = [case for case in results["measured"] if case["task"] == task]
        names = list(dict.fromkeys(name for case in cases for name in case["seconds"]))
        rows = [
            ["({:,}, {:,})".format(case["n"], case["k"]), str(case["threads"]), *(cell(case, name) for name in names)]
            for case in cases
        ]
        lines += [f"**{task}**, milliseconds: median (middle half of the rounds)", ""]
        lines += [*table(["(n, k)", "threads", *names], rows), ""]
    header = ["(n, k)", "threads", "copy", layer.OPENRADIAL]
    rows = [
        ["({:,}, {:,})".format(row["n"], row["k"]), str(row["threads"])]
        + [f"{row[name]:.1f}" for name in ("copy_GB_s", "loss_GB_s")]
        for row in results["bandwidth"]
    ]
    lines += [
        "**Memory bandwidth** of loss and gradient beside a copy of the same tensor, GB/s",
        "",
        *table(header, rows),
        "",
    ]
    peaks = [[name, f"{peak:.2f}"] for name, peak in results["peak_memory"].items() if peak is not None]
    lines += ["**Peak memory** of loss and gradient at (128, 100,000), in sizes of `o`, `o` included", ""]
    lines += [*table(["", "peak"], peaks), ""]
    errors = [[f"{row['distance']:g}", *(f"{row[form]:.1e}" for form in FORMS)] for row in results["exactness"]]
    lines += [
        "**Exactness**: largest relative error of a float32 distance to a prototype, 10 classes, 1,000 random points",
        "",
    ]
    return "\n".join([*lines, *table(["distance", *FORMS], errors), ""])


def cell(case: dict[str, Any], name: str) -> str:
    timing = case["seconds"].get(name)
    if timing is None:
        return ""
    values = [1e3 * timing[key] for key in ("median_s", "quartile_1_s", "quartile_3_s")]
    return "{:.3g} ({:.3g}–{:.3g})".format(*values)


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    rule = ["---" if i == 0 else "---:" for i in range(len(header))]
    return ["| " + " | ".join(cells) + " |" for cells in (header, rule, *rows)]


if __name__ == "__main__":
    main()
