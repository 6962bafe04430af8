"""The application: routes and how errors are answered."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse

import openradial
from openradial.errors import OpenRadialError
from openradial.server import schema
from openradial.server.answers import Answer
from openradial.server.description import page
from openradial.server.gate import PREDICT, Gate, refused
from openradial.server.refusals import RequestError
from openradial.server.requests import read
from openradial.server.service import Service

JSON = "application/json"
TEXT = "text/plain; version=0.0.4; charset=utf-8"


def create_app(service: Service) -> FastAPI:
    """An ASGI application that serves a bundle. More routes may be added to it; they stand behind the same gate."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.warm_up()
        yield
        service.batcher.close()

    app = FastAPI(
        title="openradial",
        version=openradial.__version__,
        description="A class, or unknown.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    # Starlette's route serves what FastAPI's describes: it takes a tenth less of the time of a request
    app.add_route(PREDICT, predictor(service), methods=["POST"])
    app.include_router(routes(service))
    app.add_route("/docs", _description, include_in_schema=False)
    app.add_exception_handler(OpenRadialError, _answer_ours)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_middleware(Gate, service=service)
    return app


def predictor(service: Service) -> Callable[[Request], Awaitable[Response]]:
    """What answers ``POST /v1/predict``."""

    async def predict(request: Request) -> Response:
        """A class or unknown for each input. A broken input among others is an error in its place."""
        with service.memory.lease() as take:
            asked = await read(request, service.limits, take, images=service.takes_images)
            found = await service.predict(asked, lambda: _vanished(request))
        request.state.noted = {"inputs": len(found), "unknown": _unknown(found)}
        rate = service.false_reject_rate if asked.rate is None else asked.rate
        return _answered(found, rate)

    return predict


def routes(service: Service) -> APIRouter:
    """``/v1/predict``, ``/v1/model``, ``/healthz``, ``/readyz`` and ``/metrics`` of a service."""
    router = APIRouter()
    answers: dict[int | str, dict[str, Any]] = {200: {"model": schema.Answers}, **schema.PROBLEMS}
    router.post(PREDICT, responses=answers, openapi_extra=schema.BODY)(predictor(service))

    @router.get("/v1/model", response_model=schema.Model)
    async def model() -> Any:
        """Classes, inputs and facts of the model, and the limits of the service."""
        return JSONResponse(service.facts())

    @router.get("/healthz", response_model=schema.Status)
    async def healthz() -> Any:
        """Whether the process is alive."""
        return JSONResponse({"status": "alive"})

    @router.get("/readyz", response_model=schema.Status, responses={503: {"model": schema.Status}})
    async def readyz() -> Any:
        """Whether requests for predictions would be taken now."""
        is_ready = service.batcher.is_open and service.batcher.waiting < service.limits.queue
        return JSONResponse({"status": "ready" if is_ready else "not ready"}, 200 if is_ready else 503)

    @router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(service.metrics.text(), media_type=TEXT)

    return router


def _answered(found: list[Answer], rate: float | None) -> Response:
    said = [{"error": each.sentence} if isinstance(each, RequestError) else each for each in found]
    first = found[0]
    body: dict[str, Any] = {"predictions": said, "false_reject_rate": rate}
    status = 200
    if isinstance(first, RequestError) and all(isinstance(each, RequestError) for each in found):
        body, status = {"error": first.sentence, **body}, first.status
    return Response(json.dumps(body, allow_nan=False, ensure_ascii=False), status, media_type=JSON)


def _unknown(found: list[Answer]) -> int:
    return sum(not isinstance(each, RequestError) and each["is_unknown"] for each in found)


async def _description(request: Request) -> Response:
    return HTMLResponse(page(request.app.openapi(), str(request.base_url)))


async def _vanished(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _answer_ours(request: Request, error: Exception) -> Response:
    return refused(error if isinstance(error, RequestError) else RequestError(422, str(error)))


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refused(RequestError(error.status_code, str(error.detail), error.headers))
