"""Micro-batches: what requests bring goes through the model together, in one thread of its own."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from openradial.bundle import Bundle
from openradial.server.answers import Answer, answers
from openradial.server.limits import Limits
from openradial.server.refusals import busy

Watch = Callable[[int, float], None]  # rows and seconds of a batch


@dataclass(frozen=True, eq=False)
class Job:
    """The inputs of one request, and where their answers are awaited."""

    values: Sequence[Any]
    rate: float | None
    future: asyncio.Future[list[Answer]]
    arrived: float = field(default_factory=time.monotonic)


class Batcher:
    """A queue before one thread that predicts.

    The thread takes all that waits, up to ``limits.batch`` inputs. It waits for more only if its last batch held
    several requests: until as many inputs have come again, at most ``limits.delay`` milliseconds. So a request that is
    alone never waits, and under load batches grow to what comes while the model computes.

    ``watch`` is told of every batch. The thread starts with the first request.
    """

    def __init__(self, bundle: Bundle, limits: Limits | None = None, watch: Watch | None = None) -> None:
        self.bundle, self.limits = bundle, limits or Limits()
        self._watch = watch or (lambda rows, seconds: None)
        self._changed = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._rows = 0  # that wait
        self._wanted = 1  # rows that are worth a wait
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        """How many inputs wait."""
        return self._rows

    @property
    def is_open(self) -> bool:
        """Whether requests are taken, and somebody is there to serve them."""
        return not self._closed and (self._thread is None or self._thread.is_alive())

    async def predict(self, values: Sequence[Any], false_reject_rate: float | None = None) -> list[Answer]:
        """One answer per value; a cancelled call leaves the others of its batch alone."""
        return await self.submit(values, false_reject_rate)

    def submit(self, values: Sequence[Any], false_reject_rate: float | None = None) -> asyncio.Future[list[Answer]]:
        """The answers to come; to be called in the event loop. Raises where the queue is full or closed."""
        job = Job(values, false_reject_rate, asyncio.get_running_loop().create_future())
        with self._changed:
            if self._closed:
                raise busy("the service is stopping; ask again later")
            if self._rows + len(values) > self.limits.queue:
                raise busy(
                    f"{self._rows:,} inputs wait for the model, and the queue has room for {self.limits.queue:,}; "
                    "ask again later"
                )
            self._start()
            self._jobs.append(job)
            self._rows += len(values)
            if self._rows >= self._wanted or len(self._jobs) == 1:
                self._changed.notify()
        return job.future

    def close(self) -> None:
        """Take nothing more, finish what was taken, and wait for it."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="openradial-model", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while batch := self._next():
            begun = time.monotonic()
            found = answers(self.bundle, [(job.values, job.rate) for job in batch], self.limits)
            self._watch(sum(len(job.values) for job in batch), time.monotonic() - begun)
            _deliver(batch, found)

    def _next(self) -> list[Job]:
        """The requests of the next batch; none when all is done."""
        with self._changed:
            while True:
                self._wait()
                if not self._jobs:
                    return []
                batch = self._taken()
                if batch:
                    self._wanted = sum(len(job.values) for job in batch) if len(batch) > 1 else 1
                    return batch

    def _wait(self) -> None:
        while not self._jobs and not self._closed:
            self._changed.wait()
        while self._jobs and self._rows < self._wanted and not self._closed:
            left = self._jobs[0].arrived + self.limits.delay / 1000 - time.monotonic()
            if left <= 0 or not self._changed.wait(left):
                return

    def _taken(self) -> list[Job]:
        """Whole requests from the front, without those that nobody waits for any more."""
        batch: list[Job] = []
        rows = 0
        while self._jobs and (not batch or rows + len(self._jobs[0].values) <= self.limits.batch):
            job = self._jobs.popleft()
            self._rows -= len(job.values)
            if not job.future.cancelled():
                batch.append(job)
                rows += len(job.values)
        return batch


def _deliver(batch: list[Job], found: list[list[Answer] | Exception]) -> None:
    """Hand the answers over, with one call for each event loop."""
    pairs: dict[asyncio.AbstractEventLoop, list[tuple[Job, list[Answer] | Exception]]] = {}
    for job, said in zip(batch, found, strict=True):
        pairs.setdefault(job.future.get_loop(), []).append((job, said))
    for loop, own in pairs.items():
        with suppress(RuntimeError):  # a closed loop: nobody waits any more
            loop.call_soon_threadsafe(_settle, own)


def _settle(pairs: list[tuple[Job, list[Answer] | Exception]]) -> None:
    for job, said in pairs:
        if job.future.done():
            continue
        if isinstance(said, Exception):
            job.future.set_exception(said)
        else:
            job.future.set_result(said)
