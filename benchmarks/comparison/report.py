"""A comparison as a table and as a plot: mean and twice the standard deviation over runs."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.comparison.methods import METHODS
from benchmarks.comparison.runs import MethodRow
from openradial.evaluation.plots.colors import BLUE, GREEN, MARKS, ORANGE, PURPLE

NUMBERS = ("auroc", "fpr95", "oscr", "detected")
SPLIT = ", split "
OURS = {method.name for method in METHODS if method.is_ours}
COLORS = (BLUE, ORANGE, GREEN, PURPLE)


def groups(rows: Iterable[MethodRow]) -> dict[str, list[MethodRow]]:
    """Return rows by what they were measured on: all classes with several seeds, or splits of the classes."""
    grouped: dict[str, list[MethodRow]] = {}
    for row in rows:
        name = f"{row['protocol'].split(SPLIT)[0]}, splits of classes" if SPLIT in row["protocol"] else row["protocol"]
        grouped.setdefault(name, []).append(row)
    return grouped


def summarised(rows: Sequence[MethodRow]) -> list[dict[str, Any]]:
    """Return one entry per method: the mean of each number and twice its corrected standard deviation over runs."""
    result = []
    for name in dict.fromkeys(row["method"] for row in rows):
        runs = [row for row in rows if row["method"] == name]
        entry: dict[str, Any] = {"method": name, "runs": len(runs)}
        for number in ("accuracy", "ece", "false_reject_rate", "training_seconds"):
            entry[number] = _spread([row[number] for row in runs])
        sets = list(runs[0]["novel"])
        entry["novel"] = {
            each: {number: _spread([row["novel"][each][number] for row in runs]) for number in NUMBERS} for each in sets
        }
        entry["mean_auroc"] = _spread([statistics.fmean(row["novel"][each]["auroc"] for each in sets) for row in runs])
        result.append(entry)
    return result


def markdown(rows: Sequence[MethodRow]) -> str:
    """Return the tables of a comparison as Markdown."""
    parts = []
    for name, runs in groups(rows).items():
        entries = summarised(runs)
        parts += [f"**{name}**, {entries[0]['runs']} runs", "", *_table(entries), ""]
    return "\n".join(parts)


def _table(entries: list[dict[str, Any]]) -> list[str]:
    """Return the lines of a table; the most important columns come first, because a page may not show all."""
    sets = list(entries[0]["novel"])
    several = len(sets) > 1
    heads = ["method", "accuracy", *(["mean AUROC"] if several else [])]
    for each in sets:
        heads += [f"{each}: AUROC", "FPR95", "OSCR", "detected"]
    heads += ["rejected known", "ECE", "training, core s"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' + '---:|' * (len(heads) - 1)}"]
    for entry in entries:
        numbers = [entry["accuracy"], *([entry["mean_auroc"]] if several else [])]
        numbers += [entry["novel"][each][number] for each in sets for number in NUMBERS]
        numbers += [entry["false_reject_rate"], entry["ece"]]
        shown = [f"{mean:.4f}" if error is None else f"{mean:.4f} ± {error:.4f}" for mean, error in numbers]
        cells = [entry["method"], *shown, f"{entry['training_seconds'][0]:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _spread(values: Sequence[float]) -> list[float | None]:
    error = 2 * statistics.stdev(values) if len(values) > 1 else None
    return [statistics.fmean(values), error]


def draw(summary: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> None:
    """Write a figure with one panel per group of runs; bars show twice the standard deviation over runs."""
    from matplotlib.figure import Figure

    methods = list(dict.fromkeys(entry["method"] for entries in summary.values() for entry in entries))
    figure = Figure(figsize=(5.2 * len(summary) + 2.4, 0.32 * len(methods) + 1.4), layout="constrained")
    panels = figure.subplots(1, len(summary), sharey=True, squeeze=False)[0]
    for panel, (name, entries) in zip(panels, summary.items(), strict=True):
        _panel(panel, name, entries, methods)
    panels[0].set_yticks(range(len(methods)), methods)
    for label in panels[0].get_yticklabels():
        label.set_fontweight("bold" if label.get_text() in OURS else "normal")
    panels[0].invert_yaxis()
    figure.savefig(path, dpi=150)


def _panel(panel: Any, name: str, entries: Sequence[Mapping[str, Any]], methods: list[str]) -> None:
    sets = list(entries[0]["novel"])
    rows = np.array([methods.index(entry["method"]) for entry in entries])
    shifts = np.linspace(-0.22, 0.22, len(sets)) if len(sets) > 1 else [0.0]
    for each, shift, mark, color in zip(sets, shifts, cycle(MARKS), cycle(COLORS), strict=False):
        means, errors = np.array([entry["novel"][each]["auroc"] for entry in entries], np.float64).T
        style: dict[str, Any] = {"fmt": mark, "color": color, "markersize": 5, "capsize": 2, "linewidth": 1}
        panel.errorbar(means, rows + shift, xerr=np.nan_to_num(errors), label=each, **style)
    panel.set(xlabel="AUROC, known against novel", title=name)
    panel.grid(axis="x", alpha=0.3)
    lowest = min(entry["novel"][each]["auroc"][0] for entry in entries for each in sets)
    panel.set_xlim(lowest - 0.08 * (1 - lowest), 1.002)  # the range of the means: bars may be far longer
    if len(sets) > 1:
        panel.legend(frameon=False, loc="lower left")
