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
from openradial.fitting.report import FitReport, make_report, say
from openradial.training import History, Record, Settings, fit
from openradial.training.checkpoint import LAST, load
from openradial.training.execution import start_near_zero

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
    began = time.monotonic()
    place = None if out is None else _checked_place(out, overwrite)
    material = prepare(job)
    run = _Run(job, material, choose_settings(job, material.choice, len(material.train)))
    if started is not None:
        started(material, run.settings)
    net, recipe = run.network()
    folder = None if place is None else training_folder(place)
    history = run.train(net, recipe, folder, resume, report, show_progress)
    classifier = run.calibrate(net.cpu(), recipe)
    measured = run.measure(classifier, round(time.monotonic() - began, 1))
    bundle = run.bundle(classifier, history, measured)
    if place is not None:
        save(bundle, place, overwrite=overwrite)
        shutil.rmtree(training_folder(place), ignore_errors=True)
    return Fitted(bundle, measured, place)


@dataclass(frozen=True)
class _Run:
    """The steps of a job, with what is chosen for it."""

    job: FitJob
    material: Material
    settings: Settings

    def network(self) -> tuple[nn.Module, Recipe]:
        """The network at its start, and how it is to be trained."""
        torch.manual_seed(self.job.seed)
        choice, count = self.material.choice, len(self.material.split.known)
        if choice.weights is None:
            net = models.build(choice.network, count, **choice.options)
        else:
            net = models.build(choice.network, count, weights=choice.weights, reset="classifier", **choice.options)
            start_near_zero(net)
        return net, make_recipe(net, choice.network, self.material.kind, count)

    def train(
        self,
        net: nn.Module,
        recipe: Recipe,
        folder: Path | None,
        resume: bool,
        report: Callable[[Record], None] | None,
        show_progress: bool,
    ) -> History:
        """Train in place; the part for the combination is watched."""
        job, material, facts = self.job, self.material, self._facts_to_keep()
        if resume and folder is not None:
            _check_same(folder, facts)
        history = fit(
            net,
            recipe.objective,
            material.batches(material.train, self.settings.batch_size, shuffle=True, seed=job.seed, flip=job.flip),
            None if material.combination is None else material.batches(material.combination, CHUNK),
            settings=self.settings,
            folder=folder,
            resume=resume,
            metadata=facts,
            report=report,
            show_progress=show_progress,
        )
        if not history.finished:
            raise StoppedError(
                f"stopped by {history.stopped_by} after {len(history.records)} epochs; go on with --resume"
            )
        net.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]  # as a bundle will load it
        return history

    def calibrate(self, net: nn.Module, recipe: Recipe) -> OpenClassifier:
        """The classifier with all its parts fitted, each on data of its own."""
        material = self.material
        return open_classifier(
            net,
            recipe,
            self.job.false_reject_rate,
            train=self._held(material.references),
            combination=None if material.combination is None else self._held(material.combination),
            calibration=self._held(material.calibration),
        )

    def measure(self, classifier: OpenClassifier, seconds: float) -> FitReport:
        """What the classifier says of examples that served nothing else."""
        material = self.material
        known, novel = (
            None if part is None else say(classifier, material.batches(part, CHUNK))
            for part in (material.report, material.novel)
        )
        return make_report(
            classifier,
            material.split.known,
            known,
            novel,
            material.split.novel,
            examples=material.counts(),
            seconds=seconds,
            notes=material.notes,
        )

    def bundle(self, classifier: OpenClassifier, history: History, report: FitReport) -> Bundle:
        """All that a prediction needs, with the facts of how it came about."""
        material, choice = self.material, self.material.choice
        data = {
            "name": Path(material.name).name if Path(material.name).exists() else material.name,
            "kind": material.kind,
            "label": material.label,
            "examples": material.counts(),
            "novel_classes": material.split.novel,
        }
        said = report.as_dict()
        rates = said["false_rejects"] or {"asked": self.job.false_reject_rate}
        numbers = {"accuracy": report.accuracy, "false_reject_rate": rates, "novel": said["novel"]}
        training = {"epochs": len(history.records), "seconds": report.seconds, "settings": self.settings.as_dict()}
        facts = {"data": data, "measured": numbers, "training": training, "notes": report.notes}
        return Bundle(
            classifier, choice.network, dict(choice.options), material.split.known, material.inputs, _plain(facts)
        )

    def _held(self, data: Encoded) -> Held:
        return Held(self.material.batches(data, CHUNK))

    def _facts_to_keep(self) -> dict[str, Any]:
        """What must be the same where a run goes on."""
        job = {**self.job.as_dict(), "training": {}}
        return _plain({"job": job, "classes": self.material.split.known, "examples": self.material.counts()})


def _checked_place(out: Path | str, overwrite: bool) -> Path:
    place = Path(out).expanduser().absolute()
    if place.is_file():
        raise OptionError(f"a bundle is a folder, and {place} is a file; name another place")
    if place.is_dir() and any(place.iterdir()) and not overwrite:
        raise OptionError(f"{place} is there already; name another folder, or replace it with overwrite (--overwrite)")
    return place


def _check_same(folder: Path, now: dict[str, Any]) -> None:
    if not (folder / LAST).is_file():
        raise TrainingError(f"there is no run to go on with in {folder}; start without resume (--resume)")
    then = load(folder / LAST)[1].get("metadata", {})
    for name, value in now.items():
        if then.get(name) != value:
            raise TrainingError(
                f"the run in {folder} was started with another {name}: {then.get(name)!r}, now it is {value!r}; set it "
                "back, or choose another folder"
            )


def _plain(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts as JSON gives them back."""
    plain: dict[str, Any] = json.loads(json.dumps(facts))
    return plain
