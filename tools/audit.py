"""Audit the installed packages without the network: ``make audit``, or python tools/audit.py [LOCK].

Compares each package of constraints.txt that is installed: its version with the pinned one, its requirements with the
versions that are there, and each of its files with the checksum that the package states. Known vulnerabilities are
another matter: ``pip-audit -r constraints.txt`` needs the network.
"""

import base64
import hashlib
import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

LOCK = Path(__file__).parents[1] / "constraints.txt"
PINNED = re.compile(r"^([\w.-]+)==([^\s;#]+)", re.MULTILINE)


def main() -> int:
    packages = files = 0
    problems: list[str] = []
    for name, version in PINNED.findall(Path(sys.argv[1] if len(sys.argv) > 1 else LOCK).read_text()):
        try:
            package = distribution(name)
        except PackageNotFoundError:  # of another platform, or of an extra that is not installed
            continue
        packages += 1
        files += sum(each.hash is not None for each in package.files or ())
        same = Version(package.version).public == version  # 2.13.0+cpu is a build of 2.13.0
        found = [] if same else [f"version {package.version} instead of {version}"]
        problems += [f"{name}: {each}" for each in (*found, *unmet(package), *changed(package))]
    print("\n".join([*problems, f"{packages} packages with {files:,} files: {len(problems)} problems"]))
    return 1 if problems or not packages else 0


def unmet(package: Distribution) -> Iterator[str]:
    """Yield requirements that are missing or have another version."""
    for text in package.requires or ():
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            version = distribution(wanted.name).version
        except PackageNotFoundError:
            yield f"needs {wanted}, which is not installed"
        else:
            if not wanted.specifier.contains(version, prereleases=True):
                yield f"needs {wanted}, and {version} is installed"


def changed(package: Distribution) -> Iterator[str]:
    """Yield files that are missing or do not have the checksum of the package."""
    for each in package.files or ():
        if each.hash is None:  # compiled by Python, or the list itself
            continue
        path = Path(str(each.locate()))
        if not path.is_file():
            yield f"{each} is missing"
            continue
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, each.hash.mode).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != each.hash.value:
            yield f"{each} was changed after it was packaged"


if __name__ == "__main__":
    sys.exit(main())
