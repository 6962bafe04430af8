"""Progress of whatever may take longer than two seconds: bars in a terminal, else a line every few seconds."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from threading import Event, Thread

FIRST, PAUSE = 2.0, 10.0  # seconds until the first line, and between two
PRIOR = 0.05  # share of a stage for which its expected seconds count as if they were measured
WIDE = 110  # columns of a terminal that have room for a long bar and the rate
Advance = Callable[[int], None]


class RunProgress:
    """Estimates the time left of a run: of its stage by the pace so far, of later stages by expected seconds."""

    def __init__(self) -> None:
        self.deadline: float | None = None  # by time.monotonic
        self.scope = "in all"
        self.after, self.due = 0.0, time.monotonic() + FIRST  # work after the epochs; when a line is printed
        self.begin(0)

    def begin(self, total: float, pace: float = 0.0, later: float = 0.0) -> None:
        """Begin a stage of so much work, if known with expected seconds per unit of work, and of later stages."""
        self.total, self.done, self.pace, self.later = total, 0.0, pace, later
        self.began = self.last = time.monotonic()
        self.prior = (PRIOR * total * pace, PRIOR * total) if pace else (0.0, 0.0)  # seconds, work

    def advance(self, amount: float) -> None:
        """Count work that is done."""
        if amount:
            self.done, self.last = self.done + amount, time.monotonic()
            self.pace = (self.last - self.began + self.prior[0]) / (self.done + self.prior[1])

    def left(self) -> float | None:
        """Return the seconds until the end, or until the deadline if that is sooner; None if nothing is known."""
        if not (self.pace and self.total):
            return None
        now = time.monotonic()
        rest, waited = max(0.0, self.total - self.done) * self.pace, now - self.last
        rest = max(rest - waited, (rest + waited) / 4) + self.later  # the current step may take longer than expected
        return rest if self.deadline is None else max(0.0, min(rest, self.deadline - now))


_run: ContextVar[RunProgress | None] = ContextVar("run", default=None)


def current() -> RunProgress:
    """Return the run that goes on, or a new one."""
    return _run.get() or RunProgress()


@contextmanager
def whole_run() -> Iterator[None]:
    """Let all bars inside show the time left of one run; inside another run, of that one."""
    token = _run.set(current())
    try:
        yield
    finally:
        _run.reset(token)


@contextmanager
def bar(title: str, total: int | None, *, unit: str = "") -> Iterator[Advance]:
    """Show a bar on the error stream and yield the function that advances it; None is an unknown total.

    The time left is that of the run where it is known. Without a terminal, or without rich, lines are printed instead.

    >>> with bar("counting", total=3) as advance:
    ...     for _ in range(3):
    ...         advance(1)
    """
    run, alone = current(), RunProgress()
    alone.begin(total or 0)
    size, digits, name = (1e6, 1, "MB") if unit == "bytes" else (1, 0, unit)

    def status(has_room: bool = True) -> str:
        done, whole = (f"{each / size:,.{digits}f}" for each in (alone.done, alone.total))
        amount = f"{done} of {whole} {name}".rstrip() if total else clock(time.monotonic() - alone.began)
        rate = f"{1 / alone.pace / size:,.1f} per second" if has_room and total and alone.pace and unit else ""
        if (seconds := run.left()) is not None:
            left = f"about {clock(seconds)} left {run.scope}"
        else:
            left = "" if (seconds := alone.left()) is None else f"{clock(seconds)} left"
        return ", ".join(filter(None, (amount, rate, left)))

    is_terminal = sys.stderr.isatty() and find_spec("rich")
    with _bar(title, total, status) if is_terminal else _lines(title, run, status) as show:

        def advance(amount: int) -> None:
            for each in (alone.advance, run.advance, show):
                each(amount)

        yield advance


def clock(seconds: float) -> str:
    """Return a duration as minutes and seconds, or with hours.

    >>> clock(75), clock(3700)
    ('1:15', '1:01:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


@contextmanager
def _bar(title: str, total: int | None, status: Callable[[bool], str]) -> Iterator[Advance]:
    from rich import progress
    from rich.console import Console
    from rich.text import Text

    class Status(progress.ProgressColumn):
        def render(self, task: progress.Task) -> Text:
            return Text(status(has_room))

    console = Console(stderr=True)
    has_room = console.width >= WIDE
    columns = (progress.TextColumn("{task.description}"), progress.BarColumn(20 if has_room else 6), Status())
    with progress.Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task(title, total=total)
        yield lambda amount: shown.advance(task, amount)


@contextmanager
def _lines(title: str, run: RunProgress, status: Callable[[], str]) -> Iterator[Advance]:
    """Print a line every few seconds, from another thread."""
    is_over = Event()

    def write() -> None:
        while not is_over.wait(max(0.0, run.due - time.monotonic())):
            run.due = time.monotonic() + PAUSE
            sys.stderr.write(f"{title}: {status()}\n")

    thread = Thread(target=write, daemon=True)
    thread.start()
    try:
        yield lambda amount: None
    finally:
        is_over.set()
        thread.join()
