"""Dynamic batching: inputs of concurrent requests are predicted together, in one thread; others decode images."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from openradial.classifier import OpenClassifier
from openradial.data.inputs import ImageInputs
from openradial.errors import OpenRadialError
from openradial.server.inputs import prepare_inputs
from openradial.server.requests import RequestError, unavailable
from openradial.server.settings import Limits

Result = dict[str, Any] | RequestError  # a row of Predictions.rows(), or the error of that input
RequestOutcome = list[Result] | Exception  # of a request
OnBatch = Callable[[int, float], None]  # called with the inputs and seconds of a batch
DECODERS = 2  # threads that decode images


@dataclass(eq=False)
class QueuedRequest:
    """The inputs of one request, and the future of their results."""

    inputs: Sequence[Any]
    rate: float | None
    future: asyncio.Future[list[Result]]
    arrived: float = field(default_factory=time.monotonic)
    prepared: list[Tensor | RequestError] | None = None  # the inputs of the network, once they are decoded


class Batcher:
    """A queue in front of one thread that predicts.

    The thread takes all requests that wait, up to ``limits.batch`` inputs. Only if its last batch had several requests
    does it wait for more: until as many inputs have arrived again, at most ``limits.delay`` milliseconds. So a single
    client never waits, and under load batches grow to what arrives while the model computes.

    Images are decoded before, by other threads, so that large ones do not stop the model. A request whose future is
    cancelled is not decoded any further.

    ``on_batch`` is called after every batch. The threads start with the first request.
    """

    def __init__(self, bundle: OpenClassifier, limits: Limits | None = None, on_batch: OnBatch | None = None) -> None:
        self.bundle, self.limits = bundle, limits or Limits()
        self._on_batch = on_batch or (lambda rows, seconds: None)
        self._changed = threading.Condition()
        self._queue: deque[QueuedRequest] = deque()
        self._decoders = ThreadPoolExecutor(DECODERS, "openradial-decoder")
        self._needs_decoding = isinstance(bundle.preprocessing, ImageInputs)
        self.queued = 0  # inputs of all requests that wait, also those that are being decoded
        self._prepared = 0  # inputs in the queue of the model
        self._expected = 1  # inputs worth waiting for
        self._unanswered = 0  # requests without results
        self._progress = 0.0  # when a request was answered last, or when the first of the unanswered ones arrived
        self._closed = self._is_decoded = False  # no more requests; no more of them come from the decoders
        self._thread: threading.Thread | None = None

    @property
    def is_open(self) -> bool:
        """Return whether requests are accepted and the thread can serve them."""
        return not self._closed and (self._thread is None or self._thread.is_alive())

    @property
    def is_stalled(self) -> bool:
        """Return whether requests wait, and none was answered for ``limits.stall_timeout`` seconds."""
        return self._unanswered > 0 and time.monotonic() - self._progress > self.limits.stall_timeout

    def submit(self, inputs: Sequence[Any], false_reject_rate: float | None = None) -> asyncio.Future[list[Result]]:
        """Return the future results, one per input; call it in the event loop. Raise if the queue is full or closed.

        A future that is cancelled does not affect the others of its batch.
        """
        request = QueuedRequest(inputs, false_reject_rate, asyncio.get_running_loop().create_future())
        with self._changed:
            if self._closed:
                raise unavailable("the service is stopping; retry later")
            if self.queued + len(inputs) > self.limits.queue:
                full = f"{self.queued:,} inputs wait, the limit is {self.limits.queue:,}"
                raise unavailable(f"the queue is full: {full}; retry later")
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="openradial-model", daemon=True)
                self._thread.start()
            self.queued += len(inputs)
            if not self._unanswered:
                self._progress = request.arrived
            self._unanswered += 1
            if self._needs_decoding:
                self._decoders.submit(self._decode, request)
            else:
                self._enqueue(request)
        return request.future

    def _decode(self, request: QueuedRequest) -> None:
        try:
            request.prepared = prepare_inputs(self.bundle, request.inputs, self.limits, request.future.cancelled)
        except Exception as error:
            with self._changed:
                self.queued -= len(request.inputs)
            self._deliver([request], [error])
        else:
            with self._changed:
                self._enqueue(request)

    def _enqueue(self, request: QueuedRequest) -> None:
        self._queue.append(request)
        self._prepared += len(request.inputs)
        if self._prepared >= self._expected or len(self._queue) == 1:
            self._changed.notify()

    def close(self) -> None:
        """Accept no more requests, and wait until the queued ones are finished."""
        with self._changed:
            self._closed = True
        self._decoders.shutdown()
        with self._changed:
            self._is_decoded = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while batch := self._next_batch():
            start = time.monotonic()
            results = predict_requests(self.bundle, batch, self.limits)
            self._on_batch(sum(len(request.inputs) for request in batch), time.monotonic() - start)
            self._deliver(batch, results)

    def _deliver(self, batch: list[QueuedRequest], results: Sequence[RequestOutcome]) -> None:
        """Pass the results to the futures, with one call for each event loop."""
        with self._changed:
            self._unanswered -= len(batch)
            self._progress = time.monotonic()
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[QueuedRequest, RequestOutcome]]] = {}
        for request, result in zip(batch, results, strict=True):
            by_loop.setdefault(request.future.get_loop(), []).append((request, result))
        for loop, pairs in by_loop.items():
            with suppress(RuntimeError):  # the loop is closed, so no client waits
                loop.call_soon_threadsafe(_set_results, pairs)

    def _next_batch(self) -> list[QueuedRequest]:
        """Return the requests of the next batch, or none if the batcher is closed and the queue is empty."""
        with self._changed:
            while True:
                self._wait()
                if not self._queue:
                    return []
                if batch := self._take():
                    self._expected = sum(len(request.inputs) for request in batch) if len(batch) > 1 else 1
                    return batch

    def _wait(self) -> None:
        while not self._queue and not self._is_decoded:
            self._changed.wait()
        while self._queue and self._prepared < self._expected and not self._closed:
            left = self._queue[0].arrived + self.limits.delay / 1000 - time.monotonic()
            if left <= 0 or not self._changed.wait(left):
                return

    def _take(self) -> list[QueuedRequest]:
        """Remove complete requests from the front of the queue; cancelled ones are dropped."""
        batch: list[QueuedRequest] = []
        size = 0
        while self._queue and (not batch or size + len(self._queue[0].inputs) <= self.limits.batch):
            request = self._queue.popleft()
            self.queued -= len(request.inputs)
            self._prepared -= len(request.inputs)
            if request.future.cancelled():
                self._unanswered -= 1
            else:
                batch.append(request)
                size += len(request.inputs)
        return batch


def predict_requests(bundle: OpenClassifier, batch: list[QueuedRequest], limits: Limits) -> list[RequestOutcome]:
    """Predict the inputs of several requests, each with its rate; return results, or the error of a request."""
    try:
        return list(_predict_together(bundle, batch, limits))
    except Exception as error:
        if len(batch) > 1:  # one by one, only the request that causes the error fails
            return [predict_requests(bundle, [request], limits)[0] for request in batch]
        return [RequestError(422, str(error)) if isinstance(error, OpenRadialError) else error]


def _predict_together(bundle: OpenClassifier, batch: list[QueuedRequest], limits: Limits) -> list[list[Result]]:
    results: list[list[Any]] = [[None] * len(request.inputs) for request in batch]
    groups: dict[tuple[float | None, torch.Size], list[tuple[int, int, Tensor]]] = {}
    for i, request in enumerate(batch):
        prepared = request.prepared or prepare_inputs(bundle, request.inputs, limits)
        for j, x in enumerate(prepared):
            if isinstance(x, RequestError):
                results[i][j] = x
            else:  # only inputs of the same shape share a batch, so that none is padded for another client
                groups.setdefault((request.rate, x.shape), []).append((i, j, x))
    for (rate, _), members in groups.items():
        predictions = bundle.predict(torch.cat([x for _, _, x in members]), rate)
        for (i, j, _), prediction in zip(members, predictions, strict=True):
            results[i][j] = prediction.as_dict()
    return results


def _set_results(pairs: list[tuple[QueuedRequest, RequestOutcome]]) -> None:
    for request, result in pairs:
        if request.future.done():
            continue
        if isinstance(result, Exception):
            request.future.set_exception(result)
        else:
            request.future.set_result(result)
