"""``openradial evaluate``: a model on known and novel data, as a table and as a report."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from openradial.cli import BROKEN_INPUTS
from openradial.cli.modules import Modules, open_model
from openradial.errors import require
from openradial.evaluation import Evaluation, evaluate, known_sample, novel_sample, write_report


def evaluate_command(
    model: Annotated[Path, typer.Argument(help="The folder of a model, as openradial fit writes it.")],
    known: Annotated[str, typer.Option(help="Data of known classes that the model has not seen, as fit takes them.")],
    novel: Annotated[
        list[str] | None, typer.Option(help="Data of other classes: a folder of images, a table, a set. Repeatable.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for report.html and report.json.")] = Path("report"),
    label: Annotated[str | None, typer.Option(help="The column of a table that holds the classes.")] = None,
    false_reject_rate: Annotated[float | None, typer.Option(help="Another rate than the model's own.")] = None,
    title: Annotated[str | None, typer.Option(help="Of the report.")] = None,
    module: Modules = None,
    as_json: Annotated[bool, typer.Option("--json", help="The numbers as JSON, for a script.")] = False,
) -> None:
    """Measure a model on known and novel data, and write a report with curves and the most confident mistakes.

    Where a set holds known and other classes, --known takes the ones and --novel the others.
    """
    require("matplotlib", "plot", "the report")  # before the work, not after it
    bundle = open_model(model, module)
    samples = [novel_sample(bundle, each, label) for each in novel or []]
    found = evaluate(bundle, known_sample(bundle, known, label), samples, false_reject_rate)
    page = write_report(found, bundle, out, title or f"Evaluation of {model.resolve().name}")
    if as_json:
        typer.echo(json.dumps({"model": str(model), "report": str(page), **found.as_dict()}, indent=1))
    else:
        _show(found, page)
    if _broken(found):
        raise typer.Exit(BROKEN_INPUTS)


def _broken(found: Evaluation) -> int:
    return sum(len(part.broken) for part in (found.known, *found.novel))


def _show(found: Evaluation, page: Path) -> None:
    console, rejects = Console(highlight=False, soft_wrap=True), found.false_rejects
    console.print(f"accuracy        {100 * found.accuracy.value:.1f} % of {rejects.examples:,} known inputs")
    between = f"95 % interval {100 * rejects.low:.1f} to {100 * rejects.high:.1f} %"
    console.print(f"called unknown  {100 * rejects.measured:.1f} % of them, {100 * rejects.asked:g} % asked; {between}")
    if found.novel_metrics:
        console.print(_table(found))
    if broken := _broken(found):
        console.print(f"{broken:,} input{'s' * (broken != 1)} could not be read; the report names them")
    for note in found.notes:
        console.print(f"note: {note}", markup=False)
    console.print(f"report in {page}", markup=False)


def _table(found: Evaluation) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("novel inputs (%)")
    for name in ("number", "called unknown", "AUROC", "FPR95", "OSCR"):
        table.add_column(name, justify="right")
    for each in found.novel_metrics:
        numbers = [each.metrics[name].value for name in ("auroc", "fpr_at_tpr", "oscr")]
        shares = (f"{100 * value:.1f}" for value in (each.detected, *numbers))
        table.add_row(each.name, f"{each.examples:,}", *shares)
    return table
