"""A bundle with its queue, limits and metrics: the state that all routes share."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch

from openradial.classifier import OpenClassifier
from openradial.data.inputs import TableInputs
from openradial.server.batching import Batcher, Result
from openradial.server.monitoring import ServiceMetrics
from openradial.server.requests import MemoryBudget, PredictRequest, RequestError, unavailable
from openradial.server.settings import LOCAL_HOSTS, Limits

FIRST_CHECK = 0.1  # seconds before the service starts to watch for a disconnect of the client


class Service:
    """Serve the predictions of one bundle.

    Args:
        bundle: the model.
        limits: limits on requests and resources.
        token: what clients must send as ``Authorization: Bearer ...``; without one, every client is served.
        hosts: accepted Host headers without their port; ``"*"`` accepts all. Others are refused, which prevents DNS
            rebinding: a web page whose name is made to lead to this computer.
    """

    def __init__(
        self,
        bundle: OpenClassifier,
        limits: Limits | None = None,
        token: str | None = None,
        hosts: Sequence[str] = LOCAL_HOSTS,
    ) -> None:
        self.bundle, self.limits, self.token = bundle, limits or Limits(), token
        self.hosts = frozenset(host.lower() for host in hosts)
        self.is_stopping = False  # set by the server at shutdown: new requests are refused
        self.memory = MemoryBudget(self.limits.memory)
        self.metrics = ServiceMetrics(lambda: self.batcher.queued)
        self.batcher = Batcher(bundle, self.limits, self.metrics.count_batch)

    @property
    def false_reject_rate(self) -> float | None:
        """Return the rate that the bundle was calibrated for."""
        rejector = self.bundle.rejector
        return None if rejector is None else rejector.false_reject_rate

    @property
    def is_ready(self) -> bool:
        """Return whether requests for predictions are accepted and answered now."""
        batcher = self.batcher
        return batcher.is_open and batcher.queued < self.limits.queue and not batcher.is_stalled

    async def predict(self, request: PredictRequest, disconnected: Callable[[], Awaitable[None]]) -> list[Result]:
        """Return one result per input; remove the request from the queue once ``disconnected`` returns."""
        if request.rate is not None:
            if (rejector := self.bundle.rejector) is None:
                raise RequestError(422, "this model has no rejector; leave false_reject_rate out")
            rejector.checked_rate(request.rate)
        future = self.batcher.submit(request.inputs, request.rate)
        try:
            done, _ = await asyncio.wait([future], timeout=FIRST_CHECK)
            results = future.result() if done else await self._wait(future, disconnected)
        finally:
            future.cancel()
        errors, unknown = sum(isinstance(result, RequestError) for result in results), count_unknown(results)
        self.metrics.errors.inc(errors)
        self.metrics.unknown.inc(unknown)
        self.metrics.known.inc(len(results) - errors - unknown)
        return results

    async def _wait(
        self, future: asyncio.Future[list[Result]], disconnected: Callable[[], Awaitable[None]]
    ) -> list[Result]:
        gone = asyncio.ensure_future(disconnected())
        both: list[asyncio.Future[Any]] = [future, gone]
        try:
            await asyncio.wait(both, timeout=self.limits.response_timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        if future.done():
            return future.result()
        if gone.done():
            self.metrics.disconnected.inc()
            raise RequestError(499, "the client disconnected before its response was ready")
        raise unavailable(f"the response took more than {self.limits.response_timeout:g} s; retry later")

    def warm_up(self) -> None:
        """Predict once, because the first call of a network takes much longer than later ones."""
        inputs = self.bundle.preprocessing
        sizes = [size for size in inputs.shape if size is not None]
        if inputs.kind == "texts":
            self.bundle.predict([""])
        elif len(sizes) == len(inputs.shape):
            self.bundle.predict(torch.zeros(1, *sizes, dtype=inputs.dtype))

    def describe(self) -> dict[str, Any]:
        """Return the description of the model as JSON-compatible values."""
        inputs = self.bundle.preprocessing
        columns = {"columns": list(inputs.encoder.columns)} if isinstance(inputs, TableInputs) else {}
        return {
            "classes": list(self.bundle.classes),
            "network": self.bundle.network[0],
            "parameters": self.bundle.num_parameters,
            "inputs": {"kind": inputs.kind, "shape": list(inputs.shape), **columns},
            "false_reject_rate": self.false_reject_rate,
            "facts": dict(self.bundle.metadata),
            "versions": dict(self.bundle.versions),
            "limits": asdict(self.limits),
        }


def count_unknown(results: Sequence[Result]) -> int:
    """Return how many inputs were called unknown."""
    return sum(not isinstance(result, RequestError) and result["is_unknown"] for result in results)
