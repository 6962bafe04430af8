"""Features on disk by the content of an input and the encoder. Bounded, and safe with several processes.

Each write makes one new file, renamed when it is complete, so no process ever reads half of one or changes one.
"""

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor

from openradial.errors import OptionError
from openradial.files import Failure, cache_home, read_tensors, write_tensors

MOST = 4096  # megabytes of all features, unless OPENRADIAL_FEATURES says otherwise
ENDING, FORM = ".features", [(torch.uint8, 2), (torch.float32, 2)]  # of keys and of features
Key = bytes  # SHA-256 of the content


class FeatureCache:
    """The features of one encoder; ``key`` is :attr:`openradial.encoders.Encoder.key`."""

    def __init__(self, key: str) -> None:
        self.folder = features_folder() / key

    def read(self, keys: Iterable[Key]) -> dict[Key, Tensor]:
        """Return the features of those inputs that are in the cache."""
        wanted, rows = set(keys), dict[Key, Tensor]()
        for path in sorted(self.folder.glob(f"*{ENDING}")):
            try:
                tensors, _ = read_tensors(path)
                names, z = tensors["keys"], tensors["features"]
                if [(each.dtype, each.ndim) for each in (names, z)] != FORM or len(names) != len(z):
                    raise KeyError("features of some keys")
                os.utime(path)  # the files that were not used for longest are removed first
            except OSError:  # removed by another process
                continue
            except (SafetensorError, KeyError):  # damaged
                path.unlink(missing_ok=True)
                continue
            rows |= {key: z[i] for i, key in enumerate(map(bytes, names.numpy())) if key in wanted}
        return rows

    def write(self, rows: Mapping[Key, Tensor]) -> None:
        """Add features. A disk that cannot be written to makes the next run slower, and is no error."""
        names = torch.tensor([list(key) for key in rows], dtype=torch.uint8)
        with suppress(*Failure):
            path = self.folder / f"{secrets.token_hex(8)}{ENDING}"
            write_tensors(path, {"keys": names, "features": torch.stack(list(rows.values()))}, {})
            trim(most_bytes())


def features_folder() -> Path:
    """Return the folder of all features."""
    return cache_home() / "features"


def most_bytes() -> int:
    """Return how many bytes the features of all encoders may have."""
    given = os.environ.get("OPENRADIAL_FEATURES") or str(MOST)
    if not given.isdecimal():
        raise OptionError(f"OPENRADIAL_FEATURES must be a whole number of megabytes, got {given!r}")
    return int(given) * 2**20


def cached_files() -> Iterator[tuple[Path, int, float]]:
    """Yield path, bytes and time of the last use of each file; its folder is named by the encoder."""
    for path in sorted(features_folder().glob(f"*/*{ENDING}")):
        with suppress(OSError):  # removed by another process
            state = path.stat()
            yield path, state.st_size, state.st_mtime


def trim(most: int) -> None:
    """Remove the files that were not used for longest until the others have at most ``most`` bytes."""
    total = 0
    for path, size, _ in sorted(cached_files(), key=lambda file: -file[2]):
        total += size
        if total > most:
            path.unlink(missing_ok=True)
