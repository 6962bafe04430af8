"""Middleware around all routes: authentication, logging, metrics, and a response to unexpected errors."""

import hmac
import time
from pathlib import Path
from traceback import extract_tb

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openradial.server.monitoring import log_event
from openradial.server.requests import CLOSE, RequestError
from openradial.server.service import Service
from openradial.server.settings import LogLevel

PREDICT = "/v1/predict"
PUBLIC_PATHS = ("/healthz", "/readyz", "/docs", "/openapi.json")
UNAUTHORIZED = RequestError(
    401, "this service needs a token; send the header Authorization: Bearer ...", {"WWW-Authenticate": "Bearer"}
)
FAILURE = RequestError(500, "internal error; see the log of the service", CLOSE)


class ServiceMiddleware:
    """Refuse requests without a valid token; log and count every request."""

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

        app = self.app if is_authorized(scope, self.service.token) else UNAUTHORIZED.response()
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
            self.service.metrics.count_request(_route(scope), status, seconds)
            level = LogLevel.ERROR if status >= 500 and status != 503 else LogLevel.INFO
            facts = {"method": scope["method"], "path": path, "status": status, "ms": round(1000 * seconds, 2)}
            facts["client"] = scope["client"][0] if scope.get("client") else "-"
            log_event(level, "request", **facts, **scope.get("state", {}).get("log", {}))


def _route(scope: Scope) -> str:
    """Return the path of the route; paths made up by clients are counted as "other"."""
    return PREDICT if scope["path"] == PREDICT else str(getattr(scope.get("route"), "path", "other"))


def is_authorized(scope: Scope, token: str | None) -> bool:
    """Return whether an HTTP request may be served: its path is public, or it sends the token."""
    if token is None or scope["path"] in PUBLIC_PATHS:
        return True
    sent = [value for name, value in scope["headers"] if name == b"authorization"]
    return len(sent) == 1 and hmac.compare_digest(sent[0], f"Bearer {token}".encode())
