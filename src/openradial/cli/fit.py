"""``openradial fit``: from a folder, a table or a data set to a calibrated model."""

import inspect
import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openradial.cli import INTERRUPTED
from openradial.cli.modules import add_working_directory_to_path, known_lines
from openradial.errors import OptionError, listed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from openradial.classifier import OpenClassifier
    from openradial.fitting import FitReport, PreparedData
    from openradial.fitting.report import ClassAccuracy, NovelReport
    from openradial.training import Settings

KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
SHOWN = 3  # classes with the largest rates of a kind
WIDEST = 76  # characters of all names of classes side by side
PAUSE = 5.0  # seconds between two lines of progress
DATA = "A folder of images or texts per class, a table, or a data set: digits, mnist ..."
# one option per field of openradial.training.Settings, whose module would import torch to show the help
SETTINGS: dict[str, tuple[Any, str]] = {
    "batch_size": (int, "Examples per step, of all processes together."),
    "optimiser": (str, "adam, adamw, muon, rmsprop or sgd."),
    "learning_rate": (float, "Step size of the optimiser."),
    "momentum": (float, "Momentum of sgd, rmsprop and muon."),
    "decay": (float, "rmsprop: decay of the mean square."),
    "betas": (tuple[float, float], "adam and adamw: decay of both averages."),
    "nesterov": (bool, "Nesterov momentum of sgd."),
    "bias_factor": (float, "sgd and muon: factor of the learning rate of biases."),
    "weight_decay": (float, "L2 penalty; decoupled with adamw."),
    "schedule": (str, "constant, linear, cosine or step."),
    "warmup_epochs": (float, "Epochs in which the learning rate rises from 0."),
    "step_epochs": (int, "step: epochs between two reductions of the learning rate."),
    "step_factor": (float, "step: factor of each reduction."),
    "clip_norm": (float, "Largest norm of the gradient."),
    "precision": (str, "float32, bfloat16, float16 or float64."),
    "patience": (int, "Stop after so many epochs without a lower held-out loss."),
    "channels_last": (bool, "Store images with channels innermost."),
    "frozen_statistics": (bool, "Keep mean and variance of batch normalisation."),
    "ema": (float, "Average the weights with this decay."),
    "explosion": (float, "Stop if the loss exceeds so many times the first one."),
    "checkpoint_seconds": (float, "Seconds between two checkpoints."),
}
# options of openradial.fit by panel of the help, with type and help; without a value, the defaults of fit apply
OPTIONS: dict[str | None, dict[str, tuple[Any, str]]] = {
    None: {
        "label": (str, "The column of a table that holds the classes."),
        "text": (str, "The column of a table that holds texts; found if it is the only one."),
        "group": (str, "A column of a table: rows with the same value stay in one part of a split."),
        "near_duplicates": (bool, "Keep resized or compressed copies of an image in one part of a split, too."),
        "columns": (str, "Columns of a table to use, as in a,b; by default all whose type can be used."),
        "drop": (str, "Columns of a table to leave out, as in a,b."),
        "numeric": (str, "Columns of a table to use as numbers, as in a,b."),
        "categorical": (str, "Columns of a table to use as categories, as in a,b."),
        "false_reject_rate": (str, "Share of known inputs that may be called unknown; by default 0.05. Or auto."),
        "known": (str, "Known classes, as in cat,dog, or random:6; the others are novel."),
        "novel": (str, "Classes to leave out, as in cat,dog; the others are known."),
        "epochs": (int, "Passes over the training data."),
        "time_limit": (float, "Minutes for the run; training ends early, and optional parts are left out."),
        "size": (int, "Size of images from a folder, in pixels."),
        "views": (str, "Views of a photograph that an encoder looks at: one, flip or crops."),
        "flip": (bool, "Mirror images at random; by default colour images. Not for signs and letters."),
        "shift": (int, "Move images at random by so many pixels."),
        "cutout": (int, "Erase a square of so many pixels from each image; by default none."),
        "augment": (float, "Turn, shear, zoom and recolour images at random, with this strength; 0 for not."),
        "skip_broken": (bool, "Leave out broken images."),
        "seed": (int, "For the split, the weights and the order; by default 0."),
        "config": (Path, "A TOML file with the same names; options replace its values."),
        "resume": (bool, "Resume a run that was stopped."),
        "overwrite": (bool, "Overwrite an existing model."),
        "json": (bool, "Print the numbers as JSON."),
    },
    "Network, head and scores": {
        "model": (str, "A network by name, or module:factory; by default one for the kind of data."),
        "encoder": (str, "A frozen encoder by name, or hf:NAME ...; by default one for photographs and for texts."),
        "embeddings": (str, "Features computed elsewhere, one row per row of the table: NPY, NPZ or Parquet."),
        "option": (list[str], "An option of the network, as name=value. Repeatable."),
        "weights": (str, "Initial weights: imagenet, or a file."),
        "reset": (str, "Layers that ignore the weights: classifier, fully_connected or none; or closed-form."),
        "head": (str, "radial, softmax, doc or cac."),
        "finetune": (bool, "Train the encoder of photographs too; kept only if that is better on held-out data."),
        "method": (str, "gradient, closed-form, best of both, or auto, the default: closed-form where it can."),
        "calibration": (str, "split, cross (nothing is held out; closed-form only) or auto, the default."),
        "class_weight": (str, "balanced, its square root sqrt, or auto (closed-form only)."),
        "random_features": (int, "closed-form: number of random Fourier features; by default by the data."),
        "loss": (str, "squared, distance (the paper's) or rescaled (for many classes)."),
        "scale": (float, "Distance of the prototypes from the origin."),
        "beta": (float, "Decay of probabilities; by default fitted."),
        "outliers": (float, "Weight of outliers made from each batch; 0 for none."),
        "mixup": (float, "Train on means of two examples with weights from Beta(mixup, mixup); by default none."),
        "label_smoothing": (float, "Move targets from their prototype by this share; by default by the network."),
        "no_neighbours": (bool, "Ignore distances to training examples."),
        "no_far_axis": (bool, "Leave the probabilities far from the training data to the network."),
        "no_baseline": (bool, "Measure no logistic regression beside the model."),
    },
    "Several processes and machines": {
        "accelerator": (str, "cpu, cuda, mps or auto, the default."),
        "devices": (str, "Processes on this machine; auto, the default: one, or as torchrun says."),
        "nodes": (int, "Number of machines; by default 1."),
        "strategy": (str, "ddp, fsdp or auto, the default."),
        "tensorboard": (bool, "Write a TensorBoard log beside the checkpoints."),
    },
    "Training settings": SETTINGS,
}


def fit_command(
    data: Annotated[str | None, typer.Argument(help=DATA)] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the model; by default model.")] = None,
    **given: Any,
) -> None:
    """Fit a model that answers a class or unknown, calibrate it and save it.

    Known data are split by class into parts: to train, to combine scores, to calibrate and to measure. Tables, photos
    and texts are fitted in closed form; up to 20,000 examples all of them serve, each scored without its fold.
    """
    from rich.console import Console

    from openradial.fitting import StoppedError, fit
    from openradial.fitting.output import is_first_process
    from openradial.training.settings import read_toml

    selected = {name: value for name, value in {"data": data, **given}.items() if value is not None}
    config, as_json = selected.pop("config", None), selected.pop("json", False)
    for name in ("neighbours", "far_axis", "baseline"):
        if selected.pop(f"no_{name}", False):
            selected[name] = False
    network_options = dict(map(_pair, selected.pop("option", [])))
    options = {**({} if config is None else read_toml(config)), **selected}
    configured = options.pop("out", "model")
    out = Path(str(configured)) if out is None else out
    if network_options:
        options["model_options"] = {**options.get("model_options", {}), **network_options}
    if isinstance(rate := options.get("false_reject_rate"), str):
        options["false_reject_rate"] = _pair(f"rate={rate}")[1]  # a number, or auto
    if str(options.get("devices")).isdecimal():
        options["devices"] = int(options["devices"])
    if ":" in f"{options.get('model')}{options.get('encoder')}":
        add_working_directory_to_path()
    if "data" not in options:
        raise OptionError("a model needs data: name a folder, a table or a data set, such as digits")
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    printed: set[str] = set()  # notes
    callbacks: dict[str, Any] = {"on_epoch": _print_epochs(console)}
    callbacks["on_start"] = partial(_print_start, console, printed)
    try:
        fitted = fit(options.pop("data"), out=out, **callbacks, **options)
    except StoppedError as error:
        console.print(f"{error}")
        raise typer.Exit(INTERRUPTED) from error
    if not is_first_process():
        return
    if as_json:
        typer.echo(json.dumps({"model": str(out), **fitted.report.as_dict()}, indent=1))
    else:
        _print_report(fitted, out, printed)


def _print_start(console: "Console", printed: set[str], prepared: "PreparedData", settings: "Settings | None") -> None:
    from openradial.data.column_types import describe_types

    parts = ", ".join(f"{count:,} {name}" for name, count in prepared.counts().items())
    console.print(f"{prepared.name}: {len(prepared.split.known)} known classes; examples: {parts}", markup=False)
    if prepared.types:
        console.print(f"columns: {describe_types(prepared.types)}", markup=False)
    if settings is None:
        count = "the" if prepared.kind == "images" else f"{prepared.num_features}"
        console.print(f"closed-form head on {count} features; no network is trained")
    else:
        console.print(f"network {prepared.network.name}, {settings.epochs} epochs of batches of {settings.batch_size}")
    for note in dict.fromkeys(prepared.notes):
        if note not in printed:
            console.print(f"note: {note}", markup=False)
    printed.update(prepared.notes)


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


def _print_report(model: "OpenClassifier", out: Path, printed: set[str]) -> None:
    from rich.console import Console

    console, report = Console(highlight=False, soft_wrap=True), model.report
    for name, text in _lines(report, printed):
        console.print(f"{name:<16}{text}", markup=False)
    if report.matrix is not None:
        console.print(_matrix(report, model.classes))
    console.print(f"model in {out}; next: openradial evaluate, predict, inspect or export {out}", markup=False)


def _lines(report: "FitReport", printed: set[str]) -> list[tuple[str, str]]:
    lines = [("weak", sentence) for sentence in report.weak]
    if report.accuracy is not None and report.false_rejects is not None:
        lines += known_lines(report.accuracy, report.false_rejects)
    if rejected := sorted((each for each in report.per_class if each.rejected), key=lambda each: -each.rejected):
        lines.append(("unknown most", ", ".join(map(_rejected, rejected[:SHOWN]))))
    if report.novel is not None:
        lines.append(("detected novel", _detected(report.novel, "other")))
    if (expected := report.expected_detection) is not None:
        least = sorted(expected.by_class.items(), key=lambda pair: pair[1])[:SHOWN]
        fewest = ", ".join(f"{name}: {100 * share:.1f} %" for name, share in least)
        lines.append(("expected novel", f"{_detected(expected, 'left-out')}; fewest of {fewest}"))
    if (base := report.baseline) is not None:
        auroc = "" if base.auroc is None else f"; AUROC {100 * base.auroc:.1f} %"
        lines.append(("baseline", f"{base.name}: {100 * base.accuracy:.1f} % of {base.examples:,} known inputs{auroc}"))
    lines += [("note", note) for note in report.notes if note not in printed.union(report.weak)]
    if report.confused and report.matrix is None:
        pairs = [f"{pair.true} as {pair.predicted} ({pair.examples})" for pair in report.confused]
        lines.append(("confused", listed(pairs, 5)))
    if report.hardest:
        hard = [f"{each.name}: {100 * each.accuracy:.0f} %" for each in report.hardest]
        lines.append(("lowest accuracy", listed(hard, 5)))
    if report.closed_form is not None:
        lines.append(("closed form", _chosen(report.closed_form)))
    return [*lines, ("guarantee", report.guarantee), ("time", f"{report.seconds:.1f} s")]


def _detected(novel: "NovelReport", kind: str) -> str:
    others = f"one {kind} class" if len(novel.classes) == 1 else f"{len(novel.classes)} {kind} classes"
    return f"{100 * novel.detected:.1f} % of {novel.examples:,} examples of {others}; AUROC {100 * novel.auroc:.1f} %"


def _rejected(each: "ClassAccuracy") -> str:
    interval = f"{100 * each.rejected_low:.1f} to {100 * each.rejected_high:.1f} %"
    return f"{each.name}: {100 * each.rejected:.1f} % ({interval})"


def _chosen(values: Mapping[str, Any]) -> str:
    """Return the choices of a closed-form fit in one line."""
    texts = [f"alpha {values['alpha']:.3g}"]
    if values["random_features"]:
        texts.append(f"{values['random_features']:,} random features of width {values['width']:.3g}")
    return "; ".join([*texts, f"class weights: {values['class_weight'] or 'none'}"])


def _matrix(report: "FitReport", classes: tuple[str, ...]) -> "Table":
    from rich.table import Table

    assert report.matrix is not None
    table = Table(title="predicted class (rows: true class)", title_justify="left", box=None, pad_edge=False)
    # names that do not fit side by side would be cut to the same letters
    is_wide = len("".join(classes)) + 2 * len(classes) + max(map(len, classes)) > WIDEST
    table.add_column("", justify="left" if is_wide else "right")
    room = max(12, WIDEST - len(classes) * (2 + len(str(max(map(max, report.matrix))))))  # characters of a name
    for number, name in enumerate(classes, 1):
        table.add_column(str(number) if is_wide else name, justify="right")
    for number, (name, row) in enumerate(zip(classes, report.matrix, strict=True), 1):
        shown = name if len(name) <= room else f"{name[: room - 1]}…"
        counts = (str(count) if count else "·" for count in row)
        table.add_row(f"{number:>2} {shown}" if is_wide else name, *counts)
    return table


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (equals and name):
        raise OptionError(f"an option of the network is written name=value, got {text!r}")
    for kind in () if "_" in value else (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, {"true": True, "false": False}.get(value.lower(), value)


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with one option for every entry of OPTIONS."""
    parameters = [p for p in inspect.signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
    for panel, options in OPTIONS.items():
        for name, (kind, text) in options.items():
            flag = (f"--{name.replace('_', '-')}{'/--no-flip' * (name == 'flip')}",) if kind is bool else ()
            kind = Annotated[kind | None, typer.Option(*flag, help=text, rich_help_panel=panel)]
            parameters.append(inspect.Parameter(name, KEYWORD_ONLY, default=None, annotation=kind))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


fit_command = _with_options(fit_command)
