"""One line per event, for people or as JSON."""

import json
import logging
import sys
import time
from enum import StrEnum
from typing import Any, TextIO

LOGGER = logging.getLogger("openradial.server")
HTTP_LOGGER = logging.getLogger("uvicorn.error")


class Level(StrEnum):
    """From how important on events are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


NUMBERS = {level: logging.getLevelNamesMapping()[level.name] for level in Level}


class Form(StrEnum):
    """How events are written."""

    PLAIN = "plain"
    JSON = "json"


def event(level: Level, name: str, **facts: Any) -> None:
    """Write one line.

    >>> set_up(Level.WARNING, Form.PLAIN, sys.stdout)
    >>> event(Level.INFO, "request", status=200)
    """
    number = NUMBERS[level]
    if LOGGER.isEnabledFor(number):  # made by hand, because LOGGER.log also looks for the line that called it
        LOGGER.handle(LOGGER.makeRecord(LOGGER.name, number, "", 0, name, (), None, extra={"facts": facts}))


def set_up(level: Level, form: Form, stream: TextIO | None = None) -> None:
    """Let events of this level and above be written to a stream, by default the error stream.

    What the HTTP server has to say becomes an event too, if it is a warning or worse.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Lines(form))
    for logger, least in ((LOGGER, NUMBERS[level]), (HTTP_LOGGER, max(NUMBERS[level], NUMBERS[Level.WARNING]))):
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(least)


class _Lines(logging.Formatter):
    def __init__(self, form: Form) -> None:
        super().__init__()
        self.form = form

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"
        level, name, facts = record.levelname.lower(), record.getMessage(), getattr(record, "facts", None)
        if facts is None:  # not one of ours
            name, facts = "http", {"message": name.strip(), **_error(record)}
        if self.form is Form.JSON:
            return json.dumps({"time": moment, "level": level, "event": name, **facts}, default=str)
        return " ".join([moment, level, name, *(f"{key}={_plain(value)}" for key, value in facts.items())])


def _error(record: logging.LogRecord) -> dict[str, str]:
    error = record.exc_info[1] if record.exc_info else None
    return {} if error is None else {"error": f"{type(error).__name__}: {error}"}


def _plain(value: Any) -> str:
    """The value without anything that could look like another field or another line."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    is_simple = text.isprintable() and not any(letter in text for letter in ' "=')
    return text if text and is_simple else json.dumps(text)
