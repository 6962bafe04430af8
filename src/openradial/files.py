"""Files that are written at once or not at all: text, and tensors as safetensors with text in the header."""

import os
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from openradial.errors import DataError, OpenRadialError

Failure = (OSError, SafetensorError)  # what reading and writing may raise
# what readers raise for damaged contents; SyntaxError is Pillow's word for a broken PNG
DAMAGED = (OSError, EOFError, ValueError, KeyError, SyntaxError, tarfile.TarError, zipfile.BadZipFile, zlib.error)
AGAIN = "remove it to get it again"


def write_text(path: Path, text: str) -> None:
    """Replace a file, so that nobody ever reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        scratch.write_text(text, encoding="utf-8", newline="\n")
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> None:
    """Write a file. Whatever happens meanwhile, the path holds the complete old or new contents."""
    scratch = path.with_name(f".{path.name}.part")
    copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.touch()
        mode = scratch.stat().st_mode  # as for any new file; safetensors would let nobody else read it
        save_file(copies, scratch, metadata=dict(header))
        scratch.chmod(mode)
        sync(scratch)
        scratch.replace(path)
        sync(path.parent)
    except Failure:
        scratch.unlink(missing_ok=True)
        raise


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the header of a file."""
    with safe_open(path, framework="pt") as opened:
        header = opened.metadata() or {}
        return {name: opened.get_tensor(name) for name in sorted(opened.keys())}, header


def sync(path: Path) -> None:
    """Wait until the disk has it: a rename must not overtake the contents."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def expecting(what: str, path: Path | str, way_out: str = AGAIN) -> Iterator[None]:
    """Raise a DataError that says what was expected of a file where reading it fails."""
    try:
        yield
    except OpenRadialError:
        raise
    except DAMAGED as error:
        message = f"expected {what}, but {error}; {way_out}"
        if isinstance(error, OSError) and error.errno is not None:
            message = f"the file cannot be read ({error.strerror})"
        raise DataError(message, path=path) from error


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """Make a temporary folder beside a path, so that what is finished in it can be renamed to the path."""
    options = {"prefix": f".{path.name}-", "suffix": ".part", "dir": str(path.parent)}
    with tempfile.TemporaryDirectory(**options, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def cache_home() -> Path:
    """``OPENRADIAL_CACHE``, or the folder openradial in the user's cache."""
    given = os.environ.get("OPENRADIAL_CACHE")
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openradial"
