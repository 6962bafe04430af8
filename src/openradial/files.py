"""Files that are written at once or not at all: text, and tensors as safetensors with text in the header."""

import errno
import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from openradial.errors import DataError, OpenRadialError, OptionError

Failure = (OSError, SafetensorError)  # what reading and writing may raise
# what readers raise for damaged contents; SyntaxError is Pillow's word for a broken PNG
DAMAGED = (OSError, EOFError, ValueError, KeyError, SyntaxError, tarfile.TarError, zipfile.BadZipFile, zlib.error)
AGAIN = "remove it to get it again"
BUNDLE = WEIGHTS, RECORD, CARD = "weights.safetensors", "bundle.json", "card.md"  # the files of a bundle
LEAST = 2**20  # bytes that every output may need
JSON = {dict: "object", list: "list", str: "string", int: "whole number", float: "number", bool: "boolean"}


def write_text(path: Path, text: str) -> None:
    """Replace a file, so that nobody ever reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        scratch.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
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
    try:
        with safe_open(path, framework="pt") as opened:
            header = opened.metadata() or {}
            return {name: opened.get_tensor(name) for name in sorted(opened.keys())}, header
    except RuntimeError as error:  # safetensors opens a file twice; in between another process may have removed it
        if path.exists():
            raise
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error


def check_json(name: str, value: Any, hint: Any, kind_of_error: type[Exception] = ValueError) -> None:
    """Raise unless a JSON value, and everything in it, has the type of its annotation."""
    parts = get_args(hint)
    if hint is Any or (value is None and type(None) in parts):
        return
    if type(None) in parts:
        hint, parts = parts[0], get_args(parts[0])
    is_record = is_typeddict(hint) or is_dataclass(hint)
    kind = dict if is_record else get_origin(hint) or hint
    accepted: Any = int | float if kind is float else kind
    if not isinstance(value, accepted) or isinstance(value, bool) != (kind is bool):
        raise kind_of_error(f"{name} must be a JSON {JSON[kind]}, got {value!r:.80}")
    if is_record:
        hints = get_type_hints(hint)
        missing = next((key for key in getattr(hint, "__required_keys__", hints) if key not in value), None)
        if missing is not None:
            raise kind_of_error(f"{name} has no {missing!r}")
        items: list[tuple[Any, Any, Any]] = [(key, value[key], hints[key]) for key in hints if key in value]
    else:
        pairs = value.items() if kind is dict else enumerate(value) if kind is list else ()
        items = [(key, child, parts[-1]) for key, child in pairs]
    for key, child, expected in items:
        check_json(f"{name}[{key!r}]", child, expected, kind_of_error)


def sync(path: Path) -> None:
    """Wait until the disk has it: a rename must not overtake the contents."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def writable(path: Path | str, least: int = LEAST) -> Path:
    """Return an output path in full, or raise if it cannot be written, or has not the ``least`` bytes of free space."""
    try:
        path = Path(path).expanduser().resolve()
        if not path.name:
            raise OptionError(f"{path} is the root of the file system; name a path below it")
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise OptionError(f"{path} is a device or a pipe, and it would be replaced; choose another path")
        above = next(each for each in path.parents if each.exists())
        scratch = above / f".{path.name}-12345678.training"  # the longest name that is made of it
        scratch.touch()
        scratch.unlink(missing_ok=True)
        free = shutil.disk_usage(above).free
    except (OSError, RuntimeError) as error:  # RuntimeError for links that lead to themselves
        reason = getattr(error, "strerror", None) or error
        raise OptionError(f"{path} cannot be written ({reason}); choose another path") from error
    if free < least:
        space = f"about {least / 1e6:,.0f} MB, and the disk has {free / 1e6:,.0f} MB left"
        raise OptionError(f"{path} needs {space}; free some, or choose another path")
    return path


@contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Keep other processes from writing to a folder; raise if one does."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    path = folder.with_name(f".{folder.name}.lock")
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        message = f"another process is writing to {folder}; wait until it ends, or choose another folder"
        raise OptionError(message) from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # who has it open already does not get the lock of a removed file
        lock.release()


def check_bundle_folder(folder: Path, overwrite: bool) -> None:
    """Raise unless a bundle may be written to a folder. A replacement that was interrupted is undone first."""
    restore_interrupted(folder)
    if not folder.exists():
        return
    if not folder.is_dir():
        raise OptionError(f"a model is a folder, and {folder} is a file; choose another path")
    names = sorted(entry.name for entry in folder.iterdir())
    if names and not overwrite:
        raise OptionError(f"{folder} exists already; choose another folder, or replace it with overwrite (--overwrite)")
    others = [name for name in names if name not in BUNDLE]
    if others or (names and RECORD not in names):
        what = others[0] if others else names[0]
        raise OptionError(f"only a bundle is overwritten, and {folder} also holds {what}; move it first")


def restore_interrupted(folder: Path) -> Path:
    """Undo a replacement that was interrupted between its two renames; return where it keeps the old bundle."""
    old = folder.with_name(f".{folder.name}.old")
    return old.rename(folder) if not folder.exists() and old.is_dir() else old


def check_regular(path: Path, must_exist: bool = False) -> Path:
    """Return the path; raise if it is a pipe, a device or the like, whose contents might never end."""
    if must_exist and not path.exists():
        raise DataError("there is no such file", path=path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise DataError("this is not a regular file; copy its contents to one", path=path)
    return path


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
