"""Decode complete batches of image files in worker processes, into memory that they share with this one."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from openradial.data.readers.images import centre_box, cut, read_bytes
from openradial.errors import DataError, OptionError, check_choice, check_count

PREFETCH = 2  # batches that each worker decodes ahead


@dataclass(frozen=True)
class View:
    """The part of an image to keep: its centre."""

    size: int
    channels: int = 3
    crop: float = 1.0

    def __post_init__(self) -> None:
        check_count("size", self.size)
        check_choice("channels", str(self.channels), ("1", "3"))
        if not 0 < self.crop <= 1:
            wanted = "the share of the short side to keep, above 0 and at most 1"
            raise OptionError(f"crop must be {wanted}, got {self.crop}")


class Outcome(NamedTuple):
    """Reasons of broken files and kinds of files that were converted, by index in the batch."""

    broken: dict[int, str]
    kinds: dict[int, str]


class _Decoder(Dataset[Outcome]):
    """Decodes the request of a slot into that slot of the shared memory."""

    def __init__(self, slots: Tensor, view: View) -> None:
        self.slots, self.view = slots, view  # (slots, n, c, size, size)

    def __getitem__(self, job: tuple[int, list[str]]) -> Outcome:
        slot, paths = job
        targets, outcome, view = self.slots[slot].numpy(), Outcome({}, {}), self.view
        for i, path in enumerate(paths):
            try:
                pixels, kind = cut(read_bytes(path), view.size, partial(centre_box, crop=view.crop), view.channels)
            except DataError as error:
                outcome.broken[i] = error.reason
                continue
            np.copyto(targets[i], pixels.transpose(2, 0, 1))
            if kind != "RGB":
                outcome.kinds[i] = kind
        return outcome


def default_workers() -> int:
    """Return one worker per core that this process may use, at most 8."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8, cores)


def decode(
    requests: Iterable[list[str]], view: View, batch_size: int, *, workers: int
) -> Iterator[tuple[Tensor, Outcome]]:
    """Yield for each list of paths, in order, its images ``(n, c, size, size)`` uint8 and the outcome.

    The tensor is only valid until the next one is requested: its memory is reused. Rows of broken files are
    undefined. Workers end with the iteration, however it ends.
    """
    check_count("workers", workers, least=0)
    count = workers * PREFETCH + 1  # those in progress, and the one that the caller reads
    slots = torch.empty(count, batch_size, view.channels, view.size, view.size, dtype=torch.uint8)
    if workers:
        slots.share_memory_()  # type: ignore[no-untyped-call]
    decoder = _Decoder(slots, view)
    sizes: list[int] = []

    def jobs() -> Iterator[tuple[int, list[str]]]:
        for number, paths in enumerate(requests):
            sizes.append(len(paths))
            yield number % count, paths

    outcomes = _in_processes(decoder, jobs(), workers) if workers else map(decoder.__getitem__, jobs())
    for number, outcome in enumerate(outcomes):
        yield slots[number % count, : sizes[number]], outcome


def _in_processes(decoder: _Decoder, jobs: Iterable[tuple[int, list[str]]], workers: int) -> Iterator[Outcome]:
    options: dict[str, Any] = {"num_workers": workers, "prefetch_factor": PREFETCH}
    # a separate generator leaves the random numbers of the training unchanged
    loader = DataLoader(decoder, batch_size=None, sampler=jobs, generator=torch.Generator(), **options)
    try:
        yield from loader
    except RuntimeError as error:
        if "DataLoader worker" not in str(error) or "Caught" in str(error):
            raise
        message = f"a process that decodes images ended unexpectedly ({str(error).splitlines()[0]})"
        way_out = "often memory ran out: use fewer workers or smaller batches, or workers=0 to decode in this process"
        raise DataError(f"{message}; {way_out}") from error
