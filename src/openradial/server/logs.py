"""One line per event, for people or as JSON."""

import json
import logging
import sys
import time
from enum import StrEnum
from typing import Any, TextIO

LOGGER = logging.getLogger("openradial.server")


class Level(StrEnum):
    """From how important on events are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        return logging.getLevelNamesMapping()[self.name]


class Form(StrEnum):
    """How events are written."""

    PLAIN = "plain"
    JSON = "json"


def event(level: Level, name: str, **facts: Any) -> None:
    """Write one line.

    >>> set_up(Level.WARNING, Form.PLAIN, sys.stdout)
    >>> event(Level.INFO, "request", status=200)
    """
    if LOGGER.isEnabledFor(level.number):
        LOGGER.log(level.number, name, extra={"facts": facts})


def set_up(level: Level, form: Form, stream: TextIO | None = None) -> None:
    """Let events of this level and above be written to a stream, by default the error stream."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Lines(form))
    LOGGER.handlers = [handler]
    LOGGER.propagate = False
    LOGGER.setLevel(level.number)


class _Lines(logging.Formatter):
    def __init__(self, form: Form) -> None:
        super().__init__()
        self.form = form

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"
        level, facts = record.levelname.lower(), getattr(record, "facts", {})
        if self.form is Form.JSON:
            return json.dumps({"time": moment, "level": level, "event": record.getMessage(), **facts}, default=str)
        pairs = [f"{name}={_plain(value)}" for name, value in facts.items()]
        return " ".join([moment, level, record.getMessage(), *pairs])


def _plain(value: Any) -> str:
    """The value without anything that could look like another field or another line."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    is_simple = text.isprintable() and not any(letter in text for letter in ' "=')
    return text if text and is_simple else json.dumps(text)
