"""Connections that nobody can hold open for nothing."""

import asyncio
import json

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from openradial.server.limits import Limits

SENTENCE = "too many connections are open; ask again later"


def connection_class(limits: Limits) -> type[asyncio.Protocol]:
    """uvicorn's protocol, which also ends connections that are one too many or on which nothing happens.

    Something has to begin within ``limits.reading`` seconds, again and again: a client that sends the head of a request
    letter by letter, or does not fetch its answer, is cut off. A request that is being served has limits of its own.
    """

    class Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        def connection_made(self, transport: asyncio.Transport) -> None:
            if len(self.connections) >= limits.connections:
                transport.write(_too_many())
                transport.close()
                return
            super().connection_made(transport)
            self._look_again()

        def connection_lost(self, exc: Exception | None) -> None:
            if self.transport is not None:
                self._next_look.cancel()
                super().connection_lost(exc)

        def _look_again(self) -> None:
            self._seen = self.cycle
            self._next_look = self.loop.call_later(limits.reading, self._look)

        def _look(self) -> None:
            is_idle = self.cycle is None or self.cycle.response_complete
            if is_idle and self.cycle is self._seen:
                self.transport.abort()
            else:
                self._look_again()

    return Connection


def _too_many() -> bytes:
    body = json.dumps({"error": SENTENCE})
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n"
    )
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
