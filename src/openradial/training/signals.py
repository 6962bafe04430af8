"""Being asked to stop: SIGINT and SIGTERM become a wish that the loop fulfils after the current batch."""

import signal as signals
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signals.SIGINT, signals.SIGTERM)


class Wish:
    """Which signal asked to stop, if any."""

    signal: signals.Signals | None = None


@contextmanager
def wish_to_stop() -> Iterator[Wish]:
    """Listen for SIGINT and SIGTERM. The second SIGINT stops at once, as usual."""
    wish = Wish()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may listen
        yield wish
        return

    def remember(number: int, frame: FrameType | None) -> None:
        if wish.signal is not None and number == signals.SIGINT:
            raise KeyboardInterrupt
        wish.signal = signals.Signals(number)

    before = {number: signals.signal(number, remember) for number in STOPPING}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signals.signal(number, handler)
