"""``openradial fit``: from a folder, a table or a data set to a calibrated model."""

import inspect
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openradial.cli import INTERRUPTED
from openradial.cli.modules import add_working_directory_to_path
from openradial.errors import OptionError, listed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from openradial.classifier import OpenClassifier
    from openradial.fitting import FitReport, PreparedData
    from openradial.training import Settings

PAUSE = 5.0  # seconds between two lines of progress
TRAINING, MACHINE, RECIPE = "Training settings", "Several processes and machines", "Network, head and scores"
# one option per field of openradial.training.Settings, whose module would import torch to show the help
SETTINGS: dict[str, tuple[Any, str]] = {
    "batch_size": (int, "Examples per step, of all processes together."),
    "optimiser": (str, "adam, adamw, rmsprop or sgd."),
    "learning_rate": (float, "Step size of the optimiser."),
    "momentum": (float, "Momentum of sgd and rmsprop."),
    "decay": (float, "rmsprop: decay of the mean square."),
    "betas": (tuple[float, float], "adam and adamw: decay of both averages."),
    "weight_decay": (float, "L2 penalty; decoupled with adamw."),
    "schedule": (str, "constant, linear, cosine or step."),
    "warmup_epochs": (float, "Epochs in which the learning rate rises from 0."),
    "step_epochs": (int, "step: epochs between two reductions of the learning rate."),
    "step_factor": (float, "step: factor of each reduction."),
    "clip_norm": (float, "Largest norm of the gradient."),
    "precision": (str, "float32, bfloat16, float16 or float64."),
    "patience": (int, "Stop after so many epochs without a lower held-out loss."),
    "channels_last": (bool, "Store images with channels innermost."),
    "ema": (float, "Average the weights with this decay."),
    "explosion": (float, "Stop if the loss exceeds so many times the first one."),
    "checkpoint_seconds": (float, "Seconds between two checkpoints."),
}


def fit_command(
    data: Annotated[
        str | None,
        typer.Argument(help="A folder of images per class, a table, or a data set: digits, mnist ..."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the model.")] = Path("model"),
    label: Annotated[str | None, typer.Option(help="The column of a table that holds the classes.")] = None,
    group: Annotated[
        str | None, typer.Option(help="A column of a table: rows with the same value stay in one part of a split.")
    ] = None,
    false_reject_rate: Annotated[
        float | None, typer.Option(help="Share of known inputs that may be called unknown. [default: 0.05]")
    ] = None,
    known: Annotated[
        str | None, typer.Option(help="Known classes, as in cat,dog, or random:6; the others are novel.")
    ] = None,
    novel: Annotated[
        str | None, typer.Option(help="Classes to leave out, as in cat,dog; the others are known.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training data.")] = None,
    size: Annotated[int | None, typer.Option(help="Size of images from a folder, in pixels.")] = None,
    flip: Annotated[bool, typer.Option("--flip", help="Mirror images at random; not for signs and letters.")] = False,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Leave out broken images.")] = False,
    seed: Annotated[int | None, typer.Option(help="For the split, the weights and the order. [default: 0]")] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file with the same names; options replace its values.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume a run that was stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Overwrite an existing model.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
    model: Annotated[
        str | None,
        typer.Option(help="A network by name, or module:factory. [default: by data]", rich_help_panel=RECIPE),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="An option of the network, as name=value. Repeatable.", rich_help_panel=RECIPE),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Initial weights: imagenet, or a file.", rich_help_panel=RECIPE)
    ] = None,
    reset: Annotated[
        str | None,
        typer.Option(
            help="Layers that ignore the weights: classifier, fully_connected or none.", rich_help_panel=RECIPE
        ),
    ] = None,
    head: Annotated[str | None, typer.Option(help="radial, softmax, doc or cac.", rich_help_panel=RECIPE)] = None,
    loss: Annotated[str | None, typer.Option(help="squared or distance (the paper's).", rich_help_panel=RECIPE)] = None,
    scale: Annotated[
        float | None, typer.Option(help="Distance of the prototypes from the origin.", rich_help_panel=RECIPE)
    ] = None,
    beta: Annotated[
        float | None, typer.Option(help="Decay of probabilities. [default: fitted]", rich_help_panel=RECIPE)
    ] = None,
    outliers: Annotated[
        float | None, typer.Option(help="Weight of outliers made from each batch; 0 for none.", rich_help_panel=RECIPE)
    ] = None,
    no_neighbours: Annotated[
        bool, typer.Option("--no-neighbours", help="Ignore distances to training examples.", rich_help_panel=RECIPE)
    ] = False,
    accelerator: Annotated[str, typer.Option(help="cpu, cuda, mps or auto.", rich_help_panel=MACHINE)] = "auto",
    devices: Annotated[
        str, typer.Option(help="Processes on this machine; auto: one, or as torchrun says.", rich_help_panel=MACHINE)
    ] = "auto",
    nodes: Annotated[int, typer.Option(help="Number of machines.", rich_help_panel=MACHINE)] = 1,
    strategy: Annotated[str, typer.Option(help="auto, ddp or fsdp.", rich_help_panel=MACHINE)] = "auto",
    tensorboard: Annotated[
        bool,
        typer.Option("--tensorboard", help="Write a TensorBoard log beside the checkpoints.", rich_help_panel=MACHINE),
    ] = False,
    **settings: Any,
) -> None:
    """Fit a model that answers a class or unknown, calibrate it and save it.

    Known data are split by class into parts: to train, to combine scores, to calibrate and to measure.
    """
    given: dict[str, Any] = {
        "data": data,
        "label": label,
        "group": group,
        "false_reject_rate": false_reject_rate,
        "known": known,
        "novel": novel,
        "epochs": epochs,
        "size": size,
        "flip": flip or None,
        "skip_broken": skip_broken or None,
        "seed": seed,
        "model": model,
        "weights": weights,
        "reset": reset,
        "head": head,
        "loss": loss,
        "scale": scale,
        "beta": beta,
        "outliers": outliers,
        "neighbours": False if no_neighbours else None,
        **settings,
    }
    from rich.console import Console

    from openradial.fitting import StoppedError, fit
    from openradial.training.settings import read_toml

    options = {} if config is None else read_toml(config)
    options |= {name: value for name, value in given.items() if value is not None}
    if option:
        options["model_options"] = {**options.get("model_options", {}), **dict(map(_pair, option))}
    if ":" in str(options.get("model", "")):
        add_working_directory_to_path()
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if "data" not in options:
        raise OptionError("a model needs data: name a folder, a table or a data set, such as digits")
    try:
        fitted = fit(
            options.pop("data"),
            out=out,
            resume=resume,
            overwrite=overwrite,
            accelerator=accelerator,
            devices=int(devices) if devices.isdecimal() else devices,
            nodes=nodes,
            strategy=strategy,
            tensorboard=tensorboard,
            on_start=_print_start(console),
            on_epoch=_print_epochs(console),
            **options,
        )
    except StoppedError as error:
        console.print(f"{error}")
        raise typer.Exit(INTERRUPTED) from error
    if not _is_first_process():
        return
    if as_json:
        typer.echo(json.dumps({"model": str(out), **fitted.report.as_dict()}, indent=1))
    else:
        _print_report(fitted, out)


def _is_first_process() -> bool:
    import torch.distributed as dist

    return not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0


def _print_start(console: "Console") -> "Callable[[PreparedData, Settings], None]":
    def on_start(prepared: "PreparedData", settings: "Settings") -> None:
        parts = ", ".join(f"{count:,} {name}" for name, count in prepared.counts().items())
        console.print(f"{prepared.name}: {len(prepared.split.known)} known classes; examples: {parts}", markup=False)
        console.print(f"network {prepared.network.name}, {settings.epochs} epochs of batches of {settings.batch_size}")
        for note in prepared.notes:
            console.print(f"note: {note}", markup=False)

    return on_start


def _print_epochs(console: "Console") -> Callable[[dict[str, Any]], None]:
    """Return a function that prints a line every few seconds."""
    printed = 0.0

    def on_epoch(record: dict[str, Any]) -> None:
        nonlocal printed
        if time.monotonic() - printed < PAUSE:
            return
        printed = time.monotonic()
        parts = [f"epoch {record['epoch']}", f"loss {record['loss']:.4f}"]
        if "validation_accuracy" in record:
            parts.append(f"held-out accuracy {100 * record['validation_accuracy']:.1f} %")
        console.print("  ".join(parts), style="dim")

    return on_epoch


def _print_report(model: "OpenClassifier", out: Path) -> None:
    from rich.console import Console

    console, report = Console(highlight=False, soft_wrap=True), model.report
    for name, text in _lines(report):
        console.print(f"{name:<16}{text}", markup=False)
    if report.matrix is not None:
        console.print(_matrix(report, model.classes))
    console.print(f"model in {out}; next: openradial evaluate, predict, inspect or export {out}", markup=False)


def _lines(report: "FitReport") -> list[tuple[str, str]]:
    lines = []
    if report.accuracy is not None and report.false_rejects is not None:
        rejects = report.false_rejects
        lines.append(("accuracy", f"{100 * report.accuracy:.1f} % of {rejects.examples:,} known examples"))
        between = f"95 % interval {100 * rejects.low:.1f} to {100 * rejects.high:.1f} %"
        lines.append(
            ("called unknown", f"{100 * rejects.measured:.1f} % of them, {100 * rejects.asked:g} % asked; {between}")
        )
    if report.novel is not None:
        novel = report.novel
        others = "one other class" if len(novel.classes) == 1 else f"{len(novel.classes)} other classes"
        detected = f"{100 * novel.detected:.1f} % of {novel.examples:,} examples of {others}"
        lines.append(("detected novel", f"{detected}; AUROC {100 * novel.auroc:.1f} %"))
    if report.confused and report.matrix is None:
        pairs = [f"{pair.true} as {pair.predicted} ({pair.examples})" for pair in report.confused]
        lines.append(("confused", listed(pairs, 5)))
    if report.hardest:
        hard = [f"{each.name} {100 * each.accuracy:.0f} %" for each in report.hardest]
        lines.append(("lowest accuracy", listed(hard, 5)))
    return [*lines, ("time", f"{report.seconds:.1f} s")]


def _matrix(report: "FitReport", classes: tuple[str, ...]) -> "Table":
    from rich.table import Table

    assert report.matrix is not None
    table = Table(title="predicted class (rows: true class)", title_justify="left", box=None, pad_edge=False)
    table.add_column("", justify="right")
    for name in classes:
        table.add_column(name, justify="right", max_width=12)
    for name, row in zip(classes, report.matrix, strict=True):
        table.add_row(name, *(str(count) if count else "·" for count in row))
    return table


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (equals and name):
        raise OptionError(f"an option of the network is written name=value, got {text!r}")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, {"true": True, "false": False}.get(value.lower(), value)


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with one option for every training setting."""
    parameters = inspect.signature(command).parameters.values()
    named = [p.replace(kind=p.KEYWORD_ONLY) for p in parameters if p.kind is not p.VAR_KEYWORD]
    options = []
    for name, (kind, text) in SETTINGS.items():
        flag = (f"--{name.replace('_', '-')}",) if kind is bool else ()
        option = typer.Option(*flag, help=text, show_default=False, rich_help_panel=TRAINING)
        annotation: Any = Annotated[kind | None, option]
        options.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    command.__signature__ = inspect.Signature([*named, *options])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in (*named, *options)}
    return command


fit_command = _with_settings(fit_command)
