"""Features on disk by the content of an input and the encoder. Bounded, and safe with several processes.

Each write makes one new file, renamed when it is complete, so no process ever reads half of one or changes one.
"""

import os
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from openradial.errors import OptionError
from openradial.files import Failure, cache_home, read_tensors, write_tensors

MOST = 4 * 2**30  # bytes of all features; OPENRADIAL_FEATURES sets another number of megabytes
ENDING = ".features"
Key = bytes  # SHA-256 of the content


class FeatureCache:
    """The features of one encoder; ``key`` is :attr:`openradial.encoders.Encoder.key`."""

    def __init__(self, key: str, folder: Path | None = None) -> None:
        self.root = features_folder() if folder is None else folder
        self.folder = self.root / key

    def read(self, keys: Iterable[Key]) -> dict[Key, Tensor]:
        """Return the features of those inputs that are in the cache."""
        wanted, rows = set(keys), dict[Key, Tensor]()
        for path in sorted(self.folder.glob(f"*{ENDING}")):
            try:
                tensors, _ = read_tensors(path)
                names, features = tensors["keys"].numpy(), tensors["features"]
                os.utime(path)  # the file that was not used for longest is removed first
            except (*Failure, KeyError):  # damaged, or removed by another process
                with suppress(OSError):
                    path.unlink()
                continue
            rows |= {key: features[i] for i, key in enumerate(map(bytes, names)) if key in wanted}
        return rows

    def write(self, keys: Sequence[Key], features: Tensor) -> None:
        """Add features; a disk that cannot be written to makes the next run slower, and is no error."""
        if not keys:
            return
        names = torch.from_numpy(np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), -1).copy())
        with suppress(*Failure):
            path = self.folder / f"{secrets.token_hex(8)}{ENDING}"
            write_tensors(path, {"keys": names, "features": features}, {})
            trim(self.root, most_bytes())


def features_folder() -> Path:
    """Return the folder of all features."""
    return cache_home() / "features"


def most_bytes() -> int:
    """Return how many bytes the features of all encoders may have."""
    given = os.environ.get("OPENRADIAL_FEATURES")
    if given and not given.isdecimal():
        raise OptionError(f"OPENRADIAL_FEATURES must be a whole number of megabytes, got {given!r}")
    return int(given) * 2**20 if given else MOST


def usage(root: Path | None = None) -> dict[str, tuple[int, int]]:
    """Return the number of files and of bytes by encoder."""
    found: dict[str, tuple[int, int]] = {}
    for path, size, _ in _files(features_folder() if root is None else root):
        count, total = found.get(path.parent.name, (0, 0))
        found[path.parent.name] = count + 1, total + size
    return found


def trim(root: Path, most: int) -> None:
    """Remove the files that were not used for longest until the others have at most ``most`` bytes."""
    files = sorted(_files(root), key=lambda file: -file[2])
    total = 0
    for path, size, _ in files:
        total += size
        if total > most:
            with suppress(OSError):
                path.unlink()


def _files(root: Path) -> Iterable[tuple[Path, int, float]]:
    """Yield path, bytes and time of the last use of each file."""
    for path in sorted(root.glob(f"*/*{ENDING}")):
        with suppress(OSError):  # removed by another process
            state = path.stat()
            yield path, state.st_size, state.st_mtime
