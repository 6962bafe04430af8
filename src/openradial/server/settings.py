"""Settings of the service: limits, log, and the token for authentication. Needs no optional package."""

import ipaddress
import os
from dataclasses import dataclass, fields
from enum import StrEnum

from openradial.errors import OptionError, check_count, check_positive

TOKEN = "OPENRADIAL_TOKEN"
LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")  # the Host headers that a service answers by default
LogLevel = StrEnum("LogLevel", ["DEBUG", "INFO", "WARNING", "ERROR"])
LogFormat = StrEnum("LogFormat", ["PLAIN", "JSON"])


@dataclass(frozen=True)
class Limits:
    """Limits on requests and resources; a request above a limit is refused with an error message."""

    body: int = 8 * 2**20  # bytes of a request
    pixels: int = 25_000_000  # of all images of a request, read from their headers before one is decoded
    items: int = 256  # inputs of a request
    steps: int = 20_000  # of a sequence, or words of a text
    queue: int = 1024  # inputs of all requests that wait for the model
    batch: int = 64  # inputs that are predicted together
    delay: float = 5.0  # milliseconds that a request waits for others under load
    memory: int = 256 * 2**20  # bytes of all requests that are being read or wait
    connections: int = 1000  # of all clients
    read_timeout: float = 20.0  # seconds within which a request must arrive
    response_timeout: float = 60.0  # seconds within which a response must be ready
    stall_timeout: float = 5.0  # seconds without any response after which the service is not ready, if requests wait

    def __post_init__(self) -> None:
        for each in fields(self):
            if each.type is int:
                check_count(each.name, getattr(self, each.name))
        for name in ("read_timeout", "response_timeout", "stall_timeout"):
            check_positive(name, getattr(self, name))
        if not 0 <= self.delay < float("inf"):
            raise OptionError(f"delay must be a number of milliseconds, at least 0, got {self.delay!r}")
        for large, small in (("memory", "body"), ("queue", "items")):
            most, one = getattr(self, large), getattr(self, small)
            if one > most:
                way_out = f"raise {large} or lower {small}"
                raise OptionError(f"{large} must hold one request, got {large}={most}, {small}={one}; {way_out}")


def token_from_environment() -> str | None:
    """Return the token that clients must send, or None if none is set."""
    token = os.environ.get(TOKEN)
    if token is not None and not (token and token.isascii() and token.isprintable() and " " not in token):
        raise OptionError(f"{TOKEN} must be printable ASCII characters without spaces; set another, or unset it")
    return token


def check_exposure(host: str, token: str | None, *, without_token: bool = False) -> None:
    """Raise if other computers could reach a service without a token, unless ``without_token`` allows it.

    >>> check_exposure("127.0.0.1", None)
    """
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    if token is None and not without_token and not is_loopback:
        raise OptionError(
            f"other computers can reach {host}, so a token is required: set {TOKEN}, or allow access without a token "
            "with --without-token"
        )
