"""``openradial train``: a job from options, from a TOML file, or from both."""

import dataclasses
import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from openradial.cli.modules import add_working_directory_to_path
from openradial.errors import OptionError
from openradial.training import Machine
from openradial.training.execution import JobResult, run_job
from openradial.training.job import Job, merged
from openradial.training.settings import Settings, read_toml

HELP = {
    "data": "A set (openradial data list), or folder:PATH, tiny-imagenet:PATH, ilsvrc:PATH, table:PATH.",
    "known": "Known classes: all, random:6, names:A,B, file:PATH; for ILSVRC not:n00021939.",
    "split_seed": "For random:N.",
    "model": "A network's name, or package.module:factory; auto fits the data.",
    "weights": "A file, or imagenet.",
    "reset": "Layers that start anew in spite of weights: fully_connected, classifier or none.",
    "head": "radial, softmax, doc or cac.",
    "beta": "How fast probabilities fall with distance.",
    "scale": "How far prototypes are from the origin.",
    "size": "Of images from a folder, in pixels (64).",
    "label": "The column of a table that holds the classes.",
    "augment": "Images: random flips and shifts.",
    "skip_broken": "Leave broken images out instead of failing.",
    "validation": "Share of the known training data that is kept for watching.",
    "batch_size": "Examples of all processes together.",
    "optimiser": "adam, adamw, rmsprop or sgd.",
    "momentum": "sgd and rmsprop.",
    "decay": "rmsprop: how much of the mean square is kept.",
    "betas": "adam and adamw.",
    "schedule": "constant, linear, cosine or step.",
    "step_epochs": "step: epochs between two falls of the learning rate.",
    "step_factor": "step: to which part of itself it falls.",
    "clip_norm": "Largest norm of a gradient.",
    "precision": "float32, bfloat16, float16 or float64.",
    "patience": "Epochs without a better validation loss before the run ends.",
    "channels_last": "Images with channels innermost: faster on many machines.",
    "ema": "How much of the averaged weights is kept at each step.",
    "explosion": "A loss so many times the first one stops the run.",
    "checkpoint_seconds": "Between two checkpoints.",
}
SKIPPED = ("training", "model_options")


def train(
    out: Annotated[Path, typer.Option(help="Folder for checkpoints, log and result.")] = Path("run"),
    config: Annotated[
        Path | None, typer.Option(help="A TOML file with the same names; options replace its values.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write a TensorBoard log.")] = False,
    devices: Annotated[str, typer.Option(help="Devices on this machine, or auto.")] = "auto",
    nodes: Annotated[int, typer.Option(help="Machines.")] = 1,
    accelerator: Annotated[str, typer.Option(help="cpu, cuda, mps or auto.")] = "auto",
    strategy: Annotated[str, typer.Option(help="ddp, fsdp (the network in parts, one per device) or auto.")] = "auto",
    option: Annotated[list[str] | None, typer.Option(help="An option of the network, as name=value.")] = None,
    **given: Any,
) -> None:
    """Train a network on known classes, and test it on known and novel ones."""
    values = {} if config is None else read_toml(config)
    job = Job.from_mapping(merged(Job, values, {name: value for name, value in given.items() if value is not None}))
    if option:
        job = dataclasses.replace(job, model_options={**job.model_options, **dict(map(_pair, option))})
    if ":" in job.model:
        add_working_directory_to_path()
    number: int | str = int(devices) if devices.isdecimal() else devices
    machine = Machine(job.training, accelerator=accelerator, devices=number, nodes=nodes, strategy=strategy)
    result = run_job(job, out, resume=resume, machine=machine, tensorboard=tensorboard, report=_report(job))
    if machine.is_first:
        _conclude(result, out)


def _report(job: Job) -> Callable[[dict[str, Any]], None]:
    def report(record: dict[str, Any]) -> None:
        shown = [f"epoch {record['epoch']}/{job.training.epochs}"]
        names = ("loss", "accuracy", "validation_loss", "validation_accuracy")
        shown += [f"{name.replace('_', ' ')} {record[name]:.4f}" for name in names if name in record]
        shown.append(f"{record['seconds']:.1f} s ({record['examples_per_second']:,.0f} examples/s)")
        typer.echo("  ".join(shown))

    return report


def _conclude(result: JobResult, out: Path) -> None:
    if not result.history.finished:
        done = len(result.history.records)
        typer.echo(f"stopped by {result.history.stopped_by} after {done} epochs; go on with --resume")
        raise typer.Exit(130)
    test = result.test
    parts = [f"accuracy {100 * test['accuracy']:.2f} % on {test['known_examples']:,} known examples"]
    if "auroc" in test:
        parts.append(f"AUROC {100 * test['auroc']:.2f} % against {test['novel_examples']:,} novel ones")
    typer.echo(f"{', '.join(parts)}; files in {out}")


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
    """The command with one option for every setting of a job, so that both always have the same names."""
    own = [
        p.replace(kind=p.KEYWORD_ONLY)
        for p in inspect.signature(command).parameters.values()
        if p.kind is not p.VAR_KEYWORD
    ]
    settings = [_option(kind, f) for kind in (Job, Settings) for f in dataclasses.fields(kind) if f.name not in SKIPPED]
    command.__signature__ = inspect.Signature([*settings, *own])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in (*settings, *own)}
    return command


def _option(kind: type, described: dataclasses.Field[Any]) -> inspect.Parameter:
    plain = _plain(typing.get_type_hints(kind)[described.name])
    text = HELP.get(described.name, "")
    if described.default not in (None, dataclasses.MISSING):
        text = f"{text} (default {described.default})".strip()
    annotation: Any = Annotated[plain | None, typer.Option(help=text, show_default=False)]
    return inspect.Parameter(described.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _plain(hint: Any) -> Any:
    """The type that the command line parses; what it means is checked by the job itself."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return str
    if type(None) in parts:
        return _plain(parts[0])
    return hint


train = _with_settings(train)
