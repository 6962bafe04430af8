"""Progress of whatever may take longer than two seconds: bars in a terminal, else a line every few seconds."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Event, Thread

FIRST, PAUSE = 2.0, 10.0  # seconds until the first line, and between two
Advance = Callable[[int], None]


@contextmanager
def bar(title: str, total: int | None, *, unit: str = "") -> Iterator[Advance]:
    """Show a bar on the error stream and yield the function that advances it; None is an unknown total.

    ``unit="bytes"`` shows sizes and rates. Without a terminal, or without rich, lines are printed instead.

    >>> with bar("counting", total=3) as advance:
    ...     for _ in range(3):
    ...         advance(1)
    """
    if not (sys.stderr.isatty() and find_spec("rich")):
        with _lines(title, total, unit) as advance:
            yield advance
        return
    from rich import progress
    from rich.console import Console
    from rich.text import Text

    class Speed(progress.ProgressColumn):
        def render(self, task: progress.Task) -> Text:
            return Text(f"{unit}, {task.speed:,.1f} per second" if task.speed else unit)

    amount = (
        (progress.DownloadColumn(), progress.TransferSpeedColumn())
        if unit == "bytes"
        else (progress.MofNCompleteColumn(), Speed())
    )
    columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), *(amount if total else ()))
    columns += (progress.TimeRemainingColumn() if total else progress.TimeElapsedColumn(),)
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(title, total=total)
        yield lambda done: shown.advance(task, done)


def clock(seconds: float) -> str:
    """Return a duration as minutes and seconds, or with hours.

    >>> clock(75), clock(3700)
    ('1:15', '1:01:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


@contextmanager
def _lines(title: str, total: int | None, unit: str) -> Iterator[Advance]:
    """Print how much is done and how long the rest takes, from another thread."""
    done, began, is_over = 0, time.monotonic(), Event()

    def advance(amount: int) -> None:
        nonlocal done
        done += amount

    def write() -> None:
        pause = FIRST
        while not is_over.wait(pause):
            pause, seconds = PAUSE, time.monotonic() - began
            amount = f"{done:,} of {total:,} {unit}".rstrip() if total else clock(seconds)
            rate = f", {done / seconds:,.1f} per second" if total and done and unit else ""
            left = f"{rate}, {clock(seconds / done * (total - done))} left" if total and done else ""
            sys.stderr.write(f"{title}: {amount}{left}\n")

    thread = Thread(target=write, daemon=True)
    thread.start()
    try:
        yield advance
    finally:
        is_over.set()
        thread.join()
