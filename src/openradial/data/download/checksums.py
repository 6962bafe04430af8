"""Checksums as text: ``"sha256:..."``, or ``"md5:..."`` where a publisher gives no other."""

import gzip
import hashlib
from pathlib import Path

Checksum = str


def checksum(path: Path, algorithm: str, *, unpacked: bool = False) -> Checksum:
    """Checksum of a file, or of what a gzip file holds."""
    with gzip.open(path) if unpacked else path.open("rb") as stream:
        return f"{algorithm}:{hashlib.file_digest(stream, algorithm).hexdigest()}"


def file_matches(path: Path, expected: Checksum, *, unpacked: bool = False) -> bool:
    """Whether a file has the checksum."""
    return checksum(path, algorithm_of(expected), unpacked=unpacked) == expected


def algorithm_of(expected: Checksum) -> str:
    return expected.partition(":")[0]
