"""Figures as files."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paper.experiment import Experiment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE: Any = {
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "openradial",  # the same numbers give the same file
}
MAIN = {"epochs": "epochs", "bayesian_epochs": "Bayesian epochs", "seeds": "seeds"}  # named on smaller figures


def save_picture(experiment: Experiment, record: Mapping[str, Any], folder: Path) -> None:
    """Draw a result and write ``<id>.png`` and ``<id>.svg``, each whole or not at all."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        figure = experiment.draw(record["numbers"])
        if record["size"] != "full":
            _state_size(figure, record)
        for kind, options in {"png": {"dpi": 150}, "svg": {"dpi": 150, "metadata": {"Date": None}}}.items():
            path = folder / f"{experiment.id}.{kind}"
            scratch = path.with_name(f".{path.name}.part.{kind}")
            figure.savefig(scratch, bbox_inches="tight", **options)  # type: ignore[arg-type]
            scratch.replace(path)


def _state_size(figure: "Figure", record: Mapping[str, Any]) -> None:
    figure.text(0.5, -0.01, size_statement(record), ha="center", va="top", fontsize=8, style="italic")


def size_statement(record: Mapping[str, Any]) -> str:
    """How a run of a smaller size differs, in words.

    >>> size_statement({"size": "quick", "settings": {"epochs": 150, "seeds": 2}})
    "quick size, not the paper's settings: 150 epochs, 2 seeds"
    """
    settings = record["settings"]
    main = [f"{settings[name]:,} {words}" for name, words in MAIN.items() if name in settings]
    return f"{record['size']} size, not the paper's settings" + (": " if main else "") + ", ".join(main)
