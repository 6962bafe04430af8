"""Log events, one line each, and count requests for Prometheus."""

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from openradial.server.settings import LogFormat, LogLevel

LOGGER = logging.getLogger("openradial.server")
HTTP_LOGGER = logging.getLogger("uvicorn.error")
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LEVEL_NUMBERS = {level: logging.getLevelNamesMapping()[level.name] for level in LogLevel}


def log_event(level: LogLevel, name: str, **fields: Any) -> None:
    """Log one event.

    >>> configure_logging(LogLevel.WARNING, LogFormat.PLAIN, sys.stdout)
    >>> log_event(LogLevel.INFO, "request", status=200)
    """
    number = LEVEL_NUMBERS[level]
    if LOGGER.isEnabledFor(number):  # not LOGGER.log, which searches the stack for the calling line
        LOGGER.handle(LOGGER.makeRecord(LOGGER.name, number, "", 0, name, (), None, extra={"fields": fields}))


def configure_logging(level: LogLevel, form: LogFormat, stream: TextIO | None = None) -> None:
    """Write events of this level and above to a stream, by default standard error.

    Messages of the HTTP server become events too, if they are warnings or worse.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_EventFormatter(form))
    least = LEVEL_NUMBERS[level]
    for logger, number in ((LOGGER, least), (HTTP_LOGGER, max(least, logging.WARNING))):
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(number)


class _EventFormatter(logging.Formatter):
    def __init__(self, form: LogFormat) -> None:
        super().__init__()
        self.form = form

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"
        level, name, fields = record.levelname.lower(), record.getMessage(), getattr(record, "fields", None)
        if fields is None:  # a message of the HTTP server
            name, fields = "http", {"message": name.strip()}
            if record.exc_info and (error := record.exc_info[1]):
                fields["error"] = f"{type(error).__name__}: {error}"
        if self.form is LogFormat.JSON:
            return json.dumps({"time": moment, "level": level, "event": name, **fields}, default=str)
        return " ".join([moment, level, name, *(f"{key}={_plain(value)}" for key, value in fields.items())])


def _plain(value: Any) -> str:
    """Return a value as text that cannot be mistaken for another field or another line."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    is_simple = text.isprintable() and not any(letter in text for letter in ' "=')
    return text if text and is_simple else json.dumps(text)


class ServiceMetrics:
    """The Prometheus metrics of one service, in their own registry."""

    def __init__(self, queue_length: Callable[[], float]) -> None:
        r = self.registry = CollectorRegistry()
        predictions = Counter("openradial_predictions", "Inputs by result.", ["result"], registry=r)
        self.known, self.unknown, self.errors = map(predictions.labels, ("known", "unknown", "error"))
        self.requests = Counter("openradial_requests", "Requests by path and status.", ["path", "status"], registry=r)
        self.seconds = Histogram("openradial_request_seconds", "Request time.", ["path"], buckets=SECONDS, registry=r)
        self.batch_rows = Histogram("openradial_batch_rows", "Inputs per batch.", buckets=ROWS, registry=r)
        self.batch_seconds = Histogram("openradial_batch_seconds", "Time per batch.", buckets=SECONDS, registry=r)
        self.disconnected = Counter("openradial_disconnected", "Clients gone before the response.", registry=r)
        Gauge("openradial_queue_rows", "Inputs in the queue.", registry=r).set_function(queue_length)

    def count_batch(self, rows: int, seconds: float) -> None:
        self.batch_rows.observe(rows)
        self.batch_seconds.observe(seconds)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        self.requests.labels(path, str(status)).inc()
        self.seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
