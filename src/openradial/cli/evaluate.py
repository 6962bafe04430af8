"""``openradial evaluate``: evaluate a model on known and novel data."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from openradial.cli import BROKEN_INPUTS
from openradial.cli.modules import Json, Model, Modules, Rate, known_lines, open_model
from openradial.errors import require

if TYPE_CHECKING:
    from openradial.evaluation import Evaluation

SHOWN = 3  # mistakes of a kind that are shown as texts


def evaluate_command(
    model: Model,
    known: Annotated[str, typer.Option(help="Held-out data of known classes, in any form that fit accepts.")],
    novel: Annotated[
        list[str] | None, typer.Option(help="Data of other classes: a folder of images, a table, a set. Repeatable.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for report.html and report.json.")] = Path("report"),
    label: Annotated[str | None, typer.Option(help="The column of a table with the classes.")] = None,
    false_reject_rate: Rate = None,
    title: Annotated[str | None, typer.Option(help="Title of the report.")] = None,
    module: Modules = None,
    as_json: Json = False,
) -> None:
    """Evaluate a model on known and novel data, and write a report with curves and the most confident mistakes.

    If a data set has known and other classes, --known uses the known and --novel the other ones.
    """
    require("matplotlib", "plot", "the report")  # before the work, not after it
    require("jinja2", "report", "the report")
    from openradial.evaluation import write_report
    from openradial.files import writable

    writable(out / "report.html")
    bundle = open_model(model, module)
    evaluation = bundle.evaluate(known, novel or [], label=label, false_reject_rate=false_reject_rate)
    page = write_report(evaluation, bundle, out, title or f"Evaluation of {model.resolve().name}")
    broken = sum(len(part.broken) for part in (evaluation.known, *evaluation.novel))
    if as_json:
        typer.echo(json.dumps({"model": str(model), "report": str(page), **evaluation.as_dict()}, indent=1))
    else:
        _show(evaluation, page, broken, bundle.preprocessing.kind == "texts")
    if broken:
        raise typer.Exit(BROKEN_INPUTS)


def _show(evaluation: "Evaluation", page: Path, broken: int, are_texts: bool) -> None:
    from openradial.evaluation.evaluation import find_mistakes, text_of

    console = Console(highlight=False, soft_wrap=True)
    for name, text in known_lines(evaluation.accuracy.value, evaluation.false_rejects):
        console.print(f"{name:<16}{text}")
    if evaluation.novel_metrics:
        table = Table(box=None, pad_edge=False)
        table.add_column("novel inputs (%)")
        for name in ("number", "called unknown", "AUROC", "FPR95", "OSCR"):
            table.add_column(name, justify="right")
        for each in evaluation.novel_metrics:
            values = (each.detected, *(each.metrics[name].value for name in ("auroc", "fpr_at_tpr", "oscr")))
            table.add_row(each.name, f"{each.examples:,}", *(f"{100 * value:.1f}" for value in values))
        console.print(table)
    for title, mistakes in zip(("novel, accepted", "misclassified"), find_mistakes(evaluation), strict=False):
        for m in mistakes[:SHOWN] if are_texts else ():
            answer = f"{m.predicted} ({m.probability:.3f}), is {m.true}"
            console.print(f"{title}: {text_of(m.row.raw) or '(empty)'}\n  {answer}", markup=False)
    if broken:
        console.print(f"{broken:,} input{'s' * (broken != 1)} could not be read; the report names them")
    for note in evaluation.notes:
        console.print(f"note: {note}", markup=False)
    console.print(f"report in {page}", markup=False)
