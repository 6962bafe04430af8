"""Near-duplicates of images: copies that were resized or compressed again, found by a perceptual hash."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from openradial.data.examples import Examples
from openradial.data.readers.folder import ImageFolder
from openradial.data.sources import Data
from openradial.errors import OptionError

SIDE = 32  # pixels of the image that is hashed
MOST_BITS = 6  # of 64 that differ between copies; chosen on photographs, see docs/data.md
CHUNK, PAIRS = 1024, 2**22  # images hashed, and hashes compared, at a time
FREQUENCIES = sorted((u * u + v * v, u, v) for u in range(12) for v in range(12))[1:65]  # the lowest but the mean
ONES = np.unpackbits(np.arange(2**16, dtype=np.uint16).view(np.uint8)).reshape(-1, 16).sum(1, dtype=np.uint8)
Hashes = NDArray[np.uint64]


def image_hashes(images: Tensor) -> Hashes:
    r"""Return a hash of each image ``(n, c, h, w)``, of any values: 64 bits as ``(n,)`` uint64.

    The sum of the channels is averaged to :math:`g` of 32 x 32 pixels. Bit :math:`i` is whether
    :math:`\sum_{yx} (g_{yx} - \bar g) \cos \frac{\pi u (y + 1/2)}{32} \cos \frac{\pi v (x + 1/2)}{32} > 0` for the
    :math:`i`-th of the 64 pairs :math:`(u, v) \ne (0, 0)` with the smallest :math:`u^2 + v^2`.
    """
    _, u, v = torch.tensor(FREQUENCIES).T
    waves = torch.cos(math.pi / SIDE * torch.outer(torch.arange(12.0), torch.arange(SIDE) + 0.5).double())
    bits = [torch.empty(0, 64, dtype=torch.bool)]
    for part in torch.split(images, CHUNK):
        grey = adaptive_avg_pool2d(part.double().sum(1), (SIDE, SIDE))
        bits.append((waves @ (grey - grey.mean((1, 2), keepdim=True)) @ waves.T)[:, u, v] > 0)
    return np.packbits(torch.cat(bits).numpy(), axis=1, bitorder="little").view("<u8")[:, 0]


def near_duplicate_groups(images: Tensor | Data, most_bits: int = MOST_BITS) -> Tensor:
    """Return for each image the index of the first one of its group, ``(n,)`` int64.

    Images are in one group if their hashes differ in at most ``most_bits`` bits, also in a chain.
    """
    if not 0 <= most_bits <= 7:  # see _near_pairs
        raise OptionError(f"most_bits must be from 0 to 7, got {most_bits}")
    if isinstance(images, ImageFolder):
        images = images.load(SIDE)
    inputs = images.inputs if isinstance(images, Examples) else images
    assert isinstance(inputs, Tensor)
    hashes, first, codes = np.unique(image_hashes(inputs), return_index=True, return_inverse=True)
    groups = np.arange(len(hashes))
    pairs = np.concatenate([np.empty((2, 0), dtype=np.int64), *_near_pairs(hashes, most_bits)], axis=1)
    while (groups[pairs[0]] != groups[pairs[1]]).any():
        np.minimum.at(groups, groups[pairs].max(0), groups[pairs].min(0))
        groups = groups[groups]
    np.minimum.at(first, groups, first.copy())  # of all hashes of a group
    return torch.from_numpy(first[groups[codes]])


def _near_pairs(hashes: Hashes, most_bits: int) -> Iterator[NDArray[np.int64]]:
    """Yield indices ``(2, pairs)`` of hashes that differ in at most ``most_bits`` bits; each pair at least once.

    One of their four parts of 16 bits then differs in one bit at most, so only hashes with such a part are compared.
    """
    n, parts = len(hashes), hashes[:, None].view(np.uint16)  # (n, 4)
    for keys in parts.T:
        order = np.argsort(keys, kind="stable")
        for flip in (0, *(1 << bit for bit in range(16))):
            start, end = (np.searchsorted(keys[order], keys ^ np.uint16(flip), side) for side in ("left", "right"))
            counts = end - start  # of the hashes to compare with each one
            ends = np.searchsorted(np.cumsum(counts), range(PAIRS, int(counts.sum()), PAIRS))
            for rows in np.split(np.arange(n), ends):
                i, skipped = np.repeat(rows, counts[rows]), np.cumsum(counts[rows]) - counts[rows] - start[rows]
                j = order[np.arange(len(i)) - np.repeat(skipped, counts[rows])]
                is_near = ONES[parts[i] ^ parts[j]].sum(1) <= most_bits
                yield np.stack([i, j])[:, is_near & (i < j)]
