"""Run experiments: each result is a JSON file, and a figure drawn from that file alone."""

import dataclasses
import json
import platform
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from openradial.errors import MissingError, OpenRadialError, TrainingError
from paper.experiment import Experiment, find, select
from paper.plan import Plan, claim_folder, write_text
from paper.processes import run_in_processes
from paper.report import draw_figure, finished, read_record, write_report


def reproduce(ids: Sequence[str], plan: Plan, *, resume: bool = False) -> list[Path]:
    """Run experiments, write the report about all results in the folder, and return the report's files.

    A failing experiment does not stop the others; all failures are raised at the end.

    Args:
        ids: from :data:`~paper.experiment.IDS`, or ``all``.
        plan: where and how large.
        resume: continue in a folder with results: finished experiments and parts are not run again.
    """
    experiments = select(ids)
    if find_spec("matplotlib") is None:
        raise MissingError("drawing the figures needs the package matplotlib; pip install 'openradial[plot]'")
    claim_folder(plan, resume=resume)
    waiting = [each for each in experiments if not result_path(plan.folder, each.id).exists()]
    failures = _run_all(waiting, plan)
    for each in experiments:
        if (path := result_path(plan.folder, each.id)).exists():
            draw_figure(each, read_record(path), plan.folder)
    files = write_report(plan.folder) if finished(plan.folder) else []
    if failures:
        messages = "; ".join(f"{id}: {message}" for id, message in failures.items())
        raise TrainingError(
            f"{len(failures)} of {len(experiments)} experiments failed, the others are finished: {messages}"
        )
    return files


def _run_all(experiments: Sequence[Experiment], plan: Plan) -> Mapping[str, str]:
    """Run experiments one after the other or in parallel, and return the messages of the failed ones by id."""
    if min(plan.jobs, len(experiments)) > 1:
        longest_first = sorted(experiments, key=lambda each: -each.minutes)
        return run_in_processes(run_one, [each.id for each in longest_first], plan)
    failures: dict[str, str] = {}
    for number, experiment in enumerate(experiments, 1):
        plan.note(f"experiment {number} of {len(experiments)}: {experiment.id}, {experiment.title}")
        try:
            run_one(experiment.id, plan)
        except OpenRadialError as error:
            failures[experiment.id] = str(error)
    return failures


def run_one(id: str, plan: Plan) -> None:
    """Run one experiment and write its JSON file. Its seconds include those of reused parts."""
    experiment, start = find(id), time.monotonic()
    plan = dataclasses.replace(plan, computed={}, reused={})
    numbers = experiment.run(plan)
    seconds = time.monotonic() - start + sum(plan.reused.values())
    record = {
        "experiment": id,
        "title": experiment.title,
        "size": plan.size,
        "settings": dataclasses.asdict(plan.settings(experiment.settings)),
        "options": dict(plan.options),
        "numbers": numbers,
        "seconds": round(seconds, 1),
        "parts": {name: round(took, 1) for name, took in (plan.computed | plan.reused).items()},
        "finished": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "versions": _versions(),
    }
    write_text(result_path(plan.folder, id), json.dumps(record, allow_nan=False) + "\n")


def result_path(folder: Path, id: str) -> Path:
    """Return the path of an experiment's result."""
    return folder / f"{id}.json"


def _versions() -> dict[str, Any]:
    packages = {name: version(name) for name in ("openradial", "torch", "numpy")}
    return packages | {"python": platform.python_version(), "machine": platform.machine()}
