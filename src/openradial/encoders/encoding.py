"""Encode many inputs: those in the cache are read, the others are prepared by threads ahead of the network."""

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from openradial.data.inputs.base import in_parts
from openradial.data.progress import bar
from openradial.data.workers import default_workers
from openradial.encoders.cache import FeatureCache, Key
from openradial.encoders.registry import Encoder
from openradial.errors import DataError

BATCH = {"images": 32, "texts": 256}
SAVED = 1024  # inputs after which features are written to the disk: an interrupted run continues there
Prepared = tuple[list[int], Tensor]  # indices of inputs, and the inputs


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
    with ThreadPoolExecutor(default_workers()) as pool:
        keys = list(pool.map(_key, inputs))
        rows = {} if cache is None else cache.read(keys)
        # equal inputs are encoded once; texts of similar length together
        first = {key: i for i, key in reversed(list(enumerate(keys))) if key not in rows}
        missing = sorted(first.values(), key=(lambda i: len(inputs[i])) if kind == "texts" else None)
        with bar("encoding", len(missing), unit=kind) as advance:
            batches = _prepared(encoder, inputs, in_parts(missing, BATCH[kind]), skip_broken, pool)
            for part in in_parts(batches, SAVED // BATCH[kind]):
                encoded: dict[Key, Tensor] = {}
                for indices, x in part:
                    encoded |= zip((keys[i] for i in indices), encoder.features(x), strict=True)
                    advance(len(indices))
                rows |= encoded
                if cache is not None:
                    cache.write(encoded)
    kept = [i for i, key in enumerate(keys) if key in rows]
    features = (
        torch.stack([rows[keys[i]] for i in kept])
        if kept
        else torch.empty(0, encoder.num_features + encoder.num_middle)
    )
    return features, torch.tensor(kept, dtype=torch.int64)


def _prepared(
    encoder: Encoder, inputs: Sequence[Any], batches: Iterator[list[int]], skip_broken: bool, pool: ThreadPoolExecutor
) -> Iterator[Prepared]:
    """Yield batches of prepared inputs; threads prepare the next ones meanwhile."""
    ahead: deque[Future[list[Prepared]]] = deque()
    for indices in batches:
        ahead.append(pool.submit(_prepare, encoder, inputs, indices, skip_broken))
        if len(ahead) > default_workers():
            yield from ahead.popleft().result()
    for future in ahead:
        yield from future.result()


def _prepare(encoder: Encoder, inputs: Sequence[Any], indices: list[int], skip_broken: bool) -> list[Prepared]:
    """Return a batch; if an input is broken and may be skipped, the others one by one."""
    try:
        return [(indices, encoder.inputs.ready([inputs[i] for i in indices]))]
    except DataError:
        if not skip_broken:
            raise
    return [each for i in indices for each in _prepare(encoder, inputs, [i], True)] if len(indices) > 1 else []


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
