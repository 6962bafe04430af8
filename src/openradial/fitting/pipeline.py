"""Fit a classifier: prepare data, train, calibrate, measure, save."""

import json
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import Context, copy_context
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from openradial import models
from openradial.classifier import OpenClassifier
from openradial.conformal.calibration import examples_needed
from openradial.data.batches import BatchOptions
from openradial.data.examples import Examples
from openradial.data.progress import bar, current, whole_run
from openradial.data.readers.table_files import TABLES, ending_of
from openradial.data.sources import DataSource
from openradial.encoders import Encoder
from openradial.errors import OptionError, TrainingError, located, require
from openradial.files import writable
from openradial.fitting.baseline import fit_baseline
from openradial.fitting.calibration import LabelledBatches, calibrate, calibrate_fitted
from openradial.fitting.closed_form import calibrate_cross, expect, fit_closed_form, selected_values
from openradial.fitting.columns import choose_text, reading_options
from openradial.fitting.cross import FeatureSet
from openradial.fitting.encoding import encode_source
from openradial.fitting.held_out import too_few
from openradial.fitting.in_memory import FitData, as_source, name_of
from openradial.fitting.networks import choose_settings
from openradial.fitting.novelty import choose_rate, expected_detection
from openradial.fitting.options import FitOptions
from openradial.fitting.output import check_same_run, is_first_process, output_folder, training_folder
from openradial.fitting.preparation import ROWS, PreparedData, prepare
from openradial.fitting.report import GUARANTEES, Decided, FitReport, decide, make_report, weaknesses
from openradial.fitting.selection import fit_best
from openradial.heads import ClosedFormRadialHead
from openradial.heads.class_weight import balanced_weights
from openradial.recipe import EMBEDDING, FEW_CLASSES, Recipe, closed_form_recipe, default_recipe
from openradial.training import Devices, Record, Settings, limited_threads
from openradial.training import fit as train
from openradial.training.devices import gathered

CHUNK = 256  # examples per batch once the network is trained
FEW = 32  # images per batch for a large network
WHITENING = 2_000  # training images that whiten the first layer of a network


class StoppedError(TrainingError):
    """Training was asked to stop; a checkpoint was written."""


@whole_run()
def fit(
    data: FitData,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    accelerator: str = "auto",
    devices: int | str = "auto",
    nodes: int = 1,
    strategy: str = "auto",
    tensorboard: bool = False,
    on_start: Callable[[PreparedData, Settings | None], None] | None = None,
    on_epoch: Callable[[Record], None] | None = None,
    show_progress: bool = True,
    **options: Any,
) -> OpenClassifier:
    """Fit a classifier that answers a class or "unknown"; its ``report`` has the measured numbers.

    Known data are split into parts without a common example: to train, to combine scores, to calibrate the false-reject
    rate and to measure. Tables, photographs and texts are fitted in closed form, the last two on the features of a
    frozen encoder. Up to 20,000 examples all of them train, and each is scored by a classifier without its fold.

    With ``out`` the model is saved there. While a network is trained, the folder ``out`` with the suffix ``.training``
    holds checkpoints, and ``resume`` continues from them.

    Args:
        data: a folder of images or texts, a table, or the name of a data set, see
            :class:`openradial.fitting.FitOptions`; an ``Examples``, ``Table``, ``ImageFolder`` or ``DataSource`` of
            :mod:`openradial.data`; or a pair ``(inputs, labels)`` of arrays, or of a list of texts and their labels.
        out: folder for the model.
        resume: continue a run that was stopped.
        overwrite: replace an existing model.
        accelerator: ``"cpu"``, ``"cuda"``, ``"mps"`` or ``"auto"``; and so ``devices``, ``nodes`` and ``strategy``, see
            :class:`openradial.training.Devices`.
        tensorboard: write a TensorBoard log beside the checkpoints.
        on_start: called with the prepared data and the settings before training; in closed form there are none.
        on_epoch: called with the record of each epoch.
        show_progress: show progress bars in a terminal.
        options: fields of :class:`~openradial.fitting.FitOptions` and of :class:`openradial.training.Settings`.
    """
    began = time.monotonic()
    for name, value in {"resume": resume, "overwrite": overwrite, "tensorboard": tensorboard}.items():
        if not isinstance(value, bool):  # a text from a file would count as true
            raise OptionError(f"{name} must be true or false, got {value!r}")
    wanted = FitOptions.from_mapping({"data": name_of(data), **options})
    is_table = isinstance(data, str | Path) and ending_of(Path(data)) in TABLES  # others have their own bars
    show_progress = show_progress and is_first_process()
    with bar("reading", None) if is_table and show_progress else nullcontext():
        source = as_source(data, wanted.label, wanted.text, **reading_options(wanted))
    rate, n = wanted.false_reject_rate, len(source.train)
    if rate != "auto" and n < examples_needed(rate):  # before anything is encoded or fitted
        raise too_few(rate, n, f"there are {n}")
    run: dict[str, Any] = {"accelerator": accelerator, "devices": devices, "nodes": nodes, "strategy": strategy}
    training = {"resume": resume, "tensorboard": tensorboard, "report": on_epoch, "show_progress": show_progress}
    with nullcontext() if out is None else output_folder(out, overwrite, resume) as folder:
        if wanted.method == "best" or wanted.finetune:
            fit_one = partial(fit, on_epoch=on_epoch, show_progress=show_progress, **run)
            model = fit_best(fit_one, source, wanted, on_start)
            model.report = replace(model.report, seconds=round(time.monotonic() - began, 1))
            model.metadata["training"]["seconds"] = model.report.seconds
        else:
            model = _fit(source, wanted, began, folder, on_start, run, training)
        if folder is not None and is_first_process():
            model.save(folder, overwrite=overwrite)
            shutil.rmtree(training_folder(folder), ignore_errors=True)
        return model


def _fit(
    source: DataSource, wanted: FitOptions, began: float, folder: Path | None, on_start: Any, run: Any, training: Any
) -> OpenClassifier:
    """Fit in closed form or by training; ``run`` and ``training`` are options of Devices and of training.fit."""
    current().deadline = deadline = None if wanted.time_limit is None else began + 60 * wanted.time_limit
    stage = partial(bar, total=None) if training["show_progress"] else nullcontext
    with located(source.name) if Path(source.name).exists() else nullcontext():
        source = choose_text(wanted, source)
    features, encoder, notes = encode_source(wanted, source)
    as_features = wanted if encoder is None else replace(wanted, method="closed-form", size=None, encoder="auto")
    with located(source.name) if Path(source.name).exists() else nullcontext():
        prepared = prepare(as_features, features)
    prepared = replace(prepared, kind=source.kind, notes=(*notes, *source.notes, *prepared.notes))
    encoder = prepared.texts.encoder if prepared.texts is not None else encoder
    if prepared.method == "closed-form":
        if on_start is not None:
            on_start(prepared, None)
        if folder is not None:
            width, rows = prepared.num_features, min(len(prepared.train), 10_000)
            weights = {} if encoder is None else encoder.net.state_dict()
            writable(folder, sum(each.nbytes for each in weights.values()) + 8 * width * (2 * width + rows))
        with stage("fitting and calibrating"):
            return _fit_closed_form(as_features, prepared, encoder, began, deadline)
    settings = choose_settings(wanted, prepared.network, len(prepared.train))
    run_devices = Devices(settings, **run)
    if on_start is not None and run_devices.is_main:
        on_start(prepared, settings)
    net, recipe = build_network(wanted, prepared)
    head = recipe.make_head(len(prepared.split.known))
    counts, rule = torch.bincount(prepared.train.labels, minlength=head.num_classes), recipe.class_weight
    weight = None if rule is None else balanced_weights(counts, rule).float()
    # checkpoints hold the weights, two averages of the optimiser, and the previous ones until they are replaced
    size = 8 * sum(tensor.nbytes for tensor in net.state_dict().values())
    checkpoints = None if folder is None else training_folder(writable(folder, size))
    # what must be the same in a run that is resumed
    facts = {"options": wanted.as_dict() | {"training": {}}, "classes": prepared.split.known}
    facts = _json(facts | {"examples": prepared.counts()})
    if training["resume"] and checkpoints is not None:
        check_same_run(checkpoints, facts)
    current().after = sum(prepared.counts().values()) - len(prepared.train) + len(prepared.references)
    validation = None if prepared.combination is None else prepared.batches(prepared.combination, CHUNK)
    history = train(
        net,
        recipe.make_objective(head, weight),
        _training_batches(wanted, prepared, settings, run_devices),
        validation,
        settings=settings,
        devices=run_devices,
        folder=checkpoints,
        metadata=facts,
        deadline=deadline,
        **training,
    )
    if not history.finished:
        hint = "" if folder is None else "; resume with --resume"
        raise StoppedError(f"stopped by {history.stopped_by} after {len(history.records)} epochs{hint}")
    net = gathered(net, lambda: build_network(wanted, prepared)[0])
    with stage("calibrating"):
        net.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]  # as a bundle loads it
        model = calibrate(
            net,
            head,
            recipe,
            wanted.false_reject_rate,  # type: ignore[arg-type]  # a number: auto is refused before
            train=prepared.batches(prepared.references, CHUNK),
            combination=validation,
            calibration=prepared.batches(prepared.calibration, CHUNK),  # type: ignore[arg-type]
        )
        network = (prepared.network.name, dict(prepared.network.options))
        model = model.replace(classes=prepared.split.known, preprocessing=prepared.inputs, network=network)
    with stage("evaluating"):
        values: dict[str, Any] = {}
        if history.stopped_by is not None:
            ended = f"ended training after {len(history.records)} of {settings.epochs} epochs; there is no baseline"
            values["notes"] = (f"{history.stopped_by} {ended}",)
        elif wanted.baseline:
            values = Context().run(_baseline, prepared, nn.Flatten(), None, wanted.seed)  # work of another kind
        model.report = _measured(model, prepared, began, **values)
    trained = {"epochs": len(history.records), "settings": settings.as_dict()}
    model.metadata = _metadata(wanted, prepared, recipe, model.report, trained)
    return model


def _fit_closed_form(
    options: FitOptions, prepared: PreparedData, encoder: Encoder | None, began: float, deadline: float | None
) -> OpenClassifier:
    """Fit the head and the scorers on features, calibrate and measure."""
    started, skipped = time.monotonic(), list[str]()

    def has_time(part: str) -> bool:  # for what takes about as long as everything so far
        now = time.monotonic()
        if deadline is not None and 2 * now - started > deadline:
            skipped.append(f"no time was left for {part}")
            return False
        return True

    classes, rate, seed = prepared.split.known, options.false_reject_rate, options.seed
    kind = "table" if prepared.kind == "points" and prepared.num_features < EMBEDDING else prepared.kind
    if prepared.texts is not None and prepared.num_features == prepared.texts.train.shape[1]:  # no other columns
        kind = "texts"
    # of many classes, outputs detect novel ones better on the squares of features that are roots
    has_roots = encoder is not None and getattr(encoder.net, "power", 1.0) == 0.5
    wanted = {"squares": has_roots and len(classes) >= FEW_CLASSES, **options.recipe_options()}
    recipe = closed_form_recipe(kind, len(prepared.train), len(classes), **wanted)
    num_middle: dict[str, Any] = {"num_middle": encoder.num_middle} if encoder is not None else {}
    net = models.build(prepared.network.name, prepared.num_features, **num_middle)
    known = FeatureSet.of(net, prepared.batches(prepared.train, CHUNK), prepared.groups)
    if recipe.layers:
        recipe = replace(recipe, layers=(*recipe.layers, *known.layers))
    known = replace(known, workers=(threads := known.threads(recipe)))
    current().begin(*expect(recipe, known.z.shape, len(classes), is_cross=prepared.calibration is None))
    beside = ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,))
    baseline: Future[dict[str, Any]] | None = None
    if options.baseline:  # while one thread solves the head
        beside.submit(require, "scipy.optimize", "sklearn", "a baseline")

    def has_time_to_leave_out() -> bool:  # called when the head is fitted
        nonlocal baseline
        if options.baseline and deadline is None:  # beside the folds, which do not keep all cores busy
            baseline = beside.submit(copy_context().run, _baseline, prepared, net, known, seed)
            torch.set_num_threads(max(1, threads - 1))  # threads that wait for each other need a core each
        return has_time("leaving known classes out, so the detection of novel ones is not estimated")

    with beside, limited_threads(threads):  # which restores the number for all threads, too
        model, left_out = fit_closed_form(net, recipe, classes, known, seed, has_time_to_leave_out)
        decided, rate_notes = None, list[str]()
        if isinstance(rate, str):
            used = prepared.train if prepared.calibration is None else prepared.calibration
            rate, note = choose_rate(model, left_out, len(used))
            options, rate_notes = replace(options, false_reject_rate=rate), [note]
        if prepared.calibration is None:
            model, decided = calibrate_cross(model, recipe, rate, known, seed)
        else:
            held_out = None if prepared.combination is None else prepared.batches(prepared.combination, CHUNK)
            model = calibrate_fitted(model, recipe, rate, held_out, prepared.batches(prepared.calibration, CHUNK))
        values: dict[str, Any] = {"expected_detection": expected_detection(model, rate, left_out)}
    if baseline is not None:
        values |= baseline.result()
    elif options.baseline and has_time("a baseline"):
        values |= _baseline(prepared, net, known, seed)
    values["notes"] = (*rate_notes, *values.get("notes", ()), *skipped)
    report = _measured(model, prepared, began, decided, **values)
    if encoder is None:
        model = model.replace(preprocessing=prepared.inputs, network=(prepared.network.name, {}))
    else:
        model = model.replace(net=encoder.net, preprocessing=encoder.inputs, network=encoder.network)
    model.report, model.metadata = report, _metadata(options, prepared, recipe, report, {})
    return model


def _baseline(prepared: PreparedData, net: nn.Module, known: FeatureSet | None, seed: int) -> dict[str, Any]:
    """Return logistic regression on the features, or of a trained network on its inputs, with notes."""
    is_trained = known is None
    if known is None:
        if prepared.kind not in ("images", *ROWS) or not isinstance(prepared.train, Examples):
            return {"notes": (f"no baseline: there is none for {prepared.kind} of this kind",)}
        known = FeatureSet.of(net, prepared.batches(prepared.train, CHUNK), prepared.groups)
    parts = {"report": prepared.report, "novel": prepared.novel}
    others = {k: FeatureSet.of(net, prepared.batches(part, CHUNK)) for k, part in parts.items() if part is not None}
    made, notes = fit_baseline(known, **others, seed=seed)
    if made is not None and is_trained:
        made = replace(made, name=f"{made.name} on the inputs")
    return {"baseline": made, "notes": notes}


def build_network(options: FitOptions, prepared: PreparedData) -> tuple[nn.Module, Recipe]:
    """Return the network with its initial weights, and how it is trained and scored."""
    torch.manual_seed(options.seed)
    choice = prepared.network
    reset = "classifier" if options.reset == "closed-form" else options.reset
    initial: dict[str, Any] = {} if choice.weights is None else {"weights": choice.weights, "reset": reset}
    net = models.build(choice.name, len(prepared.split.known), **initial, **choice.options)
    last = getattr(net, "classifier", None)
    if initial and options.head == "radial" and options.reset != "none" and isinstance(last, nn.Linear):
        # Outputs shall start between the prototypes. Features of a pre-trained network are large: with the usual
        # initial weights the outputs lie many prototype distances away, and the steps of the first epochs all go to
        # one point, where the features are lost.
        nn.init.normal_(last.weight, 0, 1e-3)
        nn.init.zeros_(last.bias)
    if isinstance(net, models.FastCNN):
        first, _ = next(prepared.batches(prepared.train, WHITENING).epoch(0))
        net.fit_whitening(first)
    recipe = default_recipe(net, choice.name, prepared.kind, **options.recipe_options())
    if options.reset == "closed-form":
        solve_classifier(net, recipe, prepared.batches(prepared.train, FEW))
    return net, recipe


@torch.no_grad()
def solve_classifier(net: nn.Module, recipe: Recipe, train: LabelledBatches) -> None:
    """Set the last affine layer of a network to the closed-form solution on the features that it takes."""
    last = getattr(net, "classifier", None)
    if not isinstance(last, nn.Linear):
        raise OptionError("reset='closed-form' needs a network whose last layer, classifier, is affine; use another")
    net.classifier = nn.Identity()
    known = FeatureSet.of(net, train)
    head = ClosedFormRadialHead(
        last.out_features, last.in_features, scale=recipe.scale, class_weight=recipe.class_weight
    ).fit(known.z, known.y)
    last.weight.copy_(head.weight)  # type: ignore[arg-type]
    last.bias.copy_(head.bias)  # type: ignore[arg-type]
    net.classifier = last


def _training_batches(options: FitOptions, prepared: PreparedData, settings: Settings, devices: Devices) -> Any:
    if settings.batch_size % devices.world_size:
        expected = f"a multiple of {devices.world_size}, their number, got {settings.batch_size}"
        raise OptionError(f"batch_size counts all processes together and must be {expected}")
    rank, world = devices.rank, devices.world_size
    order: BatchOptions = {"shuffle": True, "seed": options.seed, "rank": rank, "world": world}
    return prepared.batches(prepared.train, settings.batch_size // world, **order)


def _measured(
    model: OpenClassifier, prepared: PreparedData, began: float, out_of_fold: Decided | None = None, **values: Any
) -> FitReport:
    """Return the numbers on examples that were used for nothing else, or on each example without its fold."""
    known, novel = (
        None if part is None else decide(model, prepared.batches(part, CHUNK))
        for part in (prepared.report, prepared.novel)
    )
    notes = (*prepared.notes, *values.pop("notes", ()))
    values |= {"guarantee": GUARANTEES["split" if out_of_fold is None else "cross"], "examples": prepared.counts()}
    values |= {"seconds": round(time.monotonic() - began, 1), "closed_form": selected_values(model.head)}
    report = make_report(model, out_of_fold if known is None else known, novel, prepared.split.novel, **values)
    assert model.rejector is not None
    counts = torch.bincount(prepared.train.labels, minlength=len(model.classes))
    weak = weaknesses(report, model.rejector.false_reject_rate, model.classes, counts)
    return replace(report, weak=weak, notes=(*weak, *notes))


def _metadata(
    options: FitOptions, prepared: PreparedData, recipe: Recipe, report: FitReport, training: dict[str, Any]
) -> dict[str, Any]:
    """Return what a bundle says about how the model was made."""
    values = report.as_dict()
    (values["expected_detection"] or {}).pop("by_class", None)  # may be long, and a card has a line for each
    data = {
        "name": Path(prepared.name).name if Path(prepared.name).exists() else prepared.name,
        "kind": prepared.kind,
        "label": prepared.label,
        "examples": prepared.counts(),
        "novel_classes": prepared.split.novel,
    }
    measured = {
        "accuracy": report.accuracy,
        "guarantee": report.guarantee,
        "false_reject_rate": values["false_rejects"] or {"asked": options.false_reject_rate},
        **{name: values[name] for name in ("novel", "expected_detection", "baseline", "weak")},
    }
    training = {"method": prepared.method, "seconds": report.seconds, **(report.closed_form or {}), **training}
    made = {"recipe": recipe.as_dict(), "training": training}
    return _json({"data": data, "measured": measured, **made, "notes": report.notes})


def _json(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values as JSON gives them back."""
    plain: dict[str, Any] = json.loads(json.dumps(values))
    return plain
