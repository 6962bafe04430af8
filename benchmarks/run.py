"""Measure the layer and write benchmarks/results/layer.{json,md,png}: ``make bench``, or with ``--quick`` a glance."""

import argparse
import json
import os
import shutil
import sys
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
from openradial.errors import BuildError
from openradial.files import write_text as write
from openradial.functional import native

RESULTS = Path(__file__).parent / "results"
FIGURE = RESULTS.parents[1] / "docs" / "images" / "speed.png"
TASKS = ("loss", "log_probs", "nearest")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds; for trying it out, not for the docs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    options = parser.parse_args()
    console = Console()
    kernel = compiled_loss(console)
    results = run(kernel, rounds=5 if options.quick else 25, console=console)
    options.out.mkdir(parents=True, exist_ok=True)
    write(options.out / "layer.json", json.dumps(results, indent=1) + "\n")
    write(options.out / "layer.md", markdown(results))
    draw(results, options.out / "layer.png")
    if options.out == RESULTS:
        shutil.copy(options.out / "layer.png", FIGURE)
    console.print(verdict_table(results))
    console.print(f"written: {options.out}/layer.json, layer.md, layer.png")


def compiled_loss(console: Console) -> native.Loss | None:
    """The compiled loss, built for this run where there is a compiler."""
    try:
        with console.status("compiling the loss (once, about half a minute)"):
            return native.load(native.build())
    except BuildError as error:
        console.print(f"without the compiled loss: {error}")
        return None


def run(kernel: native.Loss | None, *, rounds: int, console: Console) -> dict[str, Any]:
    cases = [(threads, task, n, k) for threads in (2, 1) for task in TASKS for n, k in layer.SIZES]
    columns = (TextColumn("{task.description:<34}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    measured = []
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=len(cases) + 1)
        for threads, task, n, k in cases:
            progress.update(bar, description=f"{task} ({n}, {k}), {threads} thread{'s'[: threads - 1]}")
            torch.set_num_threads(threads)
            timings = layer.measure(task, n, k, kernel, rounds)
            rows = {name: timing.as_dict() for name, timing in timings.items()}
            measured.append({"task": task, "n": n, "k": k, "threads": threads, "seconds": rows})
            progress.advance(bar)
        progress.update(bar, description="peak memory")
        names = ["cross_entropy", layer.PYTHON] + ([layer.COMPILED] if kernel else [])
        peaks = {name: memory.peak_ratio(name, 128, 100_000) for name in names}
        progress.advance(bar)
    results = {"environment": environment(kernel is not None), "measured": measured, "peak_memory": peaks}
    results["exactness"] = largest_errors()
    return results | {"verdicts": verdicts(results), "bandwidth": bandwidth(measured)}


def environment(compiled: bool) -> dict[str, Any]:
    return machine("make bench") | {
        "compiler": shutil.which("c++") if compiled else None,
        "dtype": "float32",
        "allocator": {name: os.environ.get(name) for name in ("MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_")},
        "seeds": {"outputs": 0, "targets": 1},
    }


def verdicts(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Each promise of the speed page with what was measured; the better of our two forms counts, both are shown."""
    found = []
    for case in results["measured"]:
        size, task = (case["n"], case["k"]), case["task"]
        limit = layer.LIMITS.get((task, size))
        if limit is None:
            continue
        rival = layer.RIVAL[task]
        ratios = {form: ratio(case, form, rival) for form in (layer.PYTHON, layer.COMPILED) if form in case["seconds"]}
        found.append(verdict(f"{task} / {rival}", size, case["threads"], limit, ratios))
        if (task, size) == ("loss", (256, 1000)):
            ratios = {form: ratio(case, form, "paper's form") for form in ratios}
            found.append(verdict("loss / paper's form", size, case["threads"], 1 / 1000, ratios))
    peaks = {
        form: peak for form, peak in results["peak_memory"].items() if form != "cross_entropy" and peak is not None
    }
    if peaks:
        found.append(verdict("peak memory of the loss / size of o", (128, 100_000), None, 2.2, peaks))
    return found


def verdict(
    what: str, size: tuple[int, int], threads: int | None, limit: float, ratios: dict[str, float]
) -> dict[str, Any]:
    return {
        "what": what,
        "size": size,
        "threads": threads,
        "at_most": limit,
        "ratios": ratios,
        "holds": {form: value <= limit for form, value in ratios.items()},
    }


def ratio(case: dict[str, Any], form: str, rival: str) -> float:
    return float(case["seconds"][form]["median_s"] / case["seconds"][rival]["median_s"])


def bandwidth(measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Bytes that have to move (loss: read, read, write; copy: read, write) per second, in GB/s."""
    rows = []
    for case in measured:
        if case["task"] != "loss":
            continue
        size = 4 * case["n"] * case["k"]
        seconds = {name: timing["median_s"] for name, timing in case["seconds"].items()}
        forms = {f: 3 * size / seconds[f] / 1e9 for f in (layer.PYTHON, layer.COMPILED) if f in seconds}
        copy = 2 * size / seconds["copy"] / 1e9
        rows.append({"n": case["n"], "k": case["k"], "threads": case["threads"], "copy_GB_s": copy, "loss_GB_s": forms})
    return rows


def verdict_table(results: dict[str, Any]) -> Table:
    table = Table(title="openradial / rival, medians of one run")
    for name in ("what", "(n, k)", "threads", "at most", "Python", "compiled", "holds"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for row in verdict_rows(results):
        table.add_row(*row)
    return table


def verdict_rows(results: dict[str, Any]) -> list[list[str]]:
    rows = []
    for v in results["verdicts"]:
        number = "{:.5f}" if v["at_most"] < 0.01 else "{:.2f}"
        forms = [number.format(v["ratios"][f]) if f in v["ratios"] else "" for f in (layer.PYTHON, layer.COMPILED)]
        kept = [name.removeprefix("openradial, ") for name, holds in v["holds"].items() if holds]
        answer = "yes" if len(kept) == len(v["holds"]) else f"{kept[0]} only" if kept else "NO"
        size = "({:,}, {:,})".format(*v["size"])
        rows.append([v["what"], size, str(v["threads"] or ""), f"{v['at_most']:g}", *forms, answer])
    return rows


def markdown(results: dict[str, Any]) -> str:
    """The tables of the speed page."""
    env = results["environment"]
    lines = [
        f"Written by `{env['command']}` on {env['date']}: {env['cpu']}, {env['cores']} cores, torch {env['torch']}, "
        f"Python {env['python']}, float32.",
        "",
        *table(
            ["openradial / rival", "(n, k)", "threads", "at most", "Python", "compiled", "holds"], verdict_rows(results)
        ),
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
    header = ["(n, k)", "threads", "copy", layer.PYTHON, layer.COMPILED]
    rows = [
        ["({:,}, {:,})".format(row["n"], row["k"]), str(row["threads"]), f"{row['copy_GB_s']:.1f}"]
        + [
            f"{row['loss_GB_s'][form]:.1f}" if form in row["loss_GB_s"] else ""
            for form in (layer.PYTHON, layer.COMPILED)
        ]
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
    sys.exit(main())
