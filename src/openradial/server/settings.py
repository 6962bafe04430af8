"""Settings of the service: limits, log level and log format. Needs no optional package."""

from dataclasses import dataclass, fields
from enum import StrEnum

from openradial.errors import OptionError, check_count, check_positive

LogLevel = StrEnum("LogLevel", ["DEBUG", "INFO", "WARNING", "ERROR"])
LogFormat = StrEnum("LogFormat", ["PLAIN", "JSON"])


@dataclass(frozen=True)
class Limits:
    """Limits on requests and resources; a request above a limit is refused with an error message."""

    body: int = 8 * 2**20  # bytes of a request
    pixels: int = 25_000_000  # of one image, read from its header before it is decoded
    items: int = 256  # inputs of a request
    steps: int = 20_000  # of a sequence, or words of a text
    queue: int = 1024  # inputs of all requests that wait for the model
    batch: int = 64  # inputs that are predicted together
    delay: float = 5.0  # milliseconds that a request waits for others under load
    memory: int = 256 * 2**20  # bytes of all requests that are being read or wait
    connections: int = 1000  # of all clients
    read_timeout: float = 20.0  # seconds within which a request must arrive
    response_timeout: float = 60.0  # seconds within which a response must be ready

    def __post_init__(self) -> None:
        for each in fields(self):
            if each.type is int:
                check_count(each.name, getattr(self, each.name))
        for name in ("read_timeout", "response_timeout"):
            check_positive(name, getattr(self, name))
        if not 0 <= self.delay < float("inf"):
            raise OptionError(f"delay must be a number of milliseconds, at least 0, got {self.delay!r}")
        for large, small in (("memory", "body"), ("queue", "items")):
            most, one = getattr(self, large), getattr(self, small)
            if one > most:
                way_out = f"raise {large} or lower {small}"
                raise OptionError(f"{large} must hold one request, got {large}={most}, {small}={one}; {way_out}")
