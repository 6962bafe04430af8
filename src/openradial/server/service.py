"""A bundle with its queue, limits and counters: what the pages of the application share."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch

from openradial.bundle import Bundle, ImageInputs, TableInputs
from openradial.server.answers import Answer
from openradial.server.batching import Batcher
from openradial.server.limits import Limits
from openradial.server.metrics import Metrics
from openradial.server.refusals import RequestError, busy
from openradial.server.requests import Asked, Memory

PATIENCE = 0.1  # seconds before it is asked whether the client is still there
Vanished = Callable[[], Awaitable[None]]


class Service:
    """Predictions of one bundle, as requests want them.

    Args:
        bundle: what predicts.
        limits: what is taken at most.
        token: what a client must send as ``Authorization: Bearer ...``; without one, everybody is served.
    """

    def __init__(self, bundle: Bundle, limits: Limits | None = None, token: str | None = None) -> None:
        self.bundle, self.limits, self.token = bundle, limits or Limits(), token
        self.metrics, self.memory = Metrics(), Memory(self.limits.memory)
        self.batcher = Batcher(bundle, self.limits, self.metrics.count_batch)
        self.metrics.watch_queue(lambda: self.batcher.waiting)

    @property
    def takes_images(self) -> bool:
        return isinstance(self.bundle.preprocessing, ImageInputs)

    @property
    def false_reject_rate(self) -> float | None:
        """The rate that the bundle was calibrated for."""
        rejector = self.bundle.classifier.rejector
        return None if rejector is None else rejector.false_reject_rate

    def check_rate(self, rate: float | None) -> None:
        """Raise unless the bundle can decide at this rate."""
        rejector = self.bundle.classifier.rejector
        if rate is None:
            return
        if rejector is None:
            raise RequestError(
                422, "this model rejects nothing, so no false_reject_rate can be asked of it; leave it out"
            )
        if rejector.per_class:
            rejector.thresholds(rate)
        else:
            rejector.threshold(rate)

    async def predict(self, asked: Asked, vanished: Vanished) -> list[Answer]:
        """One answer per value. ``vanished`` returns when the client is gone: then the request leaves the queue."""
        self.check_rate(asked.rate)
        future = self.batcher.submit(asked.values, asked.rate)
        try:
            done, _ = await asyncio.wait([future], timeout=PATIENCE)
            found = future.result() if done else await self._patiently(future, vanished)
        finally:
            future.cancel()
        self._count(found)
        return found

    async def _patiently(self, future: asyncio.Future[list[Answer]], vanished: Vanished) -> list[Answer]:
        gone = asyncio.ensure_future(vanished())
        both: list[asyncio.Future[Any]] = [future, gone]
        try:
            await asyncio.wait(both, timeout=self.limits.waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        if future.done():
            return future.result()
        if gone.done():
            self.metrics.vanished.inc()
            raise RequestError(499, "the client was gone before its answer was there")
        raise busy(f"the answer took more than {self.limits.waiting:g} s; ask again later")

    def _count(self, found: Sequence[Answer]) -> None:
        errors = sum(isinstance(answer, RequestError) for answer in found)
        unknown = sum(not isinstance(answer, RequestError) and answer["is_unknown"] for answer in found)
        self.metrics.errors.inc(errors)
        self.metrics.unknown.inc(unknown)
        self.metrics.known.inc(len(found) - errors - unknown)

    def warm_up(self) -> None:
        """Predict once: the first call of a network takes much longer than any other."""
        inputs = self.bundle.preprocessing
        sizes = [size for size in inputs.shape if size is not None]
        if len(sizes) == len(inputs.shape):
            self.bundle.predict(torch.zeros(1, *sizes, dtype=inputs.dtype))

    def facts(self) -> dict[str, Any]:
        """What the model is, as JSON can hold it."""
        inputs = self.bundle.preprocessing
        shown: dict[str, Any] = {"kind": inputs.kind, "shape": list(inputs.shape)}
        if isinstance(inputs, TableInputs):
            shown["columns"] = list(inputs.encoder.columns)
        return {
            "classes": list(self.bundle.classes),
            "network": self.bundle.network,
            "parameters": self.bundle.parameters,
            "inputs": shown,
            "false_reject_rate": self.false_reject_rate,
            "facts": dict(self.bundle.facts),
            "versions": dict(self.bundle.versions),
            "limits": asdict(self.limits),
        }
