"""Routes of the spiral: start a run, look on, pause it, ask about places."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse

from openradial.server.limits import Limits
from openradial.server.playground.learning import SpiralSettings
from openradial.server.playground.runs import Run, Runs
from openradial.server.refusals import RequestError
from openradial.server.requests import Memory, read_body

LOOK = 0.5  # seconds after which a stream looks whether it should end
SMALL = Limits(body=1000)


def routes(runs: Runs, memory: Memory, stopped: Callable[[], bool]) -> APIRouter:
    """``/play/spiral`` and what is below."""
    router = APIRouter(prefix="/play/spiral")

    @router.post("")
    async def start(request: Request) -> dict[str, Any]:
        wishes = SpiralSettings.from_mapping(await _object(request, memory))
        run = await asyncio.to_thread(runs.start, wishes)
        return run.describe()

    @router.get("/{name}/events")
    async def events(name: str, after: int = 0) -> Response:
        stream = told(runs.find(name), max(0, after), stopped)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    @router.get("/{name}/frames/{frame}")
    def picture(name: str, frame: int) -> Response:
        content = runs.find(name).picture(frame)
        return Response(content, media_type="application/octet-stream", headers={"Cache-Control": "no-store"})

    @router.get("/{name}/at")
    def at(name: str, frame: int, x: float, y: float) -> dict[str, Any]:
        if not (math.isfinite(x) and math.isfinite(y)):
            raise RequestError(422, f"x and y must be finite numbers, got {x} and {y}")
        return runs.find(name).at(frame, x, y)

    @router.post("/{name}/pause", status_code=204)
    async def pause(name: str) -> None:
        runs.find(name).pause()

    @router.post("/{name}/resume", status_code=204)
    async def resume(name: str) -> None:
        runs.find(name).resume()

    @router.delete("/{name}", status_code=204)
    async def end(name: str) -> None:
        await asyncio.to_thread(runs.end, name)

    return router


async def told(run: Run, known: int, stopped: Callable[[], bool]) -> AsyncIterator[str]:
    """Events of a run as a stream: one for each frame, and one at the end. While it is read, the run goes on."""
    run.watch(+1)
    try:
        yield ": hello\n\n"
        while not stopped():
            for facts in await asyncio.to_thread(run.wait, known, LOOK):
                known += 1
                yield _event("frame", facts)
            if run.is_done and known >= len(run.frames):
                yield _event("end", {"problem": run.problem})
                return
    finally:
        run.watch(-1)


def _event(name: str, facts: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(facts)}\n\n"


async def _object(request: Request, memory: Memory) -> dict[str, Any]:
    """The JSON object of a request."""
    try:
        with memory.lease() as take:
            found = json.loads(await read_body(request, SMALL, take))
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the body is no JSON ({error})") from error
    if not isinstance(found, dict):
        raise RequestError(422, f"the body must be an object of settings, got {type(found).__name__}")
    return found
