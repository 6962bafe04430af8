"""The service's application with the page, its files and its routes under ``/play`` added."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, StreamingResponse
from starlette.staticfiles import StaticFiles

from openradial.data.inputs import Inputs, TableInputs
from openradial.data.table_encoder import DateFeature, Feature, NumberFeature
from openradial.server.app import create_app
from openradial.server.playground.digits import NAMES, SIDE, GreyImage, digit_model, facts, like_mnist, predict_digit
from openradial.server.playground.learning import SpiralSettings
from openradial.server.playground.runs import Runs, SpiralRun
from openradial.server.playground.sentences import Sentences
from openradial.server.requests import MemoryBudget, RequestError, parse_object, read_body
from openradial.server.service import Service
from openradial.server.settings import Limits

STATIC = Path(__file__).parent / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-cache",  # browsers revalidate, so that they notice another version of the package
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
NO_STORE = {"Cache-Control": "no-store"}
POLL = 0.5  # seconds after which a stream checks whether it should end
SETTINGS, DRAWING = Limits(body=1000), Limits(body=512**2)  # a drawing has at most 512 x 512 pixels


def require_same_origin(request: Request) -> None:
    """Raise if the page of another site makes the request; browsers name the origin of every POST and DELETE."""
    origin = request.headers.get("origin")
    if origin is not None and origin != f"{request.url.scheme}://{request.headers.get('host')}":
        raise RequestError(403, "only the page of this playground may call this path; open it in a browser")


SAME_ORIGIN = Depends(require_same_origin)


class SecureStaticFiles(StaticFiles):
    """Static files with the security headers of the page."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers.update(HEADERS)
        return response


def create_playground(
    service: Service,
    *,
    title: str | None = None,
    sentences: Sentences | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> FastAPI:
    """Return the service's application with the page and its routes under ``/play``.

    Args:
        title: name of the bundle on the page; without one it is presented as the bundle that comes with the package.
        sentences: known ones that are shown beside a new one, for a model of texts.
        stopped: returns True once the server is stopping; event streams then end.
    """
    app, runs = create_app(service), Runs()
    lifespan = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan_and_runs(app: Any) -> AsyncIterator[Any]:
        async with lifespan(app) as state:
            yield state
        runs.close()

    app.router.lifespan_context = lifespan_and_runs

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return FileResponse(STATIC / "index.html", headers=HEADERS)

    @app.get("/play/model", include_in_schema=False)
    async def model() -> dict[str, Any]:
        """Return what the page needs to know to call ``/v1/predict``."""
        return {"title": title, **service.describe(), **input_form(service.bundle.preprocessing)}

    known = sentences or Sentences(service.bundle)

    @app.post("/play/sentence", include_in_schema=False, dependencies=[SAME_ORIGIN])
    async def sentence(request: Request) -> dict[str, Any]:
        """Return the known sentences that are nearest to a text."""
        with service.memory.lease() as reserve:
            fields = parse_object(await read_body(request, service.limits, reserve))
        return await run_in_threadpool(known.about, fields.get("text"), fields.get("rate"))

    app.include_router(spiral_routes(runs, service.memory, stopped), include_in_schema=False)
    app.include_router(digit_routes(service.memory), include_in_schema=False)
    app.mount("/static", SecureStaticFiles(directory=STATIC))
    return app


def spiral_routes(runs: Runs, memory: MemoryBudget, stopped: Callable[[], bool]) -> APIRouter:
    """Return ``/play/spiral``: start a run, follow it, pause it, and read outputs at a point."""
    router = APIRouter(prefix="/play/spiral", dependencies=[SAME_ORIGIN])

    @router.post("")
    async def start(request: Request) -> dict[str, Any]:
        with memory.lease() as reserve:
            settings = parse_object(await read_body(request, SETTINGS, reserve))
        run = await asyncio.to_thread(runs.start, SpiralSettings.from_mapping(settings))
        return run.describe()

    @router.get("/{name}/events")
    async def events(name: str, after: int = 0) -> Response:
        stream = event_stream(runs.find(name), max(0, after), stopped)
        return StreamingResponse(stream, media_type="text/event-stream", headers=NO_STORE)

    @router.get("/{name}/frames/{frame}")
    def picture(name: str, frame: int) -> Response:
        return Response(runs.find(name).picture(frame), media_type="application/octet-stream", headers=NO_STORE)

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
        runs.find(name).pause(False)

    @router.delete("/{name}", status_code=204)
    async def end(name: str) -> None:
        await asyncio.to_thread(runs.end, name)

    return router


async def event_stream(run: SpiralRun, known: int, stopped: Callable[[], bool]) -> AsyncIterator[str]:
    """Yield server-sent events of a run: one for each frame, and one at the end. The run trains while it is read."""
    run.watch(+1)
    try:
        yield ": hello\n\n"
        while not stopped():
            for frame in await asyncio.to_thread(run.wait, known, POLL):
                known += 1
                yield f"event: frame\ndata: {json.dumps(frame)}\n\n"
            if run.is_done and known >= len(run.frames):
                yield f"event: end\ndata: {json.dumps({'problem': run.problem})}\n\n"
                return
    finally:
        run.watch(-1)


def digit_routes(memory: MemoryBudget) -> APIRouter:
    """Return ``/play/digits``: the predictions of both classifiers for a drawing."""
    router = APIRouter(prefix="/play/digits", dependencies=[SAME_ORIGIN])

    router.get("")(facts)

    @router.post("")
    async def predict(request: Request, ready: bool = False) -> dict[str, Any]:
        """Predict a square of grey bytes, bright on black; ``ready`` means that it already has the form of MNIST."""
        with memory.lease() as reserve:
            drawing = square(await read_body(request, DRAWING, reserve))
        if ready and len(drawing) != SIDE:
            raise RequestError(422, f"a ready image has {SIDE} x {SIDE} pixels, got {len(drawing)} x {len(drawing)}")
        return await run_in_threadpool(_predict_with_both, drawing if ready else like_mnist(drawing))

    return router


def _predict_with_both(image: GreyImage) -> dict[str, Any]:
    predictions = {name: predict_digit(digit_model(name), image) for name in NAMES}
    return {"pixels": image.flatten().tolist(), **predictions}


def square(body: bytes) -> GreyImage:
    """Return bytes as a square image."""
    side = math.isqrt(len(body))
    if not body or side * side != len(body):
        raise RequestError(422, f"a drawing is a square of bytes, one per pixel, got {len(body)} bytes")
    return np.frombuffer(body, np.uint8).reshape(side, side)


def input_form(inputs: Inputs) -> dict[str, Any]:
    """Return kind and shape of the inputs, and the fields of a form for a table row."""
    shape = [size for size in inputs.shape if size is not None]
    fields: list[dict[str, Any]] = []
    if isinstance(inputs, TableInputs):
        fields = [_form_field(feature) for feature in inputs.encoder.features]
        fields += [{"name": name, "usual": "", "words": None} for name in inputs.encoder.texts]
    return {"kind": inputs.kind, "shape": shape, "fields": fields}


def _form_field(feature: Feature) -> dict[str, Any]:
    if isinstance(feature, NumberFeature):
        return {"name": feature.name, "usual": float(f"{feature.mean:.4g}"), "words": None}
    if isinstance(feature, DateFeature):
        return {"name": feature.name, "usual": feature.example, "words": None}
    return {"name": feature.name, "usual": None, "words": list(feature.categories)}
