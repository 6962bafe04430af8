"""Settings of the service: limits, log level and log format. Needs no optional package."""

from dataclasses import dataclass, fields
from enum import StrEnum

from openradial.errors import OptionError, check_count, check_positive


@dataclass(frozen=True)
class Limits:
    """Limits on requests and resources; a request above a limit is refused with an error message.

    Args:
        body: bytes of a request.
        pixels: of one image, read from its header before it is decoded.
        items: inputs of a request.
        steps: of a sequence, or words of a text.
        queue: inputs of all requests that wait for the model.
        batch: inputs that are predicted together.
        delay: milliseconds that a request waits for others under load.
        memory: bytes of all requests that are being read or wait.
        connections: of all clients.
        read_timeout: seconds within which a request must arrive.
        response_timeout: seconds within which a response must be ready.
    """

    body: int = 8 * 2**20
    pixels: int = 25_000_000
    items: int = 256
    steps: int = 20_000
    queue: int = 1024
    batch: int = 64
    delay: float = 5.0
    memory: int = 256 * 2**20
    connections: int = 1000
    read_timeout: float = 20.0
    response_timeout: float = 60.0

    def __post_init__(self) -> None:
        for each in fields(self):
            if each.type is int:
                check_count(each.name, getattr(self, each.name))
        for name in ("read_timeout", "response_timeout"):
            check_positive(name, getattr(self, name))
        if not 0 <= self.delay < float("inf"):
            raise OptionError(f"delay must be a number of milliseconds, at least 0, got {self.delay!r}")
        if self.body > self.memory:
            raise OptionError(
                f"memory must hold one request, got memory={self.memory}, body={self.body}; raise memory or lower body"
            )
        if self.items > self.queue:
            raise OptionError(
                f"queue must hold one request, got queue={self.queue}, items={self.items}; raise queue or lower items"
            )


class LogLevel(StrEnum):
    """The severity of an event."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """The format of the log."""

    PLAIN = "plain"
    JSON = "json"
