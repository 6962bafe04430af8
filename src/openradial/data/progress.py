"""Progress bars for whatever may take longer than two seconds."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

Advance = Callable[[int], None]


@contextmanager
def bar(title: str, total: int | None, *, unit: str = "") -> Iterator[Advance]:
    """Show a bar on the error stream and yield the function that advances it.

    ``unit="bytes"`` shows sizes and rates. Where nobody watches (no terminal) or rich is missing, nothing is shown.

    >>> with bar("counting", total=3) as advance:
    ...     for _ in range(3):
    ...         advance(1)
    """
    if not (sys.stderr.isatty() and find_spec("rich")):
        yield lambda amount: None
        return
    from rich import progress
    from rich.console import Console

    amount = (
        (progress.DownloadColumn(), progress.TransferSpeedColumn())
        if unit == "bytes"
        else (progress.MofNCompleteColumn(), progress.TextColumn(unit))
    )
    columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), *amount, progress.TimeRemainingColumn())
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(title, total=total)
        yield lambda done: shown.advance(task, done)
