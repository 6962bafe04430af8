"""What a run must remember to go on as if nothing had happened, and where it keeps it."""

import dataclasses
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from openradial.errors import TrainingError
from openradial.training import checkpoint
from openradial.training.average import MovingAverage
from openradial.training.checkpoint import BEST, LAST, prefixed, under
from openradial.training.log import Record
from openradial.training.machine import Machine
from openradial.training.settings import Settings
from openradial.training.sharding import load_model, load_optimiser, model_tensors, optimiser_tensors

MAY_CHANGE = ("epochs", "checkpoint_seconds", "patience")  # settings with which a run may go on differently


@dataclass
class Position:
    """Where a run is."""

    epoch: int = 0
    batch: int = 0  # of the epoch, to come next
    step: int = 0
    first_loss: float | None = None
    best_loss: float = math.inf
    best_epoch: int = 0
    sums: list[float] = field(default_factory=list)  # of the epoch so far: examples, loss, metrics


@dataclass(frozen=True)
class History:
    """What a run left: its records per epoch, its best epoch, and the signal that stopped it, if any."""

    records: list[Record]
    best_epoch: int
    stopped_by: str | None
    finished: bool


class Keeper:
    """Writes and reads the checkpoints of a run; without a folder it only keeps the best weights in memory."""

    def __init__(self, folder: Path | None, settings: Settings, machine: Machine, facts: dict[str, Any]) -> None:
        self.folder, self.settings, self.machine, self.facts = folder, settings, machine, facts
        self.saved_at = time.monotonic()
        self.best: dict[str, Tensor] | None = None
        self.best_is_written = False

    @property
    def writes_to(self) -> Path | None:
        return self.folder if self.machine.is_first else None

    def has_checkpoint(self) -> bool:
        return self.folder is not None and (self.folder / LAST).exists()

    def refuse_to_overwrite(self, resume: bool) -> None:
        if self.has_checkpoint() and not resume:
            raise TrainingError(
                f"{self.folder} holds a run already; go on with it (resume=True, --resume) or choose another folder"
            )

    def is_due(self) -> bool:
        return self.folder is not None and time.monotonic() - self.saved_at >= self.settings.checkpoint_seconds

    def remember_best(self, net: nn.Module, average: MovingAverage | None) -> None:
        if self.settings.patience is None and self.folder is None:
            return  # nobody will ask for it
        tensors = average.tensors if average else model_tensors(net)
        self.best = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
        self.best_is_written = False

    def save(self, at: Position, net: nn.Module, optimiser: Optimizer, average: MovingAverage | None) -> None:
        """Write a checkpoint; all processes take part, the first one writes."""
        if self.folder is None:
            return
        tensors = prefixed("model", model_tensors(net))
        self._refuse_bad_weights(tensors, at)
        tensors |= prefixed("random", self.machine.random_states())
        tensors |= prefixed("optimiser", optimiser_tensors(net, optimiser))
        if average is not None:
            tensors |= prefixed("average", average.tensors)
        if self.machine.is_first:
            facts = {"settings": self.settings.as_dict(), "at": dataclasses.asdict(at), "processes": self.machine.world}
            facts |= {
                "sharded": self.machine.shards,
                "scaler": self.machine.fabric.strategy.precision.state_dict(),
                "facts": self.facts,
            }
            if self.best is not None and not self.best_is_written:
                best = {"epoch": at.best_epoch, "loss": at.best_loss, "facts": self.facts}
                checkpoint.save(self.folder / BEST, prefixed("model", self.best), best)
                self.best_is_written = True
            checkpoint.save(self.folder / LAST, tensors, facts)
        self.saved_at = time.monotonic()

    def restore(self, net: nn.Module, optimiser: Optimizer, average: MovingAverage | None) -> Position:
        """Bring everything back to where the last checkpoint was written."""
        assert self.folder is not None
        path = self.folder / LAST
        tensors, facts = checkpoint.load(path)
        self._check_same(path, facts)
        try:
            load_model(net, under("model", tensors))
        except RuntimeError as error:
            first = str(error).splitlines()[-1].strip()
            raise TrainingError(f"{path} holds another network ({first}); build the one it was trained with") from error
        load_optimiser(net, optimiser, under("optimiser", tensors))
        if average is not None:
            average.load(under("average", tensors))
        self.machine.restore_random_states(under("random", tensors))
        if facts["scaler"]:
            self.machine.fabric.strategy.precision.load_state_dict(facts["scaler"])
        return Position(**facts["at"])

    def give_final_weights(self, net: nn.Module, average: MovingAverage | None) -> None:
        """The best weights where early stopping looked for them, else the averaged ones, else the last."""
        if self.settings.patience is not None:
            if self.best is None and self.folder is not None:
                self.best = under("model", checkpoint.load(self.folder / BEST)[0])
            if self.best is not None:
                load_model(net, self.best)
        elif average is not None:
            load_model(net, average.tensors)

    def last_good(self) -> str:
        return f"; the last good checkpoint is {self.folder / LAST}" if self.folder and self.has_checkpoint() else ""

    def _refuse_bad_weights(self, tensors: dict[str, Tensor], at: Position) -> None:
        bad = [name for name, t in tensors.items() if t.is_floating_point() and not torch.isfinite(t).all()]
        if self.machine.total([float(len(bad))])[0]:
            which = bad[0].removeprefix("model.") if bad else "a weight"
            raise TrainingError(
                f"{which} became nan or infinite before epoch {at.epoch + 1}, "
                f"batch {at.batch + 1}; lower the learning rate or set clip_norm{self.last_good()}"
            )

    def _check_same(self, path: Path, facts: dict[str, Any]) -> None:
        now = self.settings.as_dict()
        for name, then in facts["settings"].items():
            if name not in MAY_CHANGE and now.get(name) != then:
                raise TrainingError(
                    f"{path} was trained with {name} = {then!r}, now it is {now.get(name)!r}; "
                    "set it back, or choose another folder"
                )
        if facts.get("sharded", False) != self.machine.shards:
            names = {False: "ddp or auto", True: "fsdp"}
            raise TrainingError(
                f"{path} was trained with strategy {names[not self.machine.shards]}, now it is "
                f"{names[self.machine.shards]}; set it back, or choose another folder"
            )
        if facts["processes"] != self.machine.world:
            raise TrainingError(
                f"{path} was trained by {facts['processes']} processes, now there are {self.machine.world}; "
                "start as many, because each has its own random numbers"
            )
