"""The training loop: one for every network, objective and device, with its log and its answer to signals."""

import json
import math
import signal as signals
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from openradial.data import progress
from openradial.errors import TrainingError, require
from openradial.files import check_json, write_text
from openradial.nn.objective import BatchSource, Metric
from openradial.scorers.base import limited_threads
from openradial.training.checkpoint import CheckpointManager, Position
from openradial.training.devices import Devices, threads_for
from openradial.training.settings import Settings, averaged_weights, learning_rate_factor

Record = dict[str, Any]  # the log of one epoch
StopRequests = list[signals.Signals]


class ObjectiveLike(Protocol):
    """The interface of :class:`~openradial.training.Objective`."""

    @property
    def metrics(self) -> Mapping[str, Metric]: ...
    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True)
class History:
    """Result of a run: one record per epoch, the best epoch, and the signal or deadline that ended it, if any."""

    records: list[Record]
    best_epoch: int
    stopped_by: str | None
    finished: bool


@progress.whole_run()
def fit(
    net: nn.Module,
    objective: ObjectiveLike,
    train: BatchSource,
    validation: BatchSource | None = None,
    *,
    settings: Settings,
    devices: Devices | None = None,
    folder: Path | str | None = None,
    resume: bool = False,
    tensorboard: bool = False,
    metadata: Mapping[str, Any] | None = None,
    report: Callable[[Record], None] | None = None,
    show_progress: bool = True,
    deadline: float | None = None,
) -> History:
    """Train ``net`` in place and return the history of the run.

    With a ``folder`` the run writes ``last.safetensors``, ``best.safetensors`` and ``log.jsonl`` there. ``resume``
    continues from the last checkpoint, if there is one: a run that was killed ends with the same weights as one that
    was not. At the end the network has its last weights; with ``ema`` the averaged ones, with ``patience`` those of its
    best epoch.

    Args:
        metadata: values for JSON that are stored in the checkpoints.
        report: called with the record of each epoch.
        deadline: by :func:`time.monotonic`. No epoch begins after which there would not be as much time left as it
            takes; the first epoch ends half-way to the deadline.
    """
    devices = devices or Devices(settings)
    folder = None if folder is None else Path(folder)
    checkpoints = CheckpointManager(folder, settings, devices, dict(metadata or {}))
    run = _Run(net, objective, train, validation, settings, devices, checkpoints, show_progress, deadline)
    if checkpoints.exists():
        if not resume:
            raise TrainingError(f"{folder} already has a run; resume it (resume=True, --resume) or choose a new folder")
        run.position = checkpoints.restore(run.position, net, run.optimiser, run.average)
    log = Log(folder if devices.is_main else None, run.position.epoch, tensorboard=tensorboard)
    with stop_on_signals() as requests, run.threads:
        run.run(requests, log, report)
    shown = progress.current()
    shown.begin(shown.after, shown.pace, shown.later)
    log.close()
    return History(log.records, run.position.best_epoch, run.stopped_by, run.finished)


@contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let a function handle SIGINT and SIGTERM; nothing changes outside of the main thread, which receives them."""
    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signals.SIGINT, signals.SIGTERM) if is_main else ()
    before = {number: signals.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signals.signal(number, earlier)


@contextmanager
def stop_on_signals() -> Iterator[StopRequests]:
    """Collect SIGINT and SIGTERM as stop requests for the loop; a SIGINT after another raises KeyboardInterrupt."""
    requests: StopRequests = []

    def handle(number: int, frame: FrameType | None) -> None:
        if requests and number == signals.SIGINT:
            raise KeyboardInterrupt
        requests.append(signals.Signals(number))

    with handle_signals(handle):
        yield requests


class Log:
    """The records of a run, in memory and in ``log.jsonl``; a resumed run keeps those up to its checkpoint."""

    def __init__(self, folder: Path | None, epochs: int, *, tensorboard: bool = False) -> None:
        self.records: list[Record] = []
        self.path = None if folder is None else folder / "log.jsonl"
        self.writer: Any = None
        if self.path is None:
            return
        if tensorboard:
            module = require("tensorboardX", "tensorboard", "a TensorBoard log")
            self.writer = module.SummaryWriter(str(self.path.parent / "tensorboard"))
        try:
            lines = self.path.read_text().splitlines()[:epochs] if self.path.exists() and epochs else []
            self.records = [json.loads(line) for line in lines]
            check_json("its list of lines", self.records, list[Record])
        except (ValueError, RecursionError) as error:
            raise TrainingError(f"{self.path} is damaged ({error}); delete it and resume again") from error
        write_text(self.path, "".join(line + "\n" for line in lines))

    def add(self, record: Record) -> None:
        """Append the record of an epoch."""
        self.records.append(record)
        if self.path is not None:
            with self.path.open("a") as out:
                out.write(json.dumps(record) + "\n")
        if self.writer is not None:
            for name, value in record.items():
                if name != "epoch":
                    self.writer.add_scalar(name, value, record["epoch"])

    def close(self) -> None:
        """Flush and close the TensorBoard file."""
        if self.writer is not None:
            self.writer.close()


@dataclass
class _Run:
    """One run: the network with everything that changes during training."""

    net: nn.Module
    objective: ObjectiveLike
    train: BatchSource
    validation: BatchSource | None
    settings: Settings
    devices: Devices
    checkpoints: CheckpointManager
    show_progress: bool
    deadline: float | None = None
    stopped_by: str | None = None
    finished: bool = False

    def __post_init__(self) -> None:
        torch.manual_seed(self.settings.seed + self.devices.rank)  # for dropout, weight samples
        if self.settings.channels_last:
            self.net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.model, self.optimiser = self.devices.set_up(self.net, self.settings)
        self.average: AveragedModel | None = None
        if self.settings.ema is not None:  # buffers are copied from the last step, not averaged
            self.average = AveragedModel(self.net, multi_avg_fn=get_ema_multi_avg_fn(self.settings.ema))  # type: ignore[no-untyped-call]
        self.position = Position(sums=[0.0] * (2 + len(self.objective.metrics)))
        self.began, self.seconds = time.monotonic(), 0.0  # of the last epoch
        self.threads, self.threads_are_set = ExitStack(), self.devices.fabric.device.type != "cpu"

    def save(self) -> None:
        self.checkpoints.save(self.position, self.net, self.optimiser, self.average)

    def run(self, requests: StopRequests, log: Log, report: Callable[[Record], None] | None) -> None:
        position, patience = self.position, self.settings.patience
        while position.epoch < self.settings.epochs:
            is_patient = patience is None or position.epoch - position.best_epoch < patience
            if not is_patient or (position.epoch and self._is_late()):
                break
            began, before = time.monotonic(), position.sums[0]
            validated = self._evaluate(requests) if self._train_epoch(requests) else None
            if validated is None:  # stopped by a signal
                self.save()
                return
            examples = self.devices.sum([position.sums[0] - before])[0]
            self.seconds = time.monotonic() - began
            record = self._end_epoch(validated, examples, self.seconds)
            if self.devices.is_main:
                log.add(record)
                if report is not None:
                    report(record)
            is_first = position.epoch == 1 < self.settings.epochs  # so that a short run can be resumed too
            if self._agree(self.checkpoints.is_due() or is_first, requests)[0]:
                self.save()
        self.save()
        self.checkpoints.load_final_weights(self.net, self.average)
        self.finished = True

    def _train_epoch(self, requests: StopRequests) -> bool:
        """Return whether the epoch was completed."""
        self.model.train()
        if self.settings.frozen_statistics:
            for layer in self.model.modules():
                if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                    layer.eval()
        done, run = int(self.position.sums[0]) * self.devices.world_size, progress.current()
        each = len(self.train.labels) + (0 if self.validation is None else len(self.validation.labels))
        with self._bar(f"epoch {self.position.epoch + 1} of {self.settings.epochs}", self.train) as advance:
            advance(done)
            total = each * (self.settings.epochs - self.position.epoch) - done + run.after
            run.begin(total, self.seconds / each, run.later)
            for x, y in self.train.epoch(self.position.epoch, start_batch=self.position.batch):
                self._step(x, y)
                advance(len(y) * self.devices.world_size)
                self.position.batch += 1
                self.position.step += 1
                due, stop = self._agree(self.checkpoints.is_due(), requests)
                if stop:
                    return False
                if due:
                    self.save()
                if not self.position.epoch and self._is_late():
                    break
        return True

    def _step(self, x: Tensor, y: Tensor) -> None:
        x, y = self._to_device(x, y)
        rate = self._learning_rate(self.position.step)
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group.get("factor", 1.0)
        loss, o = self.objective(self.model, x, y)
        values = self._measure(loss, o, y)
        share = self._check_loss(values[1] / len(y), len(y), rate)
        if self.devices.world_size > 1:  # Fabric averages over processes, and some may have fewer examples
            loss = loss * share
        self.devices.fabric.backward(loss)
        if self.settings.clip_norm is not None:
            self.devices.clip_gradients(self.model, self.optimiser, self.settings.clip_norm)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update_parameters(self.net)
        self.position.sums = [a + b for a, b in zip(self.position.sums, values, strict=True)]

    @torch.no_grad()
    def _evaluate(self, requests: StopRequests) -> list[float] | None:
        """Return means over the validation data, an empty list without such data, None after a signal."""
        if self.validation is None:
            return []
        self.model.eval()
        sums = [0.0] * len(self.position.sums)
        with (
            averaged_weights(self.net, self.average) if self.average else nullcontext(),
            self._bar("validation", self.validation) as advance,
        ):
            for x, y in self.validation.epoch(0):
                x, y = self._to_device(x, y)
                loss, o = self.objective(self.model, x, y)
                sums = [a + b for a, b in zip(sums, self._measure(loss, o, y), strict=True)]
                advance(len(y) * self.devices.world_size)
                if self._agree(False, requests)[1]:
                    return None
        return self._means(sums)

    def _end_epoch(self, validated: list[float], examples: float, seconds: float) -> Record:
        """Move to the next epoch, remember the best weights, and return the record of the epoch."""
        position, names = self.position, ["loss", *self.objective.metrics]
        means = self._means(position.sums)
        position.epoch, position.batch, position.sums = position.epoch + 1, 0, [0.0] * len(position.sums)
        rate = self._learning_rate(position.step - 1)
        record: Record = {"epoch": position.epoch, "step": position.step, "learning_rate": rate}
        record |= dict(zip(names, means, strict=True))
        record |= {f"validation_{name}": value for name, value in zip(names, validated, strict=False)}
        record |= {"seconds": round(seconds, 3), "examples_per_second": round(examples / seconds, 1)}
        loss = float(record["validation_loss" if validated else "loss"])
        if loss < position.best_loss:
            position.best_loss, position.best_epoch = loss, position.epoch
            self.checkpoints.keep_best(self.net, self.average)
        return record

    def _to_device(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if not self.threads_are_set:
            batch_size = self.settings.batch_size // self.devices.world_size
            self.threads.enter_context(limited_threads(threads_for(self.net, x, batch_size)))
            self.threads_are_set = True
        x, y = self.devices.fabric.to_device((x, y))
        if self.settings.channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        return x, y

    def _measure(self, loss: Tensor, o: Tensor, y: Tensor) -> list[float]:
        """Return examples, loss and metrics of a batch, as sums over its examples."""
        metrics = [metric(o.detach(), y).sum().double() for metric in self.objective.metrics.values()]
        return [float(len(y)), *torch.stack([loss.detach().double() * len(y), *metrics]).tolist()]

    def _means(self, sums: list[float]) -> list[float]:
        count, *rest = self.devices.sum(sums)
        return [value / count for value in rest]

    def _learning_rate(self, step: int) -> float:
        return self.settings.learning_rate * learning_rate_factor(self.settings, step, len(self.train))

    def _is_late(self) -> bool:
        """Return whether another epoch and as long for the rest, or more of the first epoch, would take too long."""
        if self.deadline is None:
            return False
        now = time.monotonic()
        needed = 2 * self.seconds if self.position.epoch else now - self.began
        late = self._agree(now + needed > self.deadline, [])[0]
        if late:
            self.stopped_by = "the time limit"
        return late

    def _agree(self, due: bool, requests: StopRequests) -> tuple[bool, bool]:
        """Return whether to save and whether to stop, the same in all processes: the first's clock, any signal."""
        stop = bool(requests)
        if self.devices.world_size > 1:
            sums = self.devices.sum([float(due and self.devices.is_main), float(stop)])
            due, stop = sums[0] > 0, sums[1] > 0
        if stop:
            self.stopped_by = requests[-1].name if requests else "a signal to another process"
        return due, stop

    def _check_loss(self, loss: float, examples: int, rate: float) -> float:
        """Return the weight of this process's loss in the global batch; a bad loss stops all processes."""
        position = self.position
        if position.first_loss is None:
            position.first_loss = abs(loss)
        bad = not math.isfinite(loss) or loss > self.settings.explosion * max(position.first_loss, 1e-12)
        any_bad, all_examples = self.devices.sum([float(bad), examples])
        if any_bad:
            where = f"in epoch {position.epoch + 1}, batch {position.batch + 1}, at learning rate {rate:g}"
            raise TrainingError(
                f"the loss became {loss:g} {where}; lower the learning rate, set clip_norm, or check the inputs"
                f"{self.checkpoints.hint()}"
            )
        return examples * self.devices.world_size / all_examples

    def _bar(self, title: str, source: BatchSource) -> Any:
        if not (self.devices.is_main and self.show_progress):
            return nullcontext(lambda amount: None)
        return progress.bar(title, len(source.labels), unit="examples")
