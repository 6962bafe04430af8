"""Archives given by a user, unpacked once into the cache, under a name made of their checksum."""

import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from filelock import FileLock

from openradial.data.download import checksum
from openradial.data.progress import bar
from openradial.errors import DataError
from openradial.files import cache_home, scratch_folder


def unpacked(archive: Path) -> Path:
    """Return the folder with the contents of a .tar, .tar.gz or .zip archive; all of it or an error.

    Members that would land elsewhere (absolute paths, ``..``) and links are refused: an archive is not trusted.
    """
    is_zip, is_tar = zipfile.is_zipfile(archive), False
    with suppress(OSError, EOFError, zlib.error):
        is_tar = tarfile.is_tarfile(archive)
    if not is_zip and not is_tar:
        raise DataError("expected a .tar, .tar.gz or .zip archive; give one, or the unpacked folder", path=archive)
    digest = checksum(archive, "sha256").partition(":")[2][:16]
    home = cache_home() / "unpacked" / f"{archive.name.partition('.')[0]}-{digest}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(home.with_name(f".{home.name}.lock")):
        if not home.is_dir():
            _unpack(archive, home, is_zip)
    return home


def _unpack(archive: Path, home: Path, is_zip: bool) -> None:
    with scratch_folder(home) as scratch:
        made = scratch / "made"  # temporary folders are for their owner alone
        made.mkdir()
        try:
            with bar(f"unpacking {archive.name}", archive.stat().st_size, unit="bytes") as advance:
                for done in _unzip(archive, made) if is_zip else _untar(archive, made):
                    advance(done)
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise DataError(f"the archive is damaged ({error}); get it again", path=archive) from error
        made.rename(home)


def _untar(archive: Path, target: Path) -> Iterator[int]:
    """Unpack; yield how many more bytes of the archive are read."""
    with archive.open("rb") as stream, tarfile.open(fileobj=stream) as tar:
        before = 0
        for member in tar:
            _check_member(archive, member.name, plain=member.isfile() or member.isdir())
            tar.extract(member, target, filter="data")
            yield stream.tell() - before
            before = stream.tell()
        while tar.fileobj is not None and tar.fileobj.read(1 << 20):
            pass  # to the end, where gzip has its checksum


def _unzip(archive: Path, target: Path) -> Iterator[int]:
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            is_link = (member.external_attr >> 16) & 0o170000 == 0o120000
            _check_member(archive, member.filename, plain=not is_link)
            packed.extract(member, target)
            yield member.compress_size


def _check_member(archive: Path, name: str, *, plain: bool) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in "".join(path.parts[:1]):  # a colon: a drive of Windows
        raise DataError(f"the member {name!r} would lie outside of the folder; do not trust this archive", path=archive)
    if not plain:
        raise DataError(f"the member {name!r} is a link or device, not a file; do not trust this archive", path=archive)
