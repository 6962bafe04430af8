"""From a data set to a bundle: prepare, train, calibrate, measure, write."""

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from openradial import models
from openradial.bundle import Bundle, save
from openradial.classifier import OpenClassifier
from openradial.errors import OptionError, TrainingError
from openradial.fitting.choosing import choose_settings
from openradial.fitting.job import FitJob
from openradial.fitting.material import Encoded, Material, prepare
from openradial.fitting.recipe import Held, Recipe, make_recipe, open_classifier
from openradial.fitting.report import FitReport, Said, make_report, say
from openradial.training import History, Settings, fit
from openradial.training.checkpoint import LAST, load
from openradial.training.execution import start_near_zero
from openradial.training.log import Record

CHUNK = 256  # examples that are looked at together once the network is trained


@dataclass(frozen=True)
class Fitted:
    """A classifier with all that a prediction needs, what was measured of it, and where it was written."""

    bundle: Bundle
    report: FitReport
    folder: Path | None


class StoppedError(TrainingError):
    """Training was asked to stop; a checkpoint was written."""


def training_folder(out: Path) -> Path:
    """Where checkpoints lie while a bundle is being made: beside it."""
    return out.with_name(f"{out.name}.training")


def fit_job(
    job: FitJob,
    out: Path | str | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    report: Callable[[Record], None] | None = None,
    started: Callable[[Material, Settings], None] | None = None,
    show_progress: bool = True,
) -> Fitted:
    """Fit a job and write its bundle to ``out``.

    While it trains, ``out`` with ``.training`` at its end holds checkpoints, and ``resume`` goes on from them. That
    folder is removed when the bundle is written. ``started`` is told what was chosen, ``report`` each epoch.
    """
    place = None if out is None else Path(out).expanduser().absolute()
    if place is not None:
        _check_place(place, overwrite)
    began = time.monotonic()
    material = prepare(job)
    settings = choose_settings(job, material.choice, len(material.train))
    if started is not None:
        started(material, settings)
    torch.manual_seed(job.seed)
    net = _network(material)
    recipe = make_recipe(net, material.choice.network, material.kind, len(material.split.known))
    folder = None if place is None else training_folder(place)
    facts = _run_facts(job, material)
    if resume and folder is not None:
        _check_same(folder, facts)
    history = _trained(net, recipe, material, settings, job, folder, resume, facts, report, show_progress)
    classifier = _calibrated(net.cpu(), recipe, material, job.false_reject_rate)
    measured = _measured(classifier, material, round(time.monotonic() - began, 1))
    bundle = Bundle(
        classifier,
        material.choice.network,
        dict(material.choice.options),
        material.split.known,
        material.inputs,
        _facts(job, material, settings, history, measured),
    )
    if place is not None and folder is not None:
        save(bundle, place, overwrite=overwrite)
        shutil.rmtree(folder, ignore_errors=True)
    return Fitted(bundle, measured, place)


def _check_place(place: Path, overwrite: bool) -> None:
    if place.is_file():
        raise OptionError(f"a bundle is a folder, and {place} is a file; name another place")
    if place.is_dir() and any(place.iterdir()) and not overwrite:
        raise OptionError(f"{place} is there already; name another folder, or replace it with overwrite (--overwrite)")


def _network(material: Material) -> nn.Module:
    choice = material.choice
    count = len(material.split.known)
    if choice.weights is None:
        return models.build(choice.network, count, **choice.options)
    net = models.build(choice.network, count, weights=choice.weights, reset="classifier", **choice.options)
    start_near_zero(net)
    return net


def _trained(
    net: nn.Module,
    recipe: Recipe,
    material: Material,
    settings: Settings,
    job: FitJob,
    folder: Path | None,
    resume: bool,
    facts: dict[str, Any],
    report: Callable[[Record], None] | None,
    show_progress: bool,
) -> History:
    size = settings.batch_size
    watched = None if material.combination is None else material.batches(material.combination, CHUNK)
    history = fit(
        net,
        recipe.objective,
        material.batches(material.train, size, shuffle=True, seed=job.seed, flip=job.flip),
        watched,
        settings=settings,
        folder=folder,
        resume=resume,
        facts=facts,
        report=report,
        show_progress=show_progress,
    )
    if not history.finished:
        raise StoppedError(f"stopped by {history.stopped_by} after {len(history.records)} epochs; go on with --resume")
    return history


def _calibrated(net: nn.Module, recipe: Recipe, material: Material, rate: float) -> OpenClassifier:
    def held(data: Encoded) -> Held:
        return Held(material.batches(data, CHUNK))

    combination = None if material.combination is None else held(material.combination)
    return open_classifier(
        net,
        recipe,
        rate,
        train=held(material.references),
        combination=combination,
        calibration=held(material.calibration),
    )


def _measured(classifier: OpenClassifier, material: Material, seconds: float) -> FitReport:
    def said(data: Encoded | None) -> Said | None:
        return None if data is None else say(classifier, material.batches(data, CHUNK))

    return make_report(
        classifier,
        material.split.known,
        said(material.report),
        said(material.novel),
        material.split.novel,
        examples=material.counts(),
        seconds=seconds,
        notes=material.notes,
    )


def _run_facts(job: FitJob, material: Material) -> dict[str, Any]:
    """What must be the same where a run goes on."""
    facts = {
        "job": {**job.as_dict(), "training": {}},
        "classes": material.split.known,
        "examples": material.counts(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(facts))
    return plain


def _check_same(folder: Path, now: dict[str, Any]) -> None:
    if not (folder / LAST).is_file():
        raise TrainingError(f"there is no run to go on with in {folder}; start without resume (--resume)")
    then = load(folder / LAST)[1].get("facts", {})
    for name, value in now.items():
        if then.get(name) != value:
            raise TrainingError(
                f"the run in {folder} was started with another {name}: {then.get(name)!r}, now it is {value!r}; set it "
                "back, or choose another folder"
            )


def _facts(job: FitJob, material: Material, settings: Settings, history: History, report: FitReport) -> dict[str, Any]:
    data = {
        "name": material.name if ":" in material.name or not Path(material.name).exists() else Path(material.name).name,
        "kind": material.kind,
        "label": material.label,
        "examples": material.counts(),
        "novel_classes": list(material.split.novel),
    }
    said = report.as_dict()
    rates = said["false_rejects"] or {"asked": job.false_reject_rate}
    numbers = {"accuracy": report.accuracy, "false_reject_rate": rates, "novel": said["novel"]}
    training = {"epochs": len(history.records), "seconds": report.seconds, "settings": settings.as_dict()}
    facts = {"data": data, "measured": numbers, "training": training, "notes": list(report.notes)}
    plain: dict[str, Any] = json.loads(json.dumps(facts))
    return plain
