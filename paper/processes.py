"""Run several experiments at the same time, each in a process."""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, TextIO, cast

import torch

from openradial.errors import OpenRadialError, TrainingError
from paper.plan import Plan, ignore
from paper.progress import bar

Run = Callable[[str, Plan], None]
TRIM_THRESHOLD, MMAP_MAX = -1, -4  # of glibc's malloc.h
_notes: Any = None  # in a worker: the queue to the parent process


def run_in_processes(run: Run, ids: Sequence[str], plan: Plan) -> dict[str, str]:
    """Run experiments by id, ``plan.jobs`` at a time, and return the messages of those that failed."""
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads may deadlock
    jobs = min(plan.jobs, len(ids))
    alive, parent_end = context.Pipe(duplex=False)
    failures: dict[str, str] = {}
    with _forwarded(context.Queue(), plan) as notes, bar("experiments", len(ids)) as advance:
        start = (notes, alive, max(1, torch.get_num_threads() // jobs))
        with ProcessPoolExecutor(jobs, context, _start_worker, start) as pool:
            running = {pool.submit(_work, run, id, replace(plan, listener=ignore)): id for id in ids}
            try:
                for done in as_completed(running):
                    failures |= _conclude(done, running[done], plan)
                    advance(1)
            except BaseException:
                parent_end.close()  # else leaving the pool would wait for the workers
                raise
    return {id: failures[id] for id in ids if id in failures}


def _conclude(done: Future[None], id: str, plan: Plan) -> dict[str, str]:
    try:
        done.result()
    except OpenRadialError as error:
        return {id: str(error)}
    except BrokenProcessPool as error:
        raise TrainingError(
            "a worker process was killed, perhaps for lack of memory; continue with --resume, perhaps with fewer --jobs"
        ) from error
    plan.note(f"{id}: finished")
    return {}


@contextmanager
def _forwarded(notes: Any, plan: Plan) -> Iterator[Any]:
    """Forward the notes of the workers while they run."""

    def listen() -> None:
        while (text := notes.get()) is not None:
            plan.note(text)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    patience = 2.0  # seconds; a worker that was killed while writing leaves the queue locked
    try:
        yield notes
        patience = 60.0  # all workers ended normally, so their last notes will arrive
    finally:
        notes.put(None)
        listener.join(timeout=patience)
        notes.close()
        notes.cancel_join_thread()


def _start_worker(notes: Any, alive: Any, threads: int) -> None:
    global _notes
    _notes = notes
    _keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes; the parent decides
    torch.set_num_threads(threads)
    sys.stderr = cast(TextIO, _NoTerminal(sys.stderr))
    threading.Thread(target=_end_with_parent, args=(alive,), daemon=True).start()


def _end_with_parent(alive: Any) -> None:
    """Exit when the parent closes its end of the pipe or is killed; the worker would wait forever otherwise."""
    with suppress(EOFError):
        alive.recv()
    os._exit(1)


def _work(run: Run, id: str, plan: Plan) -> None:
    run(id, replace(plan, listener=_Note(id)))


@dataclass(frozen=True)
class _Note:
    id: str

    def __call__(self, text: str) -> None:
        _notes.put(f"{self.id}: {text}")


class _NoTerminal:
    """Error stream that is no terminal: the progress bars of several processes would overwrite each other."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def isatty(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next step: returning and requesting it takes a fifth of the training time."""
    with suppress(OSError, AttributeError, TypeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(MMAP_MAX, 0)
