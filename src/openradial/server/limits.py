"""What the service takes at most."""

from dataclasses import dataclass, fields

from openradial.errors import OptionError, check_count, check_positive


@dataclass(frozen=True)
class Limits:
    """Each limit protects the service from one kind of request; what is beyond it is refused with a sentence.

    Args:
        body: bytes of a request.
        pixels: of one image, told from its header before anything is decoded.
        items: inputs of a request.
        steps: of a sequence, or words of a text.
        queue: inputs that wait for the model, of all requests together.
        batch: inputs that go through the model together.
        delay: milliseconds that a request waits for others, and only while others come.
        memory: bytes of all requests that are being read or wait, together.
        connections: of all clients together.
        reading: seconds that a client has to send its request.
        waiting: seconds that an answer may take.
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
    reading: float = 20.0
    waiting: float = 60.0

    def __post_init__(self) -> None:
        for each in fields(self):
            if each.type is int:
                check_count(each.name, getattr(self, each.name))
        for name in ("reading", "waiting"):
            check_positive(name, getattr(self, name))
        if not 0 <= self.delay < float("inf"):
            raise OptionError(f"delay must be a number of milliseconds, at least 0, got {self.delay!r}")
        if self.body > self.memory:
            raise OptionError(
                f"the memory must have room for one request: {self.body:,} bytes but {self.memory:,} for all; "
                "raise memory or lower body"
            )
        if self.items > self.queue:
            raise OptionError(
                f"the queue must have room for one request: {self.items} items but a queue of {self.queue}; "
                "raise queue or lower items"
            )
