"""Encode many inputs: those in the cache are read, the others are prepared by threads ahead of the network."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from openradial.data.inputs import ImageInputs
from openradial.data.inputs.base import in_parts
from openradial.data.progress import bar
from openradial.data.readers.images import read_bytes
from openradial.data.workers import default_workers
from openradial.encoders.cache import FeatureCache, Key
from openradial.encoders.registry import Encoder
from openradial.errors import DataError

BATCH = {"images": 32, "texts": 256}
SAVED = 1024  # inputs after which features are written to the disk: an interrupted run continues there


def encode(
    encoder: Encoder,
    inputs: Sequence[Any],
    *,
    cache: FeatureCache | None = None,
    skip_broken: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return features ``(n, d)``, and which inputs they belong to: all, except broken ones that are skipped.

    Args:
        encoder: the encoder.
        inputs: texts, paths of image files, or arrays of pixels.
        cache: where features are kept; None for nowhere.
        skip_broken: leave out images that cannot be read instead of raising.
    """
    with ThreadPoolExecutor(default_workers()) as pool:
        try:
            keys = list(pool.map(_key, inputs))
            rows = {} if cache is None else cache.read(keys)
            first = {key: i for i, key in reversed(list(enumerate(keys))) if key not in rows}
            missing = sorted(first.values())
            if not isinstance(encoder.inputs, ImageInputs):
                missing.sort(key=lambda i: len(inputs[i]))  # texts of similar length together
            with bar("encoding", len(missing), unit=encoder.inputs.kind) as advance:
                parts = _encoded(encoder, inputs, missing, pool, skip_broken, advance)
                for part in in_parts(parts, max(1, SAVED // BATCH[encoder.inputs.kind])):
                    found = {keys[i]: row for indices, z in part for i, row in zip(indices, z, strict=True)}
                    rows |= found
                    if cache is not None and found:
                        cache.write(list(found), torch.stack(list(found.values())))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    kept = [i for i, key in enumerate(keys) if key in rows]
    features = torch.stack([rows[keys[i]] for i in kept]) if kept else torch.empty(0, encoder.num_features)
    return features, torch.tensor(kept, dtype=torch.int64)


def _encoded(
    encoder: Encoder,
    inputs: Sequence[Any],
    which: Sequence[int],
    pool: ThreadPoolExecutor,
    skip_broken: bool,
    advance: Callable[[int], None],
) -> Iterator[tuple[list[int], Tensor]]:
    """Yield the indices and features of one batch after the other."""
    for indices, prepared in _prepared(encoder, inputs, which, pool):
        good = [i for i, x in zip(indices, prepared, strict=True) if not isinstance(x, DataError)]
        if len(good) < len(indices) and not skip_broken:
            raise next(x for x in prepared if isinstance(x, DataError))
        if good:
            if isinstance(encoder.inputs, ImageInputs):
                yield good, encoder.features(torch.cat([x for x in prepared if isinstance(x, Tensor)]))
            else:
                yield good, encoder.features([inputs[i] for i in good])
        advance(len(indices))


def _prepared(
    encoder: Encoder, inputs: Sequence[Any], which: Sequence[int], pool: ThreadPoolExecutor
) -> Iterator[tuple[list[int], list[Tensor | DataError | None]]]:
    """Yield batches of indices; images are decoded by threads while the network computes the batch before."""

    def decode(i: int) -> Tensor | DataError | None:
        try:
            return encoder.inputs.prepare([inputs[i]]) if isinstance(encoder.inputs, ImageInputs) else None
        except DataError as error:
            return error

    waiting: list[tuple[list[int], list[Any]]] = []
    for indices in in_parts(which, BATCH[encoder.inputs.kind]):
        waiting.append((indices, [pool.submit(decode, i) for i in indices]))
        if len(waiting) > 2:
            ready, futures = waiting.pop(0)
            yield ready, [future.result() for future in futures]
    for ready, futures in waiting:
        yield ready, [future.result() for future in futures]


def _key(raw: Any) -> Key:
    """Return the SHA-256 of the content of a text, a file or an array."""
    if isinstance(raw, np.ndarray):
        return hashlib.sha256(str(raw.shape).encode() + np.ascontiguousarray(raw).tobytes()).digest()
    if isinstance(raw, Path):
        try:
            return hashlib.sha256(read_bytes(raw)).digest()
        except DataError:
            return hashlib.sha256(f"cannot be read: {raw}".encode()).digest()
    return hashlib.sha256(str(raw).encode("utf-8", "surrogatepass")).digest()
