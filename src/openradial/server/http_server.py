"""Run an application with uvicorn: sockets, connection limits and graceful shutdown."""

import asyncio
import json
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from openradial.errors import OptionError
from openradial.server.monitoring import log_event
from openradial.server.settings import Limits, LogLevel

SWITCH = 0.001  # seconds; with the usual 5 ms the model waits that long after each operation while requests are read
TOO_MANY = json.dumps({"error": "too many connections are open; retry later"})


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 is any free one."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise OptionError(
            f"cannot listen on port {port} of {host} ({error}); choose others with --host and --port"
        ) from error


def url_of(listening: socket.socket) -> str:
    """Return the address of a socket as browsers take it."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def serve(app: FastAPI, listening: socket.socket, *, limits: Limits | None = None, grace: int = 30) -> None:
    """Serve an application on a socket until SIGTERM or SIGINT.

    Then accept nothing new, and finish the accepted requests within ``grace`` seconds.
    """
    off: dict[str, Any] = {"ws": "none", "access_log": False, "server_header": False, "proxy_headers": False}
    protocol = connection_class(limits or Limits())
    config = uvicorn.Config(app, http=protocol, lifespan="on", log_config=None, timeout_graceful_shutdown=grace, **off)
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    try:
        _Server(config).run([listening])
    finally:
        sys.setswitchinterval(before)


class _Server(uvicorn.Server):
    """A server that logs its events to our log and ends normally after a signal."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        is_main = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if is_main else ()  # other threads receive no signals
        before = {number: signal.signal(number, self._stop) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        log_event(LogLevel.INFO, "stopping", signal=signal.Signals(number).name)
        self.handle_exit(number, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            log_event(LogLevel.INFO, "listening", url=url_of(listening))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        log_event(LogLevel.INFO, "stopped", requests=self.server_state.total_requests)


def connection_class(limits: Limits) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with a limit on connections and a timeout for idle ones.

    A new request has to begin every ``limits.read_timeout`` seconds: a client that sends the head of a request byte by
    byte, or does not read its response, is disconnected. A request that is being served has its own limits.
    """

    class Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        def connection_made(self, transport: asyncio.Transport) -> None:
            if len(self.connections) >= limits.connections:
                transport.write(
                    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
                    f"Connection: close\r\nContent-Length: {len(TOO_MANY)}\r\n\r\n{TOO_MANY}".encode()
                )
                transport.close()
                return
            super().connection_made(transport)
            self._schedule_check()

        def connection_lost(self, exc: Exception | None) -> None:
            if self.transport is not None:
                self._next_check.cancel()
                super().connection_lost(exc)

        def _schedule_check(self) -> None:
            self._checked_cycle = self.cycle
            self._next_check = self.loop.call_later(limits.read_timeout, self._check)

        def _check(self) -> None:
            is_idle = self.cycle is None or self.cycle.response_complete
            if is_idle and self.cycle is self._checked_cycle:
                self.transport.abort()
            else:
                self._schedule_check()

    return Connection
