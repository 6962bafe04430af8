"""Draw the measurements from the JSON alone."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from benchmarks.layer import OPENRADIAL, RIVAL

# Okabe-Ito: colour-blind readers can tell them apart.
STYLE = {
    OPENRADIAL: ("#0072B2", "o"),
    "closed form": ("#009E73", "s"),
    "cdist": ("#E69F00", "^"),
    "paper's form": ("#D55E00", "v"),
}
TITLES = {
    "loss": "loss and gradient",
    "log_probs": "log-probabilities of all classes\nand gradient",
    "nearest": "prediction: nearest prototype",
}


def draw(results: dict[str, Any], path: Path, threads: int = 2) -> None:
    """Time relative to softmax against the number of classes, one panel per task."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 4), sharey=True, layout="constrained")
    for ax, (task, title) in zip(axes, TITLES.items(), strict=True):
        cases = [c for c in results["measured"] if c["task"] == task and c["threads"] == threads]
        panel(ax, cases, RIVAL[task])
        ax.set_title(title, fontsize=11)
        ax.set_xlabel(f"classes (softmax: {RIVAL[task]})")
    axes[0].set_ylabel("time / time of softmax")
    handles = {label: h for ax in axes for h, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=6, frameon=False)
    env = results["environment"]
    figure.suptitle(f"{env['cpu']}, {threads} threads, torch {env['torch']}, float32; lower is faster", fontsize=9)
    figure.savefig(path, dpi=160)
    plt.close(figure)


def panel(ax: Axes, cases: list[dict[str, Any]], rival: str) -> None:
    ax.axhline(1, color="black", linewidth=1, linestyle="--", label="softmax")
    for name, (colour, marker) in STYLE.items():
        measured = [
            (c["k"], c["seconds"][name], c["seconds"][rival]["median_s"]) for c in cases if name in c["seconds"]
        ]
        if not measured:
            continue
        classes = [k for k, _, _ in measured]
        medians = [t["median_s"] / base for _, t, base in measured]
        low = [(t["median_s"] - t["quartile_1_s"]) / base for _, t, base in measured]
        high = [(t["quartile_3_s"] - t["median_s"]) / base for _, t, base in measured]
        ax.errorbar(classes, medians, [low, high], color=colour, marker=marker, markersize=5, capsize=2, label=name)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.grid(alpha=0.3, which="major")
