"""The training loop: one for every network, head and machine."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from openradial.data import progress
from openradial.errors import TrainingError
from openradial.nn.objective import Metric
from openradial.training.average import MovingAverage
from openradial.training.log import Log, Record
from openradial.training.machine import Machine
from openradial.training.optimisers import learning_rate_factor
from openradial.training.run_state import History, Keeper, Position
from openradial.training.settings import Settings
from openradial.training.signals import Wish, wish_to_stop


class BatchSource(Protocol):
    """Batches that can begin anywhere, such as :class:`openradial.data.batches.Batches`; each process has its part."""

    labels: Tensor

    def __len__(self) -> int: ...
    def epoch(self, epoch: int, *, start_batch: int = 0) -> Iterator[tuple[Tensor, Tensor]]: ...


class Minimised(Protocol):
    """What :class:`~openradial.nn.objective.Objective` is."""

    @property
    def metrics(self) -> Mapping[str, Metric]: ...
    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]: ...


def fit(
    net: nn.Module,
    objective: Minimised,
    train: BatchSource,
    validation: BatchSource | None = None,
    *,
    settings: Settings,
    machine: Machine | None = None,
    folder: Path | str | None = None,
    resume: bool = False,
    tensorboard: bool = False,
    facts: Mapping[str, Any] | None = None,
    report: Callable[[Record], None] | None = None,
    show_progress: bool = True,
) -> History:
    """Train ``net`` in place and tell how it went.

    With a ``folder`` the run writes ``last.safetensors``, ``best.safetensors`` and ``log.jsonl`` there, and ``resume``
    goes on from what it finds: a run that was killed ends with the same weights as one that was not. At the end the
    network has its last weights; with ``ema`` the averaged ones, with ``patience`` those of its best epoch.
    """
    machine = machine or Machine(settings)
    place = None if folder is None else Path(folder)
    keeper = Keeper(place, settings, machine, dict(facts or {}))
    run = _Run(
        net, objective, train, validation, settings, machine, keeper, Log(keeper.writes_to, tensorboard=tensorboard)
    )
    run.report, run.show_progress = report, show_progress
    if resume and place is not None and keeper.has_checkpoint():
        run.restore()
    elif place is not None:
        keeper.refuse_to_overwrite(resume)
    run.log.start(run.at.epoch)
    with wish_to_stop() as wish:
        run.go(wish)
    run.log.close()
    return History(run.log.records, run.at.best_epoch, run.stopped_by, run.finished)


class _Run:
    """One run: the network with all that changes while it is trained."""

    report: Callable[[Record], None] | None = None
    show_progress = True
    stopped_by: str | None = None
    finished = False

    def __init__(
        self,
        net: nn.Module,
        objective: Minimised,
        train: BatchSource,
        validation: BatchSource | None,
        settings: Settings,
        machine: Machine,
        keeper: Keeper,
        log: Log,
    ) -> None:
        torch.manual_seed(settings.seed + machine.rank)  # what the network draws: dropout, weight samples
        self.net, self.objective, self.train, self.validation = net, objective, train, validation
        self.settings, self.machine, self.keeper, self.log = settings, machine, keeper, log
        if settings.channels_last:
            net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.model, self.optimiser = machine.set_up(net, settings)
        self.average = MovingAverage(net, settings.ema) if settings.ema is not None else None
        self.at = Position(sums=[0.0] * (2 + len(objective.metrics)))

    def restore(self) -> None:
        self.at = self.keeper.restore(self.net, self.optimiser, self.average)

    def save(self) -> None:
        self.keeper.save(self.at, self.net, self.optimiser, self.average)

    def go(self, wish: Wish) -> None:
        while self.at.epoch < self.settings.epochs and not self._has_lost_patience():
            began, before = time.monotonic(), self.at.sums[0]
            if not self._train_epoch(wish):
                self.save()
                return
            validated = self._evaluate(wish)
            if validated is None:
                self.save()
                return
            examples = self.machine.total([self.at.sums[0] - before])[0]
            self._end_epoch(validated, examples, time.monotonic() - began)
            if self._agree(self.keeper.is_due(), wish)[0]:
                self.save()
        self.save()
        self.keeper.give_final_weights(self.net, self.average)
        self.finished = True

    def _train_epoch(self, wish: Wish) -> bool:
        """Whether the epoch came to its end."""
        self.model.train()
        title = f"epoch {self.at.epoch + 1}/{self.settings.epochs}"
        with self._bar(title, self.train) as advance:
            advance(int(self.at.sums[0]) * self.machine.world)
            for x, y in self.train.epoch(self.at.epoch, start_batch=self.at.batch):
                self._step(x, y)
                advance(len(y) * self.machine.world)
                self.at.batch += 1
                self.at.step += 1
                due, stop = self._agree(self.keeper.is_due(), wish)
                if stop:
                    return False
                if due:
                    self.save()
        return True

    def _step(self, x: Tensor, y: Tensor) -> None:
        x, y = self._placed(x, y)
        rate = self._set_learning_rate()
        loss, o = self.objective(self.model, x, y)
        values = self._measured(loss, o, y)
        share = self._checked_share(values[1] / len(y), len(y), rate)
        if self.machine.world > 1:  # Fabric averages over processes, and some may have fewer examples
            loss = loss * share
        self.machine.fabric.backward(loss)
        if self.settings.clip_norm is not None:
            self.machine.clip(self.model, self.optimiser, self.settings.clip_norm)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update(self.net)
        self.at.sums = [a + b for a, b in zip(self.at.sums, values, strict=True)]

    @torch.no_grad()
    def _evaluate(self, wish: Wish) -> list[float] | None:
        """Means over the validation data, nothing if there is none; None if a signal came."""
        if self.validation is None:
            return []
        self.model.eval()
        sums = [0.0] * len(self.at.sums)
        with (
            self.average.in_place(self.net) if self.average else nullcontext(),
            self._bar("validation", self.validation) as advance,
        ):
            for x, y in self.validation.epoch(0):
                x, y = self._placed(x, y)
                loss, o = self.objective(self.model, x, y)
                sums = [a + b for a, b in zip(sums, self._measured(loss, o, y), strict=True)]
                advance(len(y) * self.machine.world)
                if self._agree(False, wish)[1]:
                    return None
        return self._means(sums)

    def _end_epoch(self, validated: list[float], examples: float, seconds: float) -> None:
        names = ["loss", *self.objective.metrics]
        means = self._means(self.at.sums)
        self.at.epoch, self.at.batch = self.at.epoch + 1, 0
        self.at.sums = [0.0] * len(self.at.sums)
        record: Record = {
            "epoch": self.at.epoch,
            "step": self.at.step,
            "learning_rate": self._learning_rate(self.at.step - 1),
        }
        record |= dict(zip(names, means, strict=True))
        record |= {f"validation_{name}": value for name, value in zip(names, validated, strict=False)}
        record |= {"seconds": round(seconds, 3), "examples_per_second": round(examples / seconds, 1)}
        watched = float(record["validation_loss" if validated else "loss"])
        if watched < self.at.best_loss:
            self.at.best_loss, self.at.best_epoch = watched, self.at.epoch
            self.keeper.remember_best(self.net, self.average)
        if self.machine.is_first:
            self.log.add(record)
            if self.report is not None:
                self.report(record)

    def _placed(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """A batch on the device, in the layout of memory that was asked for."""
        x, y = self.machine.fabric.to_device((x, y))
        if self.settings.channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        return x, y

    def _measured(self, loss: Tensor, o: Tensor, y: Tensor) -> list[float]:
        """Examples, loss and metrics of a batch, as sums over its examples."""
        metrics = [metric(o.detach(), y).sum().double() for metric in self.objective.metrics.values()]
        return [float(len(y)), *torch.stack([loss.detach().double() * len(y), *metrics]).tolist()]

    def _means(self, sums: list[float]) -> list[float]:
        count, *rest = self.machine.total(sums)
        return [value / count for value in rest]

    def _learning_rate(self, step: int) -> float:
        return self.settings.learning_rate * learning_rate_factor(self.settings, step, len(self.train))

    def _set_learning_rate(self) -> float:
        rate = self._learning_rate(self.at.step)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        return rate

    def _has_lost_patience(self) -> bool:
        patience = self.settings.patience
        return patience is not None and self.at.epoch - self.at.best_epoch >= patience > 0 and self.at.epoch > 0

    def _agree(self, due: bool, wish: Wish) -> tuple[bool, bool]:
        """Whether to save and whether to stop, the same in all processes: the first one's clock, anyone's signal."""
        if self.machine.world > 1:
            asked = wish.signal.value if wish.signal else 0
            due_sum, asked_sum = self.machine.total([float(due and self.machine.is_first), float(asked)])
            due, stop = due_sum > 0, asked_sum > 0
        else:
            stop = wish.signal is not None
        if stop:
            self.stopped_by = wish.signal.name if wish.signal else "a signal to another process"
        return due, stop

    def _checked_share(self, loss: float, examples: int, rate: float) -> float:
        """This process's share of a global batch, times the number of processes; a bad loss stops all processes."""
        if self.at.first_loss is None:
            self.at.first_loss = abs(loss)
        bad = not math.isfinite(loss) or loss > self.settings.explosion * max(self.at.first_loss, 1e-12)
        any_bad, everyone = self.machine.total([float(bad), examples])
        if any_bad:
            where = f"in epoch {self.at.epoch + 1}, batch {self.at.batch + 1}, at learning rate {rate:g}"
            raise TrainingError(
                f"the loss became {loss:g} {where}; lower the learning rate, set clip_norm, or look at the inputs"
                f"{self.keeper.last_good()}"
            )
        return examples * self.machine.world / everyone

    def _bar(self, title: str, source: BatchSource) -> Any:
        if not (self.machine.is_first and self.show_progress):
            return nullcontext(lambda amount: None)
        return progress.bar(title, len(source.labels), unit="examples")
