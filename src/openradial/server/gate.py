"""What every request passes: the token, the clock, the log, and the last catch for what nobody expected."""

import hmac
import time
from pathlib import Path
from traceback import extract_tb

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openradial.server.logs import Level, event
from openradial.server.refusals import CLOSE, RequestError
from openradial.server.service import Service

PREDICT = "/v1/predict"
OPEN_PATHS = ("/healthz", "/readyz", "/docs", "/openapi.json")


class Gate:
    """Around the application: refuses who has no token, writes a line and counts for each request."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service
        token = service.token
        self.expected = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 0

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if self._may_enter(scope):
                await self.app(scope, receive, counted)
            else:
                await _unauthorised(scope, receive, counted)
        except Exception as error:
            place = extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            event(Level.ERROR, "failure", path=_path(scope), error=f"{type(error).__name__}: {error}", where=where)
            if status:
                raise
            await refused(RequestError(500, "the service failed; its log says why", CLOSE))(scope, receive, counted)
        finally:
            self._note(scope, status, time.perf_counter() - begun)

    def _may_enter(self, scope: Scope) -> bool:
        if self.expected is None or scope["path"] in OPEN_PATHS:
            return True
        sent = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(sent) == 1 and hmac.compare_digest(sent[0], self.expected)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        self.service.metrics.count_request(_counter(scope), status, seconds)
        level = Level.ERROR if status >= 500 and status != 503 else Level.INFO
        client = scope["client"][0] if scope.get("client") else "-"
        event(
            level,
            "request",
            method=scope["method"],
            path=_path(scope),
            status=status,
            ms=round(1000 * seconds, 2),
            client=client,
            **scope.get("state", {}).get("noted", {}),
        )


def refused(refusal: RequestError) -> JSONResponse:
    """The answer to a request that is not served."""
    return JSONResponse({"error": refusal.sentence}, refusal.status, refusal.headers)


def _counter(scope: Scope) -> str:
    """The path if it is one of ours: what a client makes up must not become a counter."""
    return PREDICT if scope["path"] == PREDICT else str(getattr(scope.get("route"), "path", "other"))


def _path(scope: Scope) -> str:
    """The path as far as a line of the log should hold it."""
    return str(scope["path"])[:200]


async def _unauthorised(scope: Scope, receive: Receive, send: Send) -> None:
    sentence = "this service needs a token; send the header Authorization: Bearer ..."
    await refused(RequestError(401, sentence, {"WWW-Authenticate": "Bearer"}))(scope, receive, send)
