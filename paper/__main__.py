"""``python -m paper``: the paper's figures, tables and claims, computed again."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from openradial.errors import DataError, OpenRadialError, OptionError
from paper import IDS, Plan, find, reproduce
from paper.imagenet.ilsvrc_classes import recompute_table, table_differences, write_table
from paper.imagenet.link_trees import split_ilsvrc
from paper.report import finished, table

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)
Quick = Annotated[bool, typer.Option("--quick", help="Quick mode: fewer epochs and seeds, in minutes.")]
Seeds = Annotated[int | None, typer.Option(help="Seeds, in place of each experiment's own number.")]
Jobs = Annotated[int, typer.Option(help="Experiments at the same time, each in a process.")]
Out = Annotated[Path, typer.Option(help="Folder for results, figures and report.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume the run in the folder.")]
Tiny = Annotated[Path | None, typer.Option(help="A folder with Tiny-ImageNet, for fig7.")]


@app.command("list")
def list_command() -> None:
    """List the experiments."""
    Console().print(_list())


@app.command("run")
def run_command(
    ids: Annotated[list[str], typer.Argument(help="Ids from: python -m paper list")],
    quick: Quick = False,
    seeds: Seeds = None,
    jobs: Jobs = 1,
    out: Out = Path("reproduction"),
    resume: Resume = False,
    tiny_imagenet: Tiny = None,
) -> None:
    """Run some of the paper's experiments and judge its claims."""
    options = {} if tiny_imagenet is None else {"tiny_imagenet": str(_folder(tiny_imagenet))}
    plan = Plan(out, "quick" if quick else "full", seeds, jobs, options, listener=typer.echo)
    files = reproduce(ids, plan, resume=resume)
    for row in table(finished(out)):
        typer.echo(f"claim {row.claim.number}: {row.said}")
    typer.echo(f"written: {', '.join(map(str, files))}")


@app.command("all")
def all_command(
    quick: Quick = False,
    seeds: Seeds = None,
    jobs: Jobs = 1,
    out: Out = Path("reproduction"),
    resume: Resume = False,
    tiny_imagenet: Tiny = None,
) -> None:
    """Run all of the paper's experiments and judge its claims."""
    run_command(["all"], quick, seeds, jobs, out, resume, tiny_imagenet)


@app.command("split-ilsvrc")
def split(
    root: Annotated[Path, typer.Option(help="A local ILSVRC-2012, or a part of it such as Tiny-ImageNet.")],
    known: Annotated[
        str,
        typer.Option(help="random:100, not:WNID, under:WNID, names:WNID,WNID... or file:PATH; n00021939 is artifact."),
    ],
    out: Annotated[Path, typer.Option(help="Where the class lists go.")] = Path("ilsvrc-split"),
    seed: Annotated[int, typer.Option(help="For random:N.")] = 0,
    links: Annotated[bool, typer.Option("--links", help="Also make trees of links for folder loaders.")] = False,
    wordnet: Annotated[Path | None, typer.Option(help="A folder of yours with WordNet 3.0.")] = None,
) -> None:
    """Split ILSVRC-2012 into known and novel classes."""
    typer.echo(split_ilsvrc(root, known, seed, out=out, links=links, wordnet=wordnet))


@app.command("recompute-ilsvrc")
def recompute(
    wordnet: Annotated[
        Path | None, typer.Option(help="A folder of yours with WordNet 3.0; else it is fetched.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Also write the table to this file.")] = None,
) -> None:
    """Recompute which ILSVRC classes are artifacts from WordNet 3.0, and compare with the shipped table."""
    rows = recompute_table(wordnet)
    if out is not None:
        write_table(rows, out)
    differences = table_differences(rows)
    if differences:
        raise DataError(f"{len(differences)} classes differ from the shipped table; the first: {differences[0]}")
    artifacts = sum(row.artifact for row in rows)
    typer.echo(f"{artifacts} artifacts and {len(rows) - artifacts} others, as in the shipped table")


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


def main() -> None:
    """Run the command. An error is one line; exit code 2 for wrong use, 1 for failure."""
    try:
        app(prog_name="python -m paper")
    except OpenRadialError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2 if isinstance(error, OptionError) else 1)


if __name__ == "__main__":
    main()
