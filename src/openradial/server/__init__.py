"""Serve a bundle's predictions over HTTP, with dynamic batching, limits, metrics and a log.

:func:`create_app` returns the ASGI application of a :class:`Service`; :func:`serve` runs it. All names but ``Limits``
need the packages of the extra ``serve``, and are imported when they are used first.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from openradial.errors import require
from openradial.server.settings import Limits

if TYPE_CHECKING:
    from openradial.server.app import create_app
    from openradial.server.batching import Batcher
    from openradial.server.http_server import listen, serve
    from openradial.server.requests import RequestError
    from openradial.server.service import Service

__all__ = ["Batcher", "Limits", "RequestError", "Service", "create_app", "listen", "serve"]

_MODULES = {"Batcher": "batching", "RequestError": "requests", "Service": "service", "create_app": "app"}
_MODULES |= {"listen": "http_server", "serve": "http_server"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'openradial.server' has no attribute {name!r}")
    for package in ("fastapi", "uvicorn", "httptools", "python_multipart", "prometheus_client", "jinja2"):
        require(package, "serve", "the service")
    return getattr(import_module(f"openradial.server.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
