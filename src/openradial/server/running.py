"""Run an application: where it listens, who may come, and how it stops."""

import ipaddress
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from fastapi import FastAPI

from openradial.errors import OptionError
from openradial.server.connections import connection_class
from openradial.server.limits import Limits
from openradial.server.logs import Level, event

TOKEN = "OPENRADIAL_TOKEN"
SWITCH = 0.001  # seconds; with the usual 5 ms the model waits that long after each operation while requests are read


def token_from_environment() -> str | None:
    """The token that clients must send, or None where none is set."""
    token = os.environ.get(TOKEN)
    if token is not None and not (token and token.isascii() and token.isprintable() and " " not in token):
        raise OptionError(
            f"{TOKEN} must be letters, digits and signs of ASCII without spaces; set another, or unset it"
        )
    return token


def check_exposure(host: str, token: str | None, *, without_token: bool = False) -> None:
    """Raise where strangers could reach a service that asks for no token, unless that is wanted.

    >>> check_exposure("127.0.0.1", None)
    """
    if token is None and not without_token and not _is_loopback(host):
        raise OptionError(
            f"others can reach {host}, so clients must send a token: set {TOKEN}, or let everybody in with "
            "--without-token"
        )


def listen(host: str, port: int) -> socket.socket:
    """An open socket; port 0 is any free one."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise OptionError(
            f"port {port} of {host} cannot be opened ({error}); name others with --host, --port"
        ) from error


def serve(app: FastAPI, opened: socket.socket, *, limits: Limits | None = None, grace: int = 30) -> None:
    """Serve an application on a socket until SIGTERM or SIGINT.

    Then nothing new is taken, and what was taken is answered, for at most ``grace`` seconds.
    """
    config = uvicorn.Config(
        app,
        http=connection_class(limits or Limits()),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=grace,
    )
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    try:
        _Server(config).run([opened])
    finally:
        sys.setswitchinterval(before)


class _Server(uvicorn.Server):
    """Says what it does in our log, and ends well after a signal."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        is_main = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if is_main else ()  # elsewhere signals do not come
        before = {number: signal.signal(number, self._stop) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        event(Level.INFO, "stopping", signal=signal.Signals(number).name)
        self.handle_exit(number, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for opened in sockets or ():
            event(Level.INFO, "listening", url=url_of(opened))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        event(Level.INFO, "stopped", requests=self.server_state.total_requests)


def url_of(opened: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = opened.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
