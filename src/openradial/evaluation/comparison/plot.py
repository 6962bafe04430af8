"""Plot a comparison: the AUROC of each method on each novel set."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from openradial.evaluation.comparison.methods import METHODS

OURS = {method.name for method in METHODS if method.is_ours}
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
MARKS = ("o", "s", "^", "D")


def draw(summary: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> None:
    """Write a figure with one panel per group of runs; bars show twice the standard deviation over runs."""
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
    shift = np.linspace(-0.22, 0.22, len(sets)) if len(sets) > 1 else [0.0]
    for index, each in enumerate(sets):
        values = [entry["novel"][each]["auroc"] for entry in entries]
        rows = [methods.index(entry["method"]) + shift[index] for entry in entries]
        errors = [error or 0.0 for _, error in values]
        panel.errorbar(
            [mean for mean, _ in values],
            rows,
            xerr=errors,
            fmt=MARKS[index % len(MARKS)],
            color=COLORS[index % len(COLORS)],
            markersize=5,
            capsize=2,
            linewidth=1,
            label=each,
        )
    panel.set(xlabel="AUROC, known against novel", title=name)
    panel.grid(axis="x", alpha=0.3)
    lowest = min(entry["novel"][each]["auroc"][0] for entry in entries for each in sets)
    panel.set_xlim(lowest - 0.08 * (1 - lowest), 1.002)  # the range of the means: bars may be far longer
    if len(sets) > 1:
        panel.legend(frameon=False, loc="lower left")
