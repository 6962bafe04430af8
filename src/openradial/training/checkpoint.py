"""Checkpoints: one safetensors file with metadata as JSON in its header, replaced atomically; when and what to save."""

import dataclasses
import errno
import json
import math
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from openradial.errors import TrainingError
from openradial.files import Failure, check_json, read_tensors, write_tensors
from openradial.training.devices import Devices, load_model, load_optimiser, model_tensors, optimiser_tensors
from openradial.training.settings import Settings

FORMAT = 1
LAST, BEST = "last.safetensors", "best.safetensors"
MAY_CHANGE = ("epochs", "checkpoint_seconds", "patience")  # settings that may differ in a resumed run


def save(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write a checkpoint; at any moment the path holds the complete old one or the complete new one."""
    try:
        write_tensors(path, tensors, {"format": str(FORMAT), "metadata": json.dumps(metadata)})
    except Failure as error:
        kept = f"; the previous checkpoint is complete: {path}" if path.exists() else ""
        if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error):
            free = shutil.disk_usage(path.parent).free
            reason = f"the disk of {path.parent} is full ({free / 1e6:.0f} MB left): no checkpoint was written"
        else:
            reason = f"{path} cannot be written ({error})"
        raise TrainingError(reason + kept) from error


def load(path: Path, kind: Any = dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors and the metadata of a checkpoint; those of a run are a :class:`CheckpointRecord`."""
    try:
        tensors, header = read_tensors(path)
        metadata = json.loads(header.get("metadata", "null"))
        if header.get("format") != str(FORMAT) or not isinstance(metadata, dict):
            message = f"{path} must be a checkpoint of format {FORMAT}, got format {header.get('format')!r}"
            raise TrainingError(f"{message}; it was written by another program or by another version of openradial")
        check_json("its metadata", metadata, kind)
        if kind is CheckpointRecord and metadata["tensors"] != len(tensors):
            raise ValueError(f"it has {len(tensors)} of {metadata['tensors']} tensors")
    except FileNotFoundError as error:
        raise TrainingError(f"there is no checkpoint {path}; start the run without --resume") from error
    except (*Failure, ValueError, RecursionError) as error:
        raise TrainingError(f"{path} is not a complete checkpoint ({error}); delete it or restore a copy") from error
    return tensors, metadata


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with ``prefix.``, without the prefix."""
    return {name[len(prefix) + 1 :]: tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")}


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with ``prefix.`` before each name."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


@dataclass
class Position:
    """Position in a run, and the sums of the current epoch."""

    epoch: int = 0
    batch: int = 0  # index of the next batch in the epoch
    step: int = 0
    first_loss: float | None = None
    best_loss: float = math.inf
    best_epoch: int = 0
    sums: list[float] = field(default_factory=list)  # examples, loss, metrics


class CheckpointRecord(TypedDict):
    """The metadata of the last checkpoint of a run."""

    settings: dict[str, Any]
    position: Position
    processes: int
    sharded: bool
    scaler: dict[str, Any]
    tensors: int  # their number
    metadata: dict[str, Any]


class CheckpointManager:
    """Save and restore the checkpoints of a run; without a folder, keep only the best weights in memory."""

    def __init__(self, folder: Path | None, settings: Settings, devices: Devices, metadata: dict[str, Any]) -> None:
        self.folder, self.settings, self.devices, self.metadata = folder, settings, devices, metadata
        self.saved_at = time.monotonic()
        self.best: dict[str, Tensor] | None = None
        self.best_is_saved = False

    def exists(self) -> bool:
        """Return whether the folder has a checkpoint."""
        return self.folder is not None and (self.folder / LAST).exists()

    def is_due(self) -> bool:
        """Return whether the last checkpoint is older than ``checkpoint_seconds``."""
        return self.folder is not None and time.monotonic() - self.saved_at >= self.settings.checkpoint_seconds

    def keep_best(self, net: nn.Module, average: AveragedModel | None) -> None:
        """Copy the current weights as the best ones; the next :meth:`save` writes them."""
        if self.settings.patience is None and self.folder is None:
            return  # they will not be needed
        tensors = average.module.state_dict() if average else model_tensors(net)
        self.best = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
        self.best_is_saved = False

    def save(self, position: Position, net: nn.Module, optimiser: Optimizer, average: AveragedModel | None) -> None:
        """Write a checkpoint; all processes must call this, the first one writes."""
        if self.folder is None:
            return
        tensors = prefixed("model", model_tensors(net))
        bad = [name for name, t in tensors.items() if t.is_floating_point() and not torch.isfinite(t).all()]
        if self.devices.sum([float(len(bad))])[0]:
            which = bad[0].removeprefix("model.") if bad else "a weight"
            message = f"{which} became nan or infinite before epoch {position.epoch + 1}, batch {position.batch + 1}"
            raise TrainingError(f"{message}; lower the learning rate or set clip_norm{self.hint()}")
        tensors |= prefixed("random", self.devices.random_states())
        tensors |= prefixed("optimiser", optimiser_tensors(net, optimiser))
        if average is not None:
            tensors |= prefixed("average", average.state_dict())
        if self.devices.is_main:
            if self.best is not None and not self.best_is_saved:
                best = {"epoch": position.best_epoch, "loss": position.best_loss, "metadata": self.metadata}
                save(self.folder / BEST, prefixed("model", self.best), best)
                self.best_is_saved = True
            metadata = {
                "settings": self.settings.as_dict(),
                "position": dataclasses.asdict(position),
                "processes": self.devices.world_size,
                "sharded": self.devices.shards,
                "scaler": self.devices.fabric.strategy.precision.state_dict(),
                "tensors": len(tensors),
                "metadata": self.metadata,
            }
            save(self.folder / LAST, tensors, metadata)
        self.saved_at = time.monotonic()

    def restore(self, start: Position, net: nn.Module, optimiser: Optimizer, average: AveragedModel | None) -> Position:
        """Load the last checkpoint into everything that changes during a run; return its position, not the start."""
        assert self.folder is not None
        path = self.folder / LAST
        tensors, metadata = load(path, CheckpointRecord)
        self._check_settings(path, metadata)
        _load_weights(path, net, under("model", tensors))
        try:
            load_optimiser(net, optimiser, under("optimiser", tensors))
            if average is not None:
                average.load_state_dict(under("average", tensors))
            self.devices.restore_random_states(under("random", tensors))
            if metadata["scaler"]:
                self.devices.fabric.strategy.precision.load_state_dict(metadata["scaler"])
            position = Position(**metadata["position"])
            if len(position.sums) != len(start.sums):
                raise ValueError(f"its position has {len(position.sums)} sums, this run has {len(start.sums)}")
        except (LookupError, RuntimeError, TypeError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise TrainingError(f"{path} does not fit this run ({reason}); delete it or restore a copy") from error
        return position

    def load_final_weights(self, net: nn.Module, average: AveragedModel | None) -> None:
        """Load the best weights after early stopping, else the averaged ones, else keep the last ones."""
        if self.settings.patience is not None:
            if self.best is None and self.folder is not None:
                self.best = under("model", load(self.folder / BEST)[0])
                _load_weights(self.folder / BEST, net, self.best)
            elif self.best is not None:
                load_model(net, self.best)
        elif average is not None:
            load_model(net, average.module.state_dict())

    def hint(self) -> str:
        """Return where the last checkpoint is, as the end of an error message."""
        return f"; the last good checkpoint is {self.folder / LAST}" if self.folder and self.exists() else ""

    def _check_settings(self, path: Path, metadata: dict[str, Any]) -> None:
        current, way_out = self.settings.as_dict(), "change it back, or choose another folder"
        for name in (each for each in current | metadata["settings"] if each not in MAY_CHANGE):
            before, now = (settings.get(name) for settings in (metadata["settings"], current))
            if before != now:
                raise TrainingError(f"{path} was trained with {name} = {before!r}, now it is {now!r}; {way_out}")
        if metadata["sharded"] != self.devices.shards:
            before, now = ("fsdp" if shards else "ddp or auto" for shards in (metadata["sharded"], self.devices.shards))
            raise TrainingError(f"{path} was trained with strategy {before}, now it is {now}; {way_out}")
        if metadata["processes"] != self.devices.world_size:
            raise TrainingError(
                f"{path} was trained by {metadata['processes']} processes, now there are {self.devices.world_size}; "
                "start the same number, because each has its random state"
            )


def _load_weights(path: Path, net: nn.Module, tensors: dict[str, Tensor]) -> None:
    try:
        load_model(net, tensors)
    except RuntimeError as error:
        first = str(error).splitlines()[-1].strip()
        raise TrainingError(f"{path} holds another network ({first}); build the one it was trained with") from error
