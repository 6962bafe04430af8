"""A set of files made up for the tests."""

import hashlib

from openradial.data.download import Mirror, Source


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def source_of(files: dict[str, bytes], *origins: Mirror, name: str = "letters") -> Source:
    pinned = {name: sha256(content) for name, content in files.items()}
    return Source(name, "Letters", pinned, origins, 1000, "CC0", "https://example.org/letters")
