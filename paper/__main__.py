"""``python -m paper``: compute the paper's figures, tables and claims again."""

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
Seeds = Annotated[int | None, typer.Option(help="Number of seeds, instead of each experiment's default.")]
Jobs = Annotated[int, typer.Option(help="Number of experiments at the same time, each in a process.")]
Out = Annotated[Path, typer.Option(help="Folder for results, figures and report.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in the folder.")]
Tiny = Annotated[Path | None, typer.Option(help="Folder with Tiny-ImageNet, for tab1, fig7 and sup4.")]
Wordnet = Annotated[Path | None, typer.Option(help="Folder with WordNet 3.0; by default it is downloaded.")]


@app.command("list")
def list_command() -> None:
    """List the experiments."""
    shown = Table(box=None, pad_edge=False)
    for heading in ("id", "what", "claims"):
        shown.add_column(heading, no_wrap=heading != "what")
    for id in IDS:
        experiment = find(id)
        shown.add_row(id, experiment.title, ", ".join(map(str, experiment.claims)))
    Console().print(shown)


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
    if tiny_imagenet is not None and not tiny_imagenet.is_dir():
        raise OptionError(f"there is no folder {tiny_imagenet}; name the one with Tiny-ImageNet")
    options = {} if tiny_imagenet is None else {"tiny_imagenet": str(tiny_imagenet.resolve())}
    plan = Plan(out, "quick" if quick else "full", seeds, jobs, options, listener=typer.echo)
    files = reproduce(ids, plan, resume=resume)
    for row in table(finished(out)):
        typer.echo(f"claim {row.claim.number}: {row.verdict_text}")
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
def split_command(
    root: Annotated[Path, typer.Option(help="Folder with ILSVRC-2012, or with a part of it such as Tiny-ImageNet.")],
    known: Annotated[
        str,
        typer.Option(help="random:100, not:WNID, under:WNID, names:WNID,WNID... or file:PATH; n00021939 is artifact."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the class lists.")] = Path("ilsvrc-split"),
    seed: Annotated[int, typer.Option(help="For random:N.")] = 0,
    links: Annotated[bool, typer.Option("--links", help="Also write folders of links to the images.")] = False,
    wordnet: Wordnet = None,
) -> None:
    """Split ILSVRC-2012 into known and novel classes."""
    typer.echo(split_ilsvrc(root, known, seed, out=out, links=links, wordnet=wordnet))


@app.command("recompute-ilsvrc")
def recompute_command(
    wordnet: Wordnet = None,
    out: Annotated[Path | None, typer.Option(help="Also write the table to this file.")] = None,
) -> None:
    """Recompute from WordNet 3.0 which ILSVRC classes are artifacts, and compare with the table of this project."""
    rows = recompute_table(wordnet)
    if out is not None:
        write_table(rows, out)
    differences = table_differences(rows)
    if differences:
        raise DataError(f"{len(differences)} classes differ from paper/imagenet/ilsvrc2012.csv: {differences[0]}, ...")
    artifacts = sum(row.artifact for row in rows)
    typer.echo(f"{artifacts} artifacts and {len(rows) - artifacts} others, as in paper/imagenet/ilsvrc2012.csv")


def main() -> None:
    """Run the command. An error is one line; exit code 2 for wrong use, 1 for failure."""
    try:
        app(prog_name="python -m paper")
    except OpenRadialError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2 if isinstance(error, OptionError) else 1)


if __name__ == "__main__":
    main()
