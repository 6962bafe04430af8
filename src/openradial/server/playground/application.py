"""The service's application with the page and its routes added."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.middleware.trustedhost import TrustedHostMiddleware

from openradial.server.application import create_app
from openradial.server.playground import digit_routes, model_routes, page, spiral_routes
from openradial.server.playground.runs import Runs
from openradial.server.service import Service

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]
LOCAL = ("127.0.0.1", "localhost", "[::1]")


def never() -> bool:
    return False


def create_playground(
    service: Service,
    *,
    title: str | None = None,
    hosts: tuple[str, ...] = LOCAL,
    stopped: Callable[[], bool] = never,
) -> FastAPI:
    """The page, its routes under ``/play``, and the service that it asks about ``service``'s bundle.

    Args:
        title: what the bundle is called on the page; without one it counts as the one that comes with the package.
        hosts: names that the page may be called by, so that no other site can reach it under a name of its own.
        stopped: says that the server is stopping; streams then end.
    """
    app, runs = create_app(service), Runs()
    app.router.lifespan_context = _with_runs(app.router.lifespan_context, runs)
    app.include_router(spiral_routes.routes(runs, service.memory, stopped), include_in_schema=False)
    app.include_router(digit_routes.routes(service.memory), include_in_schema=False)
    app.include_router(model_routes.routes(service, title), include_in_schema=False)
    app.add_api_route("/", page.index, include_in_schema=False)
    app.mount("/static", page.Files(directory=page.STATIC))
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
    return app


def _with_runs(lifespan: Lifespan, runs: Runs) -> Lifespan:
    """The service's beginning and end, and the end of all runs."""

    @asynccontextmanager
    async def both(app: Any) -> AsyncIterator[Any]:
        async with lifespan(app) as state:
            yield state
        runs.close()

    return both
