"""Encode many inputs: those in the cache are read, the others are encoded by one thread per core."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from openradial.data.inputs.base import in_parts
from openradial.data.progress import bar
from openradial.data.workers import limited_threads
from openradial.encoders.cache import FeatureCache, Key
from openradial.encoders.registry import Encoder
from openradial.errors import DataError

BATCH = {"images": 32, "texts": 256}
HASHED = 64  # inputs that a thread hashes at a time
SAVED = 1024  # inputs after which features are written to the disk: an interrupted run continues there
EncodedBatch = tuple[list[int], Tensor]  # indices of inputs, and their features


def encode(
    encoder: Encoder, inputs: Sequence[Any], *, cache: FeatureCache | None = None, skip_broken: bool = False
) -> tuple[Tensor, Tensor]:
    """Return features ``(n, d)``, and which inputs they belong to: all, except broken ones that are skipped.

    Args:
        encoder: see :func:`load`.
        inputs: texts, image files as ``Path``, or arrays of pixels.
        cache: where features are kept; None for nowhere.
        skip_broken: leave out inputs that cannot be read instead of raising.
    """
    kind = encoder.inputs.kind
    workers = torch.get_num_threads()
    with limited_threads(1), ThreadPoolExecutor(workers) as pool:
        keys = [key for part in pool.map(lambda part: list(map(_key, part)), in_parts(inputs, HASHED)) for key in part]
        rows = {} if cache is None else cache.read(keys)
        # equal inputs are encoded once; texts of similar length together
        first = {key: i for i, key in reversed(list(enumerate(keys))) if key not in rows}
        missing = sorted(first.values(), key=(lambda i: len(inputs[i])) if kind == "texts" else None)
        with bar("encoding", len(missing), unit=kind) as advance:
            one = partial(_encode, encoder, inputs, skip_broken)
            batches = _encoded(one, in_parts(missing, BATCH[kind]), pool, workers)
            for part in in_parts(batches, SAVED // BATCH[kind]):
                encoded: dict[Key, Tensor] = {}
                for indices, z in part:
                    encoded |= zip((keys[i] for i in indices), z, strict=True)
                    advance(len(indices))
                rows |= encoded
                if cache is not None:
                    cache.write(encoded)
    kept = [i for i, key in enumerate(keys) if key in rows]
    width = encoder.num_features + encoder.num_middle
    features = torch.stack([rows[keys[i]] for i in kept]) if kept else torch.empty(0, width)
    return features, torch.tensor(kept, dtype=torch.int64)


def _encoded(
    encode: Callable[[list[int]], list[EncodedBatch]],
    batches: Iterator[list[int]],
    pool: ThreadPoolExecutor,
    workers: int,
) -> Iterator[EncodedBatch]:
    """Yield batches of features in order; threads work on the next ones meanwhile."""
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


def _encode(encoder: Encoder, inputs: Sequence[Any], skip_broken: bool, indices: list[int]) -> list[EncodedBatch]:
    """Return the features of a batch; if an input is broken and may be skipped, those of the others one by one."""
    try:
        return [(indices, encoder.features([inputs[i] for i in indices]))]
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
