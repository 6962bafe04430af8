"""The service: a bundle's predictions over HTTP, in batches, with limits, metrics and a log.

:func:`create_app` makes an ASGI application of a :class:`Service`; :func:`serve` runs one.
"""

from openradial.errors import require

for package in ("fastapi", "uvicorn", "python_multipart", "prometheus_client"):
    require(package, "serve", "the service")

from openradial.server.application import create_app  # noqa: E402
from openradial.server.batching import Batcher  # noqa: E402
from openradial.server.limits import Limits  # noqa: E402
from openradial.server.refusals import RequestError  # noqa: E402
from openradial.server.running import listen, serve  # noqa: E402
from openradial.server.service import Service  # noqa: E402

__all__ = ["Batcher", "Limits", "RequestError", "Service", "create_app", "listen", "serve"]
