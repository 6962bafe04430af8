"""Many clients in one cheap thread: plain sockets and a selector, so that the load costs little of what it measures."""

import selectors
import socket
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import NamedTuple

Address = tuple[str, int]


class Request(NamedTuple):
    """What is sent, and the status that must come back; without one the client leaves and waits for nothing."""

    name: str
    data: bytes
    status: int | None = 200


@dataclass
class Tally:
    """What came back: seconds of each request that was answered with 200, and whatever was not as it must be."""

    seconds: list[float] = field(default_factory=list)
    served: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)


def post(path: str, kind: str, body: bytes, announced: int | None = None) -> bytes:
    """The bytes of a request; ``announced`` is a length that is only promised."""
    length = len(body) if announced is None else announced
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    return head.encode() + body


class Client:
    """One connection that sends a request as soon as the last one is answered."""

    def __init__(self, address: Address, requests: Iterator[Request], tally: Tally) -> None:
        self.address, self.requests, self.tally = address, requests, tally
        self.socket: socket.socket | None = None

    def send(self, selector: selectors.BaseSelector) -> None:
        """Send the next request that has an answer, after all that have none."""
        for request in self.requests:
            opened = self._open(selector)
            self.request, self.received, self.begun = request, b"", time.perf_counter()
            opened.sendall(request.data)
            if request.status is not None:
                return
            self.close(selector)
            self.tally.served[request.name] += 1

    def receive(self, selector: selectors.BaseSelector) -> None:
        assert self.socket is not None
        try:
            part = self.socket.recv(1 << 16)
        except ConnectionError as error:
            return self._note(selector, type(error).__name__)
        if not part:
            return self._note(selector, "closed without an answer")
        self.received += part
        if (status := complete(self.received)) is not None:
            self._note(selector, status)
        return None

    def close(self, selector: selectors.BaseSelector) -> None:
        if self.socket is not None:
            selector.unregister(self.socket)
            self.socket.close()
            self.socket = None

    def _open(self, selector: selectors.BaseSelector) -> socket.socket:
        if self.socket is None:
            self.socket = socket.create_connection(self.address, timeout=30)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(self.socket, selectors.EVENT_READ, self)
        return self.socket

    def _note(self, selector: selectors.BaseSelector, status: int | str) -> None:
        if status == self.request.status:
            if status == 200:
                self.tally.seconds.append(time.perf_counter() - self.begun)
            self.tally.served[self.request.name] += 1
        else:
            self.tally.wrong[f"{self.request.name}: {status}"] += 1
        if status != 200:  # a refused request may not have been sent whole
            self.close(selector)
        self.send(selector)


def complete(received: bytes) -> int | None:
    """The status of an answer, if all of it is there."""
    head, separator, body = received.partition(b"\r\n\r\n")
    if not separator:
        return None
    lower = head.lower()
    at = lower.index(b"content-length:") + 15
    length = int(lower[at:].partition(b"\r\n")[0])
    return int(head[9:12]) if len(body) >= length else None


def load(address: Address, requests: list[Request], clients: int, seconds: float) -> Tally:
    """Let clients ask for so many seconds, each one thing after the other."""
    tally, end = Tally(), time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        all_clients = [Client(address, islice(cycle(requests), offset, None), tally) for offset in range(clients)]
        for client in all_clients:
            client.send(selector)
        while time.monotonic() < end:
            for key, _ in selector.select(1.0):
                key.data.receive(selector)
        for client in all_clients:
            client.close(selector)
    return tally
