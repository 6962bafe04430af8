"""Batches of a set in memory, or of image files that workers decode: the same order, shares and transforms for both.

The order of an epoch follows from ``(seed, epoch)`` and the random numbers of a batch from ``(seed, epoch, batch,
rank)`` alone: a run that was stopped resumes as if it had not been, and the number of workers changes nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TypedDict, Unpack

import numpy as np
import torch
from torch import Generator, Tensor

from openradial.data.examples import Examples
from openradial.data.readers.folder import ImageFolder
from openradial.data.transforms import Transform
from openradial.data.workers import Outcome, View, decode, default_workers
from openradial.errors import DataError, OptionError, check_count

Batch = tuple[Tensor, Tensor]


def shares(n: int, batch_size: int, *, rank: int = 0, world: int = 1) -> list[slice]:
    """Return which parts of an epoch's order make the batches of one rank.

    All ranks get the same number of batches and together every example once. The rest is shared evenly; a rest with
    less than two examples per rank, which batch normalisation needs, goes into the batches before it.

    >>> shares(10, 4)
    [slice(0, 4, None), slice(4, 8, None), slice(8, 10, None)]
    >>> shares(12, 4, rank=1, world=2)
    [slice(4, 8, None), slice(10, 12, None)]
    """
    step = batch_size * world
    full, rest = divmod(n, step)
    ends = [step * (i + 1) for i in range(full)]
    if rest:
        if rest >= (2 * world if ends else world):
            ends.append(n)
        elif ends:
            ends[-1] = n
        else:
            raise OptionError(f"{n} examples cannot be shared among {world} processes; use at most {n} processes")
    bounds = [(start, end - start) for start, end in zip([0, *ends], ends, strict=False)]
    return [slice(start + m * rank // world, start + m * (rank + 1) // world) for start, m in bounds]


class BatchOptions(TypedDict, total=False):
    """Options of all batches: ``rank`` is this process's part of ``world``; ``transform`` changes each batch last."""

    shuffle: bool
    seed: int
    transform: Transform | None
    rank: int
    world: int


class _Batches(ABC):
    """What both kinds of batches share: the order, the counting of epochs, and transforms."""

    def __init__(
        self,
        labels: Tensor,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        transform: Transform | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        check_count("batch_size", batch_size)
        check_count("seed", seed, least=0)
        check_count("world", world)
        check_count("rank", rank, least=0)
        if rank >= world:
            raise OptionError(f"rank must be below world, the number of processes, got rank {rank} of {world}")
        self.labels, self.batch_size, self.shuffle, self.seed = labels, batch_size, shuffle, seed
        self.transform, self.rank = transform, rank
        self.shares = shares(len(labels), batch_size, rank=rank, world=world)
        self.next_epoch = 0

    def __len__(self) -> int:
        return len(self.shares)

    def __iter__(self) -> Iterator[Batch]:
        """Return the batches of the next epoch, beginning with epoch 0."""
        self.next_epoch += 1
        return self.epoch(self.next_epoch - 1)

    def epoch(self, epoch: int, *, start_batch: int = 0) -> Iterator[Batch]:
        """Return the batches ``(x, y)`` of one epoch, from ``start_batch`` on."""
        check_count("epoch", epoch, least=0)
        check_count("start_batch", start_batch, least=0)
        return self._batches(epoch, start_batch)

    def order(self, epoch: int) -> Tensor | None:
        """Return the order of all examples in one epoch; None if they are not shuffled."""
        if not self.shuffle:
            return None
        return torch.randperm(len(self.labels), generator=_generator(self.seed, epoch))

    def _finish(self, x: Tensor, y: Tensor, epoch: int, batch: int) -> Batch:
        if self.transform is not None:
            x = self.transform(x, _generator(self.seed, epoch, batch, self.rank))
        return x, y

    @abstractmethod
    def _batches(self, epoch: int, start: int) -> Iterator[Batch]: ...


class Batches(_Batches):
    """Batches cut from tensors in memory, with no work per example.

    >>> letters = Examples(torch.arange(5.0).view(5, 1), torch.tensor([0, 1, 0, 1, 0]), ("a", "b"))
    >>> [y.tolist() for x, y in Batches(letters, batch_size=2)]
    [[0, 1], [0, 1, 0]]
    """

    def __init__(self, examples: Examples, batch_size: int, **options: Unpack[BatchOptions]) -> None:
        super().__init__(examples.labels, batch_size, **options)
        self.examples = examples

    def _batches(self, epoch: int, start: int) -> Iterator[Batch]:
        inputs, labels, order = self.examples.inputs, self.labels, self.order(epoch)
        if order is not None:
            order = order.to(inputs.device)
        for batch, share in list(enumerate(self.shares))[start:]:
            if order is None:
                x, y = inputs[share], labels[share]
            else:
                x, y = _rows(inputs, order[share]), labels.index_select(0, order[share].to(labels.device))
            yield self._finish(x, y, epoch, batch)


class FolderBatches(_Batches):
    """Batches of image files, decoded by worker processes ahead of the training.

    The centre of each image is kept, ``crop`` of its short side. A broken file stops the iteration, or with
    ``skip_broken`` is left out and counted in ``broken``.
    """

    def __init__(
        self,
        folder: ImageFolder,
        size: int,
        batch_size: int,
        *,
        channels: int = 3,
        crop: float = 1.0,
        skip_broken: bool = False,
        workers: int | None = None,
        **options: Unpack[BatchOptions],
    ) -> None:
        super().__init__(folder.labels, batch_size, **options)
        self.folder, self.skip_broken = folder, skip_broken
        self.view = View(size, channels, crop)
        self.workers = default_workers() if workers is None else workers
        check_count("workers", self.workers, least=0)
        self.broken: dict[str, str] = {}  # file -> reason

    def _batches(self, epoch: int, start: int) -> Iterator[Batch]:
        order = self.order(epoch)
        indices = [torch.arange(s.start, s.stop) if order is None else order[s] for s in self.shares]
        requests = ([self.folder.paths[i] for i in rows.tolist()] for rows in indices[start:])
        most = max(map(len, indices), default=0)
        for batch, (x, outcome) in enumerate(decode(requests, self.view, most, workers=self.workers), start):
            complete = self._complete(indices[batch], outcome)
            y = self.labels[indices[batch][complete]]
            if len(y):
                # copied because the workers use the memory again; by NumPy, which waits for no thread they keep busy
                copied = torch.from_numpy(x.numpy()[complete.numpy()] if outcome.broken else x.numpy().copy())
                yield self._finish(copied, y, epoch, batch)

    def _complete(self, indices: Tensor, outcome: Outcome) -> Tensor:
        """Return which rows of a batch are images; raise for broken ones unless they are skipped."""
        names = {self.folder.paths[indices[i]]: reason for i, reason in outcome.broken.items()}
        if names and not self.skip_broken:
            name, reason = next(iter(names.items()))
            way_out = "replace it, or leave broken images out with skip_broken=True (--skip-broken)"
            raise DataError(f"the image {reason}; {way_out}; ImageFolder.check finds all of them", path=name)
        self.broken.update(names)
        keep = torch.ones(len(indices), dtype=torch.bool)
        keep[list(outcome.broken)] = False
        return keep


def _rows(inputs: Tensor, indices: Tensor) -> Tensor:
    """Return some rows; of images on the CPU by NumPy, which copies complete rows and waits for no thread."""
    if inputs.dtype == torch.uint8 and inputs.device.type == "cpu":
        return torch.from_numpy(inputs.numpy().take(indices.numpy(), axis=0))
    return inputs.index_select(0, indices)


def _generator(*key: int) -> Generator:
    """Return a generator seeded by the key."""
    seed = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))
    return Generator().manual_seed(seed)
