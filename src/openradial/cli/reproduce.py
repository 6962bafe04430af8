"""``openradial reproduce``: the paper's figures, tables and claims, computed anew."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from openradial.errors import OptionError
from openradial.experiments import IDS, Plan, find, reproduce
from openradial.experiments.report import finished, table


def reproduce_command(
    ids: Annotated[list[str] | None, typer.Argument(help="Ids from --list, or all.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A glance in minutes: fewer epochs and seeds.")] = False,
    seeds: Annotated[int | None, typer.Option(help="Seeds, in place of each experiment's own number.")] = None,
    jobs: Annotated[int, typer.Option(help="Experiments at the same time, each in a process.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for results, figures and report.")] = Path("reproduction"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    tiny_imagenet: Annotated[Path | None, typer.Option(help="A folder with Tiny-ImageNet, for fig7.")] = None,
) -> None:
    """Run the paper's experiments and judge its claims."""
    if list_:
        Console().print(_list())
        return
    if not ids:
        raise OptionError("name the experiments to run, or all; see them with: openradial reproduce --list")
    options = {} if tiny_imagenet is None else {"tiny_imagenet": str(_folder(tiny_imagenet))}
    plan = Plan(out, "quick" if quick else "full", seeds, jobs, options, listener=typer.echo)
    files = reproduce(ids, plan, resume=resume)
    for row in table(finished(out)):
        typer.echo(f"claim {row.claim.number}: {row.said}")
    typer.echo(f"written: {', '.join(map(str, files))}")


def _list() -> Table:
    shown = Table(box=None, pad_edge=False)
    for heading in ("id", "what", "claims"):
        shown.add_column(heading, no_wrap=heading != "what")
    for id in IDS:
        experiment = find(id)
        shown.add_row(id, experiment.title, ", ".join(map(str, experiment.claims)))
    return shown


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise OptionError(f"there is no folder {path}; name the one with Tiny-ImageNet")
    return path.resolve()
