"""The ASGI application: routes and error responses."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jinja2
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse

import openradial
from openradial.data.inputs import ImageInputs
from openradial.errors import OpenRadialError
from openradial.server import schemas
from openradial.server.batching import Result
from openradial.server.middleware import PREDICT, ServiceMiddleware
from openradial.server.requests import RequestError, read_request
from openradial.server.service import Service, count_unknown

TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("openradial.server"), autoescape=True, trim_blocks=True, lstrip_blocks=True
)


def create_app(service: Service) -> FastAPI:
    """Return an ASGI application that serves a bundle. Routes added to it use the same middleware."""

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
    _add_routes(app, service)
    app.add_route("/docs", _docs, include_in_schema=False)
    app.add_exception_handler(OpenRadialError, _handle_error)
    app.add_exception_handler(HTTPException, _handle_error)
    app.add_middleware(ServiceMiddleware, service=service)
    return app


def _add_routes(app: FastAPI, service: Service) -> None:
    takes_images = isinstance(service.bundle.preprocessing, ImageInputs)

    async def predict(request: Request) -> Response:
        """Return a class or unknown for each input. An input that cannot be read gets an error at its position."""

        async def disconnected() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        with service.memory.lease() as reserve:
            asked = await read_request(request, service.limits, reserve, images=takes_images)
            results = await service.predict(asked, disconnected)
        request.state.log = {"inputs": len(results), "unknown": count_unknown(results)}
        return _response(results, service.false_reject_rate if asked.rate is None else asked.rate)

    # Starlette's route handles the requests that FastAPI's describes: it takes a tenth less time
    app.add_route(PREDICT, predict, methods=["POST"])
    responses: dict[int | str, dict[str, Any]] = {200: {"model": schemas.PredictResponse}, **schemas.ERRORS}
    app.post(PREDICT, responses=responses, openapi_extra=schemas.PREDICT_REQUEST)(predict)

    @app.get("/v1/model", response_model=schemas.ModelResponse)
    async def model() -> Any:
        """Return classes, inputs and facts of the model, and the limits of the service."""
        return JSONResponse(service.describe())

    @app.get("/healthz", response_model=schemas.StatusResponse)
    async def healthz() -> Any:
        """Return whether the process is alive."""
        return JSONResponse({"status": "alive"})

    @app.get("/readyz", response_model=schemas.StatusResponse, responses={503: {"model": schemas.StatusResponse}})
    async def readyz() -> Any:
        """Return whether requests for predictions are accepted now."""
        is_ready = service.batcher.is_open and service.batcher.queued < service.limits.queue
        return JSONResponse({"status": "ready" if is_ready else "not ready"}, 200 if is_ready else 503)

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Return metrics for Prometheus."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _response(results: list[Result], rate: float | None) -> Response:
    rows = [{"error": each.message} if isinstance(each, RequestError) else each for each in results]
    body: dict[str, Any] = {"predictions": rows, "false_reject_rate": rate}
    status, first = 200, results[0]
    if isinstance(first, RequestError) and all(isinstance(each, RequestError) for each in results):
        body, status = {"error": first.message, **body}, first.status
    return Response(json.dumps(body, allow_nan=False, ensure_ascii=False), status, media_type="application/json")


async def _docs(request: Request) -> Response:
    """Return a page made from the OpenAPI description; it loads nothing from the web."""
    page = TEMPLATES.get_template("docs.html.j2")
    return HTMLResponse(page.render(api=request.app.openapi(), url=str(request.base_url).rstrip("/")))


async def _handle_error(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        error = RequestError(error.status_code, str(error.detail), error.headers)
    return (error if isinstance(error, RequestError) else RequestError(422, str(error))).response()
