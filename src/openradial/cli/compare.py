"""``openradial compare``: ways of being open-world, side by side on the same data."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from openradial.comparison import Comparison, compare
from openradial.comparison.plot import draw
from openradial.comparison.report import groups, markdown, summarised
from openradial.errors import OptionError
from openradial.files import write_text


def compare_command(
    data: Annotated[str, typer.Option(help="digits, mnist or cifar10.")] = "mnist",
    out: Annotated[Path, typer.Option(help="Folder for networks, rows, table and plot.")] = Path("comparison"),
    seeds: Annotated[int, typer.Option(help="Networks per loss, where all classes are known.")] = 5,
    splits: Annotated[int, typer.Option(help="Splits into six known and the other classes; 0 for none.")] = 5,
    novel: Annotated[list[str] | None, typer.Option(help="Another novel set, as NAME=FILE (NPZ or idx).")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One seed, one split, few epochs: a glance.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the comparison in the folder.")] = False,
) -> None:
    """Train one network per loss and measure every score on the same outputs."""
    if quick:
        seeds, splits = 1, min(splits, 1)
    comparison = Comparison(data, seeds, splits, quick=quick, novel=dict(map(_pair, novel or [])))
    console = Console()
    rows = compare(comparison, out, resume=resume, report=lambda text: console.print(text, style="dim"))
    summary = {name: summarised(own) for name, own in groups(rows).items()}
    write_text(out / "comparison.json", json.dumps({"summary": summary, "rows": rows}, indent=1) + "\n")
    write_text(out / "comparison.md", markdown(rows))
    draw(summary, out / "comparison.png")
    console.print(f"written: {out}/comparison.md, comparison.json, comparison.png")


def _pair(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if not (name and path):
        raise OptionError(f"a novel set must be NAME=FILE, got {text!r}")
    return name, Path(path)
