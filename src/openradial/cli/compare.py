"""``openradial compare``: compare methods for open-world classification on the same data."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from openradial.errors import OptionError, require


def compare_command(
    data: Annotated[str, typer.Option(help="digits, mnist or cifar10.")] = "mnist",
    out: Annotated[Path, typer.Option(help="Folder for networks, results, table and plot.")] = Path("comparison"),
    seeds: Annotated[int | None, typer.Option(help="Networks per loss with all classes known (5).")] = None,
    splits: Annotated[int | None, typer.Option(help="Splits into six known and the other classes (5).")] = None,
    novel: Annotated[list[str] | None, typer.Option(help="Another novel set, as NAME=FILE (NPZ or idx).")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Quick mode: few epochs, one seed, one split.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the comparison in the folder.")] = False,
) -> None:
    """Train one network per loss and evaluate every score on the same outputs."""
    require("matplotlib", "plot", "openradial compare")  # before training, not after it
    from openradial.evaluation.comparison import Comparison, compare
    from openradial.evaluation.comparison.report import draw, groups, markdown, summarised
    from openradial.files import writable, write_text

    writable(out / "comparison.md")
    usual = 1 if quick else 5
    seeds, splits = (usual if runs is None else runs for runs in (seeds, splits))
    comparison = Comparison(data, seeds, splits, quick=quick, novel=dict(map(_novel_set, novel or [])))
    console = Console()
    rows = compare(comparison, out, resume=resume, report=lambda text: console.print(text, style="dim"))
    summary = {name: summarised(group) for name, group in groups(rows).items()}
    write_text(out / "comparison.json", json.dumps({"summary": summary, "rows": rows}, indent=1) + "\n")
    write_text(out / "comparison.md", markdown(rows))
    draw(summary, out / "comparison.png")
    for name, entries in summary.items():
        console.print(_table(name, entries))
    console.print(f"written: {out}/comparison.md, comparison.json, comparison.png")


def _table(name: str, entries: list[dict[str, Any]]) -> Table:
    sets = list(entries[0]["novel"])
    table = Table(title=f"{name}, {entries[0]['runs']} run(s): AUROC against novel inputs (%)")
    for title in ("", "accuracy (%)", *sets):
        table.add_column(title, justify="right" if title else "left")
    for entry in entries:
        values = [entry["accuracy"], *(entry["novel"][each]["auroc"] for each in sets)]
        table.add_row(entry["method"], *(f"{100 * mean:.1f}" for mean, _ in values))
    return table


def _novel_set(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if not (name and path):
        raise OptionError(f"a novel set must be NAME=FILE, got {text!r}")
    return name, Path(path)
