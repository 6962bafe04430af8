"""Run experiments: each result is a JSON file, and a picture drawn from that file alone."""

import dataclasses
import json
import platform
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from openradial.errors import OpenRadialError, TrainingError, require
from openradial.files import write_text
from paper.catalog import chosen, find
from paper.experiment import Experiment
from paper.pictures import save_picture
from paper.plan import Plan, claim_folder
from paper.processes import run_in_processes
from paper.report import finished, read_record, write_report

Failures = dict[str, str]


def reproduce(ids: Sequence[str], plan: Plan, *, resume: bool = False) -> list[Path]:
    """Run experiments and write the report about all that the folder holds; the files of the report.

    An experiment that fails does not keep the others from running; what failed is told at the end.

    Args:
        ids: as in :data:`~paper.catalog.IDS`, or ``all``.
        plan: where and how large.
        resume: go on with what the folder holds: finished experiments and parts are not run again.
    """
    experiments = chosen(ids)
    require("matplotlib", "plot", "drawing the figures")
    claim_folder(plan, resume=resume)
    waiting = [each for each in experiments if not result_path(plan.folder, each.id).exists()]
    failures = run_all(waiting, plan)
    for each in experiments:
        if result_path(plan.folder, each.id).exists():
            draw_result(each, plan.folder)
    files = write_report(plan.folder) if finished(plan.folder) else []
    if failures:
        said = "; ".join(f"{id}: {message}" for id, message in failures.items())
        raise TrainingError(f"{len(failures)} of {len(experiments)} experiments failed, the rest is kept: {said}")
    return files


def run_all(experiments: Sequence[Experiment], plan: Plan) -> Failures:
    """Run experiments, one after the other or several at a time; what failed, by id."""
    if min(plan.jobs, len(experiments)) > 1:
        longest_first = sorted(experiments, key=lambda each: -each.minutes)
        return run_in_processes(run_one, [each.id for each in longest_first], plan)
    failures: Failures = {}
    for number, experiment in enumerate(experiments, 1):
        plan.note(f"experiment {number} of {len(experiments)}: {experiment.id}, {experiment.title}")
        try:
            run_one(experiment.id, plan)
        except OpenRadialError as error:
            failures[experiment.id] = str(error)
    return failures


def run_one(id: str, plan: Plan) -> None:
    """Run one experiment and write its JSON file. Its seconds include those of parts that another run had made."""
    experiment, start, plan = find(id), time.monotonic(), dataclasses.replace(plan, made={}, read={})
    numbers = experiment.run(plan)
    seconds = time.monotonic() - start + sum(plan.read.values())
    settings = plan.settings(experiment.settings)
    record = {
        "experiment": id,
        "title": experiment.title,
        "size": plan.size,
        "settings": dataclasses.asdict(settings),
        "options": dict(plan.options),
        "numbers": numbers,
        "seconds": round(seconds, 1),
        "parts": {name: round(took, 1) for name, took in (plan.made | plan.read).items()},
        "finished": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "versions": versions(),
    }
    write_text(result_path(plan.folder, id), json.dumps(record, allow_nan=False) + "\n")


def draw_result(experiment: Experiment, folder: Path) -> None:
    """Draw a finished experiment from its JSON file: a PNG and an SVG beside it."""
    save_picture(experiment, read_record(result_path(folder, experiment.id)), folder)


def result_path(folder: Path, id: str) -> Path:
    """Where the result of an experiment is."""
    return folder / f"{id}.json"


def versions() -> dict[str, Any]:
    """What computed the numbers."""
    packages = {name: version(name) for name in ("openradial", "torch", "numpy")}
    return packages | {"python": platform.python_version(), "machine": platform.machine()}
