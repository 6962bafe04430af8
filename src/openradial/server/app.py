"""The ASGI application: routes, error responses, and the middleware around all routes."""

import hmac
import json
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from traceback import extract_tb
from typing import Any

import jinja2
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import openradial
from openradial.errors import OpenRadialError
from openradial.server import schemas
from openradial.server.batching import Result
from openradial.server.monitoring import log_event
from openradial.server.requests import CLOSE, RequestError, read_request
from openradial.server.service import Service, count_unknown
from openradial.server.settings import LogLevel

TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("openradial.server"), autoescape=True, trim_blocks=True, lstrip_blocks=True
)
PREDICT = "/v1/predict"
PROBES = ("/healthz", "/readyz")
PUBLIC_PATHS = (*PROBES, "/docs", "/openapi.json")
WRONG_HOST = RequestError(400, "this service does not answer this Host header; allow it with serve --allowed-host")
UNAUTHORIZED = RequestError(
    401, "this service needs a token; send the header Authorization: Bearer ...", {"WWW-Authenticate": "Bearer"}
)
STOPPING = RequestError(503, "the service is stopping; retry later", {"Retry-After": "1", **CLOSE})
FAILURE = RequestError(500, "internal error; see the log of the service", CLOSE)


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
    inputs = service.bundle.preprocessing

    async def predict(request: Request) -> Response:
        """Return a class or unknown for each input. An input that cannot be read gets an error at its position."""

        async def disconnected() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        with service.memory.lease() as reserve:
            asked = await read_request(request, service.limits, reserve, inputs)
            results = await service.predict(asked, disconnected)
        request.state.log = {"inputs": len(results), "unknown": count_unknown(results)}
        return _response(results, service.false_reject_rate if asked.rate is None else asked.rate)

    # Starlette's route handles the requests that FastAPI's describes: it takes a tenth less time
    app.add_route(PREDICT, predict, methods=["POST"])
    responses: dict[int | str, dict[str, Any]] = {200: {"model": schemas.PredictResponse}, **schemas.ERRORS}
    app.post(PREDICT, responses=responses, openapi_extra=schemas.predict_request(inputs, service.limits.items))(predict)

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
        """Return whether requests for predictions are accepted and answered now."""
        is_ready = service.is_ready
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


class ServiceMiddleware:
    """Refuse requests for other hosts or without a valid token; log and count every request."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, path = time.perf_counter(), 0, str(scope["path"])[:200]

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        error = self._refusal(scope)
        app = self.app if error is None else error.response()
        try:
            await app(scope, receive, send_and_note)
        except Exception as error:
            line = extract_tb(error.__traceback__)[-1]
            where = f"{Path(line.filename).name}:{line.lineno}"
            log_event(LogLevel.ERROR, "failure", path=path, error=f"{type(error).__name__}: {error}", where=where)
            if status:
                raise
            await FAILURE.response()(scope, receive, send_and_note)
        finally:
            seconds = time.perf_counter() - start
            # paths made up by clients are counted as "other"
            route = PREDICT if path == PREDICT else str(getattr(scope.get("route"), "path", "other"))
            self.service.metrics.count_request(route, status, seconds)
            level = LogLevel.ERROR if status >= 500 and status != 503 else LogLevel.INFO
            facts = {"method": scope["method"], "path": path, "status": status, "ms": round(1000 * seconds, 2)}
            facts["client"] = scope["client"][0] if scope.get("client") else "-"
            log_event(level, "request", **facts, **scope.get("state", {}).get("log", {}))

    def _refusal(self, scope: Scope) -> RequestError | None:
        if self.service.is_stopping:
            return STOPPING
        if scope["path"] not in PROBES and not is_host_allowed(scope, self.service.hosts):
            return WRONG_HOST
        return None if is_authorized(scope, self.service.token) else UNAUTHORIZED


def is_authorized(scope: Scope, token: str | None) -> bool:
    """Return whether an HTTP request may be served: its path is public, or it sends the token."""
    if token is None or scope["path"] in PUBLIC_PATHS:
        return True
    scheme, _, sent = _header(scope, b"authorization").partition(b" ")
    return scheme.lower() == b"bearer" and hmac.compare_digest(sent.strip(b" "), token.encode())


def is_host_allowed(scope: Scope, hosts: Collection[str]) -> bool:
    """Return whether the Host header, without its port, is one of ``hosts``."""
    name, colon, port = _header(scope, b"host").decode("latin-1").lower().rpartition(":")
    host = name if colon and port.isdecimal() else name + colon + port
    return "*" in hosts or host in hosts


def _header(scope: Scope, name: bytes) -> bytes:
    """Return the value of a header; empty if it is missing or sent several times."""
    values = [value for each, value in scope["headers"] if each == name]
    return values[0] if len(values) == 1 else b""
