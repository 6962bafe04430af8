"""The folder of a model: checked before training, and held by one run at a time."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openradial.errors import OptionError, TrainingError
from openradial.files import check_bundle_folder, only_process, writable
from openradial.training.checkpoint import LAST, CheckpointRecord, load


@contextmanager
def output_folder(out: Path | str, overwrite: bool, resume: bool) -> Iterator[Path]:
    """Check what can be checked of the folder of a model before training, and keep other runs away from it."""
    folder = writable(out)
    if not is_first_process():
        yield folder
        return
    with only_process(folder):
        check_bundle_folder(folder, overwrite)
        stopped = training_folder(folder)
        if (stopped / LAST).exists() and not (resume or overwrite):
            way_out = "resume it (--resume), or start again with overwrite=True (--overwrite)"
            raise OptionError(f"{stopped} has the checkpoint of a run that was stopped; {way_out}")
        if not resume:  # no other run uses it
            shutil.rmtree(stopped, ignore_errors=True)
        yield folder


def is_first_process() -> bool:
    """Return whether this is the process of a run that writes; launchers of several set these variables."""
    ranks = (os.environ.get(name, "0") for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK"))
    return "MASTER_PORT" not in os.environ or all(rank == "0" for rank in ranks)


def training_folder(out: Path) -> Path:
    """Return the folder of the checkpoints while a model is trained: beside the model."""
    return out.with_name(f"{out.name}.training")


def check_same_run(folder: Path, now: dict[str, Any]) -> None:
    """Raise unless the checkpoint in a folder is of a run with these options, classes and examples."""
    if not (folder / LAST).is_file():
        raise TrainingError(f"there is no run to resume in {folder}; start without resume (--resume)")
    then = load(folder / LAST, CheckpointRecord)[1]["metadata"]
    for name, value in now.items():
        if then.get(name) != value:
            message = f"the run in {folder} was started with other {name}: {then.get(name)!r}, now {value!r}"
            raise TrainingError(f"{message}; set it back, or choose another folder")
