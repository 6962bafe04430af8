"""The service's application with the page, its files and its routes added."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from openradial.server.app import create_app
from openradial.server.playground import routes
from openradial.server.playground.runs import Runs
from openradial.server.service import Service

STATIC = Path(__file__).parent / "static"
LOCAL = ("127.0.0.1", "localhost", "[::1]")
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


class SecureStaticFiles(StaticFiles):
    """Static files with the security headers of the page."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers.update(HEADERS)
        return response


def index() -> Response:
    """Return the page."""
    return FileResponse(STATIC / "index.html", headers=HEADERS)


def create_playground(
    service: Service,
    *,
    title: str | None = None,
    hosts: tuple[str, ...] = LOCAL,
    stopped: Callable[[], bool] = lambda: False,
) -> FastAPI:
    """Return the service's application with the page and its routes under ``/play``.

    Args:
        title: name of the bundle on the page; without one it is presented as the bundle that comes with the package.
        hosts: accepted Host headers; others are refused, which prevents DNS rebinding.
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
    app.include_router(routes.spiral_routes(runs, service.memory, stopped), include_in_schema=False)
    app.include_router(routes.digit_routes(service.memory), include_in_schema=False)
    app.include_router(routes.model_routes(service, title), include_in_schema=False)
    app.add_api_route("/", index, include_in_schema=False)
    app.mount("/static", SecureStaticFiles(directory=STATIC))
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
    return app
