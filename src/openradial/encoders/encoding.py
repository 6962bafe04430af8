"""Encode many inputs: those in the cache are read, the others are encoded by one thread per core."""

import hashlib
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from openradial.data.inputs.base import in_parts
from openradial.data.progress import bar, current
from openradial.encoders.cache import FeatureCache, Key
from openradial.encoders.registry import Encoder
from openradial.errors import DataError
from openradial.scorers.base import limited_threads

BATCH = {"images": 32, "texts": 256}
HASHED = 64  # inputs that a thread hashes at a time
SAVED = 1024  # inputs after which features are written to the disk: a run that was killed continues there
Raw = Sequence[Any] | Tensor
EncodedBatch = tuple[list[int], Tensor]  # indices of inputs, and their features
_alone = Lock()  # how many threads torch uses is one number for the whole process


def encode(
    encoder: Encoder, inputs: Raw, *, cache: FeatureCache | None = None, skip_broken: bool = False, quiet: bool = False
) -> tuple[Tensor, Tensor]:
    """Return features ``(n, d)``, and which inputs they belong to: all, except broken ones that are skipped.

    Args:
        encoder: see :func:`load`.
        inputs: texts, image files as ``Path``, or arrays of pixels; without a cache, all that ``encoder.inputs`` takes.
        cache: where features are kept; None for nowhere.
        skip_broken: leave out inputs that cannot be read instead of raising.
        quiet: show no progress bar.
    """
    kind, is_raw = encoder.inputs.kind, not isinstance(inputs, Tensor)
    width = encoder.num_features + encoder.num_middle
    with _alone, ThreadPoolExecutor(threads := torch.get_num_threads()) as pool:
        keys, rows = [i.to_bytes(8) for i in range(len(inputs))], dict[Key, Tensor]()
        if cache is not None:
            hashed = pool.map(lambda part: list(map(_key, part)), in_parts(inputs, HASHED))
            keys = [key for part in hashed for key in part]
            rows = {key: z for key, z in cache.read(keys).items() if len(z) == width}  # others are damaged
        # equal inputs are encoded once; texts of similar length together
        first = {key: i for i, key in reversed(list(enumerate(keys))) if key not in rows}
        missing = sorted(first.values(), key=(lambda i: len(str(inputs[i]))) if kind == "texts" and is_raw else None)
        workers = max(1, min(threads, len(missing)))
        batches = in_parts(missing, min(BATCH[kind], math.ceil(len(missing) / workers)))
        current().total -= len(inputs) - len(missing)  # if this is a stage of a run
        shown = nullcontext(lambda done: None) if quiet else bar("encoding", len(missing), unit=kind)
        with limited_threads(threads // workers), shown as advance:
            new: dict[Key, Tensor] = {}
            try:
                for indices, z in _encoded(partial(_encode, encoder, inputs, skip_broken), batches, pool, workers):
                    new |= zip((keys[i] for i in indices), z, strict=True)
                    advance(len(indices))
                    if cache is not None and len(new) >= SAVED:
                        cache.write(new)
                        rows, new = rows | new, {}
            finally:  # also after Ctrl-C
                if cache is not None and new:
                    cache.write(new)
            rows |= new
    kept = [i for i, key in enumerate(keys) if key in rows]
    features = torch.stack([rows[keys[i]] for i in kept]) if kept else torch.empty(0, width)
    return features, torch.tensor(kept, dtype=torch.int64)


def _encoded(
    encode: Callable[[list[int]], list[EncodedBatch]],
    batches: Iterator[list[int]],
    pool: ThreadPoolExecutor,
    workers: int,
) -> Iterator[EncodedBatch]:
    """Yield batches of features in order; threads work on the next ones meanwhile, or if one is enough this one."""
    if workers == 1:
        yield from (each for indices in batches for each in encode(indices))
        return
    ahead: deque[Future[list[EncodedBatch]]] = deque()
    try:
        for indices in batches:
            ahead.append(pool.submit(encode, indices))
            if len(ahead) > 2 * workers:
                yield from ahead.popleft().result()
        for future in ahead:
            yield from future.result()
    finally:  # after Ctrl-C nothing more is begun
        for future in ahead:
            future.cancel()


def _encode(encoder: Encoder, inputs: Raw, skip_broken: bool, indices: list[int]) -> list[EncodedBatch]:
    """Return the features of a batch; if an input is broken and may be skipped, those of the others one by one."""
    try:
        raw = inputs[indices] if isinstance(inputs, Tensor) else [inputs[i] for i in indices]
        return [(indices, encoder.features(raw))]
    except DataError:
        if not skip_broken:
            raise
    return [each for i in indices for each in _encode(encoder, inputs, True, [i])] if len(indices) > 1 else []


def _key(raw: Any) -> Key:
    """Return the SHA-256 of the content of a text, a file or an array."""
    if isinstance(raw, np.ndarray):
        raw = str(raw.shape).encode() + raw.tobytes()
    elif isinstance(raw, Path):
        try:
            raw = raw.read_bytes()
        except OSError:  # the reader of images says what is wrong
            raw = str(raw)
    return hashlib.sha256(raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogatepass")).digest()
