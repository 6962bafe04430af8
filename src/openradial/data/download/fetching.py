"""Find or fetch a set of files: cache, then the user's folder, then mirrors, then packages."""

import contextlib
import errno
import gzip
import json
import os
import shutil
import sys
import zlib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from openradial.data.download.clients import UnavailableError, get
from openradial.data.download.sources import Files, Package, Source, mismatch
from openradial.errors import FetchError, listed
from openradial.files import cache_home, scratch_folder

SEEN = "checked.json"  # sizes and times of files whose checksums were right


class Problem(NamedTuple):
    """What is wrong with one file of a set."""

    file: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


def folder(source: Source) -> Path:
    """Return the folder of a data set in the cache, whether it exists or not."""
    return cache_home() / "data" / source.name


def fetch(source: Source, *, root: Path | str | None = None, download: bool = True) -> Path:
    """Return a folder with the checked files of a set.

    Looks in the cache, in ``root`` (or ``OPENRADIAL_DATA``), at the mirrors and in the packages of the source. Files in
    a user's folder are used where they lie. Two processes that want the same set fetch it once.
    """
    if root is not None and not Path(root).expanduser().is_dir():
        wanted = f"a folder with the files of {source.name}"
        raise FetchError(f"root must be {wanted}, but {root} is not a folder; leave it out to fetch")
    home = folder(source)
    if _is_complete(source, home):
        return home
    user_folder = _user_folder(source, root)
    if user_folder is not None:
        return user_folder
    if not download:
        raise FetchError(f"{source.name} is not in {home}; run: openradial data get {source.name}")
    try:
        with _lock(source, home):
            if not _is_complete(source, home):  # else another process was faster
                _fetch(source, home)
    except FetchError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(home.parent).free
            problem = f"needs about {source.size / 1e6:.0f} MB and {home.parent} has {free / 1e6:.0f} MB left"
            way_out = "make room or set OPENRADIAL_CACHE to a folder on a larger disk"
            raise FetchError(f"{source.name} {problem}; {way_out}") from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM, errno.EEXIST, errno.ENOTDIR):
            problem = f"{home.parent} must be a folder that can be written, got: {error.strerror}"
            raise FetchError(f"{problem}; set OPENRADIAL_CACHE to a folder that you can write to") from error
        raise
    return home


def check(source: Source, *, root: Path | str | None = None) -> list[Problem]:
    """Read every file of a data set in the cache or in ``root`` again and list what is wrong."""
    home = folder(source) if root is None else Path(root).expanduser()
    return min((_problems(home, form) for form in source.forms()), key=len)


def _fetch(source: Source, home: Path) -> None:
    tried = []
    for origin in source.origins:
        files = origin.files or source.files
        with scratch_folder(home) as scratch:
            made = scratch / "made"
            made.mkdir()
            try:
                get(origin, files, made, scratch / "downloads" if isinstance(origin, Package) else scratch)
            except UnavailableError as error:
                tried.append(f"{origin}: {error}")
                continue
            problems = _problems(made, files)
            if problems:
                tried.append(f"{origin}: {problems[0].file.name}: {problems[0].reason}")
                continue
            seen = {name: [expected, *_stamp(made / name)] for name, expected in files.items()}
            (made / SEEN).write_text(json.dumps(seen, indent=1) + "\n")
            if home.exists():  # damaged, or an older version
                home.rename(scratch / "old")
            made.rename(home)
            return
    raise FetchError(
        f"{source.name} is not in {home} and cannot be fetched ({'; '.join(tried)}); get "
        f"{listed(list(source.files), 4)} from {source.homepage} on a connected machine, put them into one folder and "
        "pass it as root (--root FOLDER), or set OPENRADIAL_DATA to it"
    )


def _user_folder(source: Source, root: Path | str | None) -> Path | None:
    """Return the user's folder with the files; a copy with wrong contents is an error, not a reason to fetch one."""
    given = root if root is not None else os.environ.get("OPENRADIAL_DATA")
    if not given:
        return None
    base = Path(given).expanduser()
    for folder, form in product((base, base / source.name), source.forms()):
        if not all((folder / name).exists() or (folder / f"{name}.gz").exists() for name in form):
            continue
        problems = _problems(folder, form)
        if problems:
            raise FetchError(f"{problems[0]}; replace this copy of {source.name}, or leave it out to fetch one")
        return folder
    if root is not None:
        wanted = f"expected {listed(list(source.files), 4)} there or in {source.name}/"
        raise FetchError(f"{base} does not contain {source.name}: {wanted}; leave root out to fetch one")
    return None


def _problems(folder: Path, files: Files) -> list[Problem]:
    return [problem for name, expected in files.items() if (problem := _problem(folder / name, expected))]


def _problem(path: Path, expected: str) -> Problem | None:
    file = path if path.exists() else path.with_name(f"{path.name}.gz")
    if not file.exists():
        return Problem(path, "missing")
    try:
        difference = mismatch(file, expected, unpacked=file != path)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        return Problem(file, f"damaged ({error})")
    return Problem(file, difference) if difference else None


def _is_complete(source: Source, home: Path) -> bool:
    """Return whether the cache has the set; file sizes and times stand for checksums that were right before."""
    try:
        seen = json.loads((home / SEEN).read_text())
        form = next(form for form in source.forms() if set(form) == set(seen))
        return all(seen[name] == [expected, *_stamp(home / name)] for name, expected in form.items())
    except (OSError, RecursionError, StopIteration, TypeError, ValueError):
        return False


def _stamp(path: Path) -> list[int]:
    facts = path.stat()
    return [facts.st_size, facts.st_mtime_ns]


@contextlib.contextmanager
def _lock(source: Source, home: Path) -> Iterator[None]:
    """Hold the right to fetch a set; what a killed process left behind is removed."""
    home.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(home.with_name(f".{home.name}.lock"))
    try:
        lock.acquire(timeout=1)
    except Timeout:
        sys.stderr.write(f"waiting for another process that fetches {source.name}\n")
        lock.acquire()
    try:
        for left in home.parent.glob(f".{home.name}-*.part"):
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        lock.release()
