"""Run an application with uvicorn: sockets, connection limits and graceful shutdown."""

import asyncio
import json
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from http import HTTPStatus
from types import FrameType
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from openradial.errors import OptionError
from openradial.server.monitoring import log_event
from openradial.server.service import Service
from openradial.server.settings import Limits, LogLevel
from openradial.training.loop import handle_signals

SWITCH = 0.001  # seconds; with the usual 5 ms the model waits that long after each operation while requests are read
HEAD = 65_536  # bytes of the request line and the headers
TICK, DRAIN = 0.02, 0.5  # seconds between checks at shutdown, and for requests that are on their way then
LINGER = 2.0  # seconds in which a client may read its last response, before the connection is closed


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
    """Serve until SIGTERM or SIGINT; then finish accepted requests within ``grace`` seconds, and refuse new ones."""
    off: dict[str, Any] = {"ws": "none", "access_log": False, "server_header": False, "proxy_headers": False}
    protocol = connection_class(limits or Limits())
    config = uvicorn.Config(app, http=protocol, lifespan="on", log_config=None, timeout_graceful_shutdown=grace, **off)
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    try:
        _Server(config, app.state.service).run([listening])
    finally:
        sys.setswitchinterval(before)


class _Server(uvicorn.Server):
    """A server that logs its events to our log and ends normally after a signal."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return handle_signals(self._stop)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        log_event(LogLevel.INFO, "stopping", signal=signal.Signals(number).name)
        self.service.is_stopping = True
        self.handle_exit(number, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            log_event(LogLevel.INFO, "listening", url=url_of(listening))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.is_stopping = True
        end = time.monotonic() + (self.config.timeout_graceful_shutdown or 0)
        connections, accepted = self.server_state.connections, list(self.server_state.tasks)
        for cycle in filter(None, (getattr(connection, "cycle", None) for connection in connections)):
            cycle.keep_alive = False
        await self._wait(lambda: all(task.done() for task in accepted), end)
        waiting = [each for listening in sockets or () for each in _accept_all(listening)]
        for server in self.servers:  # resets the connections that are not accepted
            server.close()
        state: dict[str, Any] = {"server_state": self.server_state, "app_state": self.lifespan.state}
        protocol = partial(cast(Any, self.config.http_protocol_class), config=self.config, **state)
        for each in waiting:
            await asyncio.get_running_loop().connect_accepted_socket(protocol, each)
        await self._wait(lambda: not connections, min(end, time.monotonic() + DRAIN))
        self.config.timeout_graceful_shutdown = max(0, round(end - time.monotonic()))
        await super().shutdown(sockets)
        for connection in list(connections):
            connection.transport.abort()
        await asyncio.sleep(TICK)  # uvloop would wait for ever for connections that are not closed yet
        log_event(LogLevel.INFO, "stopped", requests=self.server_state.total_requests)

    async def _wait(self, is_done: Callable[[], bool], end: float) -> None:
        while not is_done() and time.monotonic() < end and not self.force_exit:
            await asyncio.sleep(TICK)


def _accept_all(listening: socket.socket) -> Iterator[socket.socket]:
    """Yield the connections that the kernel holds for a listening socket."""
    with suppress(OSError):
        listening.setblocking(False)
        while True:
            yield listening.accept()[0]


class _LingeringTransport:
    """A transport that still reads for a while after ``close``, so that the client receives its last response.

    Closing a socket while the client sends would reset the connection, and the response could be lost.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop, self._is_closing = transport, loop, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._is_closing or self._transport.is_closing()

    def close(self) -> None:
        if self.is_closing():
            return
        self._is_closing = True
        try:
            self._transport.write_eof()
            self._transport.resume_reading()
            self._loop.call_later(LINGER, self._transport.close)
        except OSError:  # the client has left
            self._transport.close()


def connection_class(limits: Limits) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with limits on connections and headers, and a timeout for idle connections.

    A new request has to begin every ``limits.read_timeout`` seconds: a client that sends the head of a request byte by
    byte, or does not read its response, is disconnected. A request that is being served has its own limits.
    """

    class Connection(HttpToolsProtocol):
        _head = 0  # bytes since the last request, or since the last part of its body

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            if len(self.connections) >= limits.connections:
                transport.write(_response(503, "too many connections are open; retry later"))
                transport.close()
                return
            super().connection_made(transport)
            self.transport = _LingeringTransport(transport, self.loop)  # type: ignore[assignment]
            self._schedule_check()

        def connection_lost(self, exc: Exception | None) -> None:
            if self.transport is not None:
                self._next_check.cancel()
                super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            self._head += len(data)
            super().data_received(data)
            if self._head > HEAD:
                self._refuse_head()

        def on_headers_complete(self) -> None:
            if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > HEAD:
                self._refuse_head()
                raise ValueError("the head is too large")  # ends the parser
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._head = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._head = 0
            super().on_message_complete()

        def _refuse_head(self) -> None:
            self._refuse(431, f"the headers of a request may have at most {HEAD:,} bytes; send fewer")

        def send_400_response(self, msg: str) -> None:
            self._refuse(400, "the request is not valid HTTP")

        def _refuse(self, status: int, message: str) -> None:
            if self.transport.is_closing():
                return
            if self.cycle is not None and not self.cycle.response_complete:
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            self.transport.write(_response(status, message))
            self.transport.close()

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


def _response(status: int, message: str) -> bytes:
    body, retry = json.dumps({"error": message}), "Retry-After: 1\r\n" if status == 503 else ""
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n{retry}"
    return f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
