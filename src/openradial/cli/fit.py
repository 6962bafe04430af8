"""``openradial fit``: from a folder or a table to a calibrated model."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from openradial.cli import INTERRUPTED
from openradial.cli.modules import add_working_directory_to_path
from openradial.errors import listed

if TYPE_CHECKING:
    from openradial.fitting import FitReport, Fitted
    from openradial.fitting.material import Material
    from openradial.training import Settings

PAUSE = 5.0  # seconds between two lines of progress


def fit_command(
    data: Annotated[
        str | None,
        typer.Argument(help="A folder of images per class, a table (CSV, Parquet, NPZ), or a set: digits, mnist ..."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the model.")] = Path("model"),
    label: Annotated[str | None, typer.Option(help="The column of a table that holds the classes.")] = None,
    model: Annotated[str | None, typer.Option(help="A network by name; otherwise one that suits the data.")] = None,
    false_reject_rate: Annotated[
        float | None, typer.Option(help="Share of known inputs that may be called unknown (0.05).")
    ] = None,
    known: Annotated[
        str | None, typer.Option(help="Known classes, as in cat,dog, or random:6; the rest is novel.")
    ] = None,
    novel: Annotated[str | None, typer.Option(help="Classes to leave out, as in cat,dog; the rest is known.")] = None,
    epochs: Annotated[int | None, typer.Option(help="How often the network sees the data.")] = None,
    size: Annotated[int | None, typer.Option(help="Of images from a folder, in pixels.")] = None,
    flip: Annotated[
        bool, typer.Option("--flip", help="Images: mirror them at random; not for signs and letters.")
    ] = False,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Leave broken images out.")] = False,
    seed: Annotated[int | None, typer.Option(help="For the split, the first weights and the order (0).")] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file with the same names; options replace its values.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a model that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The numbers as JSON, for a script.")] = False,
) -> None:
    """Fit a model that says class or unknown, calibrate it and save it.

    Known data are split by class into parts to train, to combine scores, to calibrate and to measure.
    """
    from openradial.fitting import FitJob, fit_job
    from openradial.fitting.running import StoppedError
    from openradial.training.job import merged
    from openradial.training.settings import read_toml

    given = {
        "data": data,
        "label": label,
        "model": model,
        "false_reject_rate": false_reject_rate,
        "known": known,
        "novel": novel,
        "epochs": epochs,
        "size": size,
        "flip": flip or None,
        "skip_broken": skip_broken or None,
        "seed": seed,
    }
    values = {} if config is None else read_toml(config)
    job = FitJob.from_mapping(
        merged(FitJob, values, {name: value for name, value in given.items() if value is not None})
    )
    if ":" in job.model:
        add_working_directory_to_path()
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        fitted = fit_job(
            job, out, resume=resume, overwrite=overwrite, started=_started(console), report=_epochs(console)
        )
    except StoppedError as error:
        console.print(f"{error}")
        raise typer.Exit(INTERRUPTED) from error
    if as_json:
        typer.echo(json.dumps({"model": str(out), **fitted.report.as_dict()}, indent=1))
    else:
        _conclude(fitted, out)


def _started(console: Console) -> Callable[["Material", "Settings"], None]:
    def started(material: "Material", settings: "Settings") -> None:
        counts = material.counts()
        parts = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        console.print(f"{material.name}: {len(material.split.known)} known classes; examples: {parts}", markup=False)
        console.print(
            f"network {material.choice.network}, {settings.epochs} epochs of batches of {settings.batch_size}"
        )
        for note in material.notes:
            console.print(f"note: {note}", markup=False)

    return started


def _epochs(console: Console) -> Callable[[dict[str, Any]], None]:
    """A line every now and then."""
    said = 0.0

    def report(record: dict[str, Any]) -> None:
        nonlocal said
        if time.monotonic() - said < PAUSE:
            return
        said = time.monotonic()
        shown = [f"epoch {record['epoch']}", f"loss {record['loss']:.4f}"]
        if "validation_accuracy" in record:
            shown.append(f"held-out accuracy {100 * record['validation_accuracy']:.1f} %")
        console.print("  ".join(shown), style="dim")

    return report


def _conclude(fitted: "Fitted", out: Path) -> None:
    console, report = Console(highlight=False, soft_wrap=True), fitted.report
    for name, text in _lines(fitted):
        console.print(f"{name:<16}{text}", markup=False)
    if report.matrix is not None:
        console.print(_matrix(report, fitted.bundle.classes))
    console.print(f"model in {out}; next: openradial evaluate, predict, inspect or export {out}", markup=False)


def _lines(fitted: "Fitted") -> list[tuple[str, str]]:
    report, lines = fitted.report, []
    if report.accuracy is not None and report.false_rejects is not None:
        asked = report.false_rejects
        lines.append(("accuracy", f"{100 * report.accuracy:.1f} % of {asked.examples:,} known examples"))
        between = f"95 % interval {100 * asked.low:.1f} to {100 * asked.high:.1f} %"
        lines.append(
            ("called unknown", f"{100 * asked.measured:.1f} % of them, {100 * asked.asked:g} % asked; {between}")
        )
    if report.novel is not None:
        novel = report.novel
        others = "one other class" if len(novel.classes) == 1 else f"{len(novel.classes)} other classes"
        found = f"{100 * novel.detected:.1f} % of {novel.examples:,} examples of {others}"
        lines.append(("found novel", f"{found}; AUROC {100 * novel.auroc:.1f} %"))
    if report.confused and report.matrix is None:
        pairs = [f"{pair.true} as {pair.said} ({pair.times})" for pair in report.confused]
        lines.append(("confused", listed(pairs, 5)))
    if report.hardest:
        hard = [f"{each.name} {100 * each.accuracy:.0f} %" for each in report.hardest]
        lines.append(("hardest", listed(hard, 5)))
    return [*lines, ("time", f"{report.seconds:.1f} s")]


def _matrix(report: "FitReport", classes: tuple[str, ...]) -> Table:
    assert report.matrix is not None
    table = Table(title="taken for (rows: true class)", title_justify="left", box=None, pad_edge=False)
    table.add_column("", justify="right")
    for name in classes:
        table.add_column(name, justify="right", max_width=12)
    for name, row in zip(classes, report.matrix, strict=True):
        table.add_row(name, *(str(count) if count else "·" for count in row))
    return table
