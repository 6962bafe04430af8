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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from openradial.data import progress
from openradial.data.download.sources import ARCHIVE, Mirror, Package, algorithm_of, checksum
from openradial.errors import FetchError

TIMEOUT = 30  # seconds without an answer from a mirror
CLIENT_TIMEOUT = 1800  # seconds for a whole package
CHUNK = 1 << 20


class UnavailableError(Exception):
    """One origin does not have the files; the next may."""


def get(origin: Mirror | Package, target: Path, scratch: Path) -> None:
    """Put the files of an origin into ``target``."""
    if isinstance(origin, Mirror):
        _from_mirror(origin, target, scratch)
    else:
        archive = _package(origin, scratch)
        if origin.archive is not None:
            _check(archive, origin.archive)
        try:
            _take(archive, origin.take, target)
        except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the disk, not the archive
            raise UnavailableError(f"{archive.name} is damaged ({error})") from error


def _from_mirror(mirror: Mirror, target: Path, scratch: Path) -> None:
    for name, remote in mirror.take.items():
        fresh = scratch / Path(remote).name
        _download(f"{mirror.url.rstrip('/')}/{remote}", fresh)
        if remote in mirror.downloads:
            _check(fresh, mirror.downloads[remote])
        if remote.endswith(".gz") and not name.endswith(".gz"):
            _unpack(fresh, target / name)
        else:
            fresh.replace(target / name)


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


def _unpack(packed: Path, target: Path) -> None:
    try:
        with gzip.open(packed) as stream, target.open("wb") as out:
            shutil.copyfileobj(stream, out, CHUNK)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UnavailableError(f"{packed.name} is damaged ({error})") from error


def _package(package: Package, scratch: Path) -> Path:
    """Return the archive that the package's client fetched."""
    scratch.mkdir(exist_ok=True)
    program = "apt-get" if package.client == "apt" else package.client
    if package.client != "pip" and shutil.which(program) is None:
        raise UnavailableError(f"{program} is not installed")
    try:
        with progress.bar(str(package), None):
            run = subprocess.run(_command(package), cwd=scratch, capture_output=True, text=True, timeout=CLIENT_TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{program} did not end within {CLIENT_TIMEOUT} seconds") from error
    archives = [path for path in scratch.iterdir() if path.suffix in (".tgz", ".deb", ".whl", ".gz")]
    if run.returncode != 0 or len(archives) != 1:
        raise UnavailableError(f"{program}: {_last_error(run.stderr)}")
    return archives[0]


def _command(package: Package) -> list[str]:
    if package.client == "npm":
        return ["npm", "pack", "--silent", f"{package.name}@{package.version}" if package.version else package.name]
    if package.client == "apt":
        return ["apt-get", "download", "-q", package.name]
    wanted = f"{package.name}=={package.version}" if package.version else package.name
    return [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "-q", wanted]


def _last_error(text: str) -> str:
    """Return the line that says most: the last with an error in it, or the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "err" in line.lower()]
    return (errors or lines or ["it failed without a message"])[-1]


def _check(path: Path, expected: str) -> None:
    actual = checksum(path, algorithm_of(expected))
    if actual != expected:
        raise UnavailableError(f"{path.name} has {actual}, expected {expected}")


def _take(archive: Path, take: Mapping[str, str], target: Path) -> None:
    """Write the wanted members of an archive under our names; no path inside the archive is ever trusted."""
    members = {member: name for name, member in take.items() if member != ARCHIVE}
    if members:
        missing = set(members) - _extract(archive, members, target)
        if missing:
            raise FetchError(f"{archive.name} should hold {sorted(missing)[0]!r} and does not; please report this")
    for name, member in take.items():
        if member == ARCHIVE:
            archive.replace(target / name)


def _extract(archive: Path, members: Mapping[str, str], target: Path) -> set[str]:
    done = set()
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            for member in set(members) & set(opened.namelist()):
                with opened.open(member) as stream:
                    _copy(stream, target / members[member], member)
                done.add(member)
        return done
    for member, stream in _tar_members(archive):
        if member in members:
            _copy(stream, target / members[member], member)
            done.add(member)
    return done


def _tar_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield names and contents of a tar, or of the tar inside a Debian package."""
    if archive.suffix == ".deb":
        if shutil.which("dpkg-deb") is None:
            raise UnavailableError("dpkg-deb is not installed")
        unpacked = archive.with_suffix(".tar")
        with unpacked.open("wb") as out:
            run = subprocess.run(
                ["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=out, stderr=subprocess.PIPE, text=True
            )
        if run.returncode != 0:
            raise UnavailableError(f"{archive.name} is damaged ({_last_error(run.stderr)})")
        archive = unpacked
    with tarfile.open(archive) as opened:
        for member in opened:
            content = opened.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name.removeprefix("./"), content


def _copy(stream: IO[bytes], target: Path, member: str) -> None:
    """Copy a member; one that is packed once more and kept without its ending is unpacked."""
    unpack = member.endswith(".gz") and target.suffix != ".gz"
    with target.open("wb") as out:
        shutil.copyfileobj(gzip.GzipFile(fileobj=stream) if unpack else stream, out, CHUNK)
