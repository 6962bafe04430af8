"""Several experiments at the same time, each in a process of its own."""

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

from openradial.data.progress import bar
from openradial.errors import OpenRadialError, TrainingError
from paper.plan import Plan, unheard

Run = Callable[[str, Plan], None]
TRIM_THRESHOLD, MMAP_MAX = -1, -4  # of glibc's malloc.h
_notes: Any = None  # in a worker: the queue to the process that started it


def run_in_processes(run: Run, ids: Sequence[str], plan: Plan) -> dict[str, str]:
    """Run experiments by id, ``plan.jobs`` at a time; the messages of those that failed."""
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads may stand still
    jobs = min(plan.jobs, len(ids))
    alive, ours = context.Pipe(duplex=False)
    failures: dict[str, str] = {}
    with _heard(context.Queue(), plan) as notes, bar("experiments", len(ids)) as advance:
        start = (notes, alive, max(1, torch.get_num_threads() // jobs))
        with ProcessPoolExecutor(jobs, context, _start_worker, start) as pool:
            running = {pool.submit(_work, run, id, replace(plan, listener=unheard)): id for id in ids}
            try:
                for done in as_completed(running):
                    failures |= _conclude(done, running[done], plan)
                    advance(1)
            except BaseException:
                ours.close()  # else leaving the pool would wait until all is computed
                raise
    return {id: failures[id] for id in ids if id in failures}


def _conclude(done: Future[None], id: str, plan: Plan) -> dict[str, str]:
    try:
        done.result()
    except OpenRadialError as error:
        return {id: str(error)}
    except BrokenProcessPool as error:
        raise TrainingError(
            "a process that ran experiments was ended from outside, perhaps for lack of memory; "
            "go on with --resume, perhaps with fewer --jobs"
        ) from error
    plan.note(f"{id}: finished")
    return {}


@contextmanager
def _heard(notes: Any, plan: Plan) -> Iterator[Any]:
    """Pass on what the workers note while they run."""

    def listen() -> None:
        while (text := notes.get()) is not None:
            plan.note(text)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    patience = 2.0  # seconds; a worker that was ended while it wrote leaves the queue locked for ever
    try:
        yield notes
        patience = 60.0  # all have ended by themselves, so the last notes do come
    finally:
        notes.put(None)
        listener.join(timeout=patience)
        notes.close()
        notes.cancel_join_thread()


def _start_worker(notes: Any, alive: Any, threads: int) -> None:
    global _notes
    _notes = notes
    _keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent decides
    torch.set_num_threads(threads)
    sys.stderr = cast(TextIO, _NoTerminal(sys.stderr))
    threading.Thread(target=_end_with_parent, args=(alive,), daemon=True).start()


def _end_with_parent(alive: Any) -> None:
    """End this process when its parent closes the other end of the pipe, or is killed: else it would wait for ever."""
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
    """The error stream without progress bars: those of several processes would draw over each other."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def isatty(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _keep_freed_memory() -> None:
    """Let glibc keep what is freed for the next step; given back and asked for again it costs a fifth of a training."""
    with suppress(OSError, AttributeError, TypeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(MMAP_MAX, 0)
