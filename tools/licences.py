"""List the licences of all installed packages that openradial and its extras use: writes docs/licences.md.

python tools/licences.py. Reads the metadata of the installed packages; needs no network.
"""

import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "licences.md"
HEADER = """# Licences

openradial itself is under the MIT licence. This page lists the packages that it uses, directly or through another
package, with the licences that their metadata state. `python tools/licences.py` writes it from the packages of
`constraints.txt` that are installed. "Needed for" names the extras, as in `pip install 'openradial[serve]'`; *core*
is always needed.

| package | version | licence | needed for |
| --- | --- | --- | --- |
"""
DEVELOPMENT = {"test", "lint", "docs", "bench", "dev", "demo", "fuzz"}  # not needed to use openradial
SHORT = {"License :: OSI Approved :: ": "", " License": "", "License :: ": ""}


def main() -> int:
    extras: dict[str, set[str]] = {}
    root = distribution("openradial")
    walk(root, "core", set(), extras, set())
    for extra in sorted(set(root.metadata.get_all("Provides-Extra") or ()) - {"dev"}):
        walk(root, extra, {extra}, extras, set())
    rows = []
    for name, needed in sorted(extras.items()):
        used = sorted(needed - DEVELOPMENT) or ["development"]
        found = distribution(name)
        rows.append(
            f"| {name} | {found.version} | {licence(found)} | {'core' if 'core' in needed else ', '.join(used)} |"
        )
    PAGE.write_text(HEADER + "\n".join(rows) + "\n")
    unknown = [row for row in rows if "| not stated |" in row]
    print(f"{len(rows)} packages in {PAGE.relative_to(ROOT)}, {len(unknown)} without a stated licence")
    return 0


def walk(package: Distribution, need: str, extras: set[str], found: dict[str, set[str]], seen: set[str]) -> None:
    """Add everything that a package with these extras requires and that is installed."""
    for text in package.requires or ():
        match = re.match(r"([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?", text)
        condition = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", text)
        if match is None or (condition and condition[1] not in extras):
            continue
        name, wanted = normalised(match[1]), {each.strip() for each in (match[2] or "").split(",") if each.strip()}
        if f"{name}[{sorted(wanted)}]" in seen:
            continue
        seen.add(f"{name}[{sorted(wanted)}]")
        try:
            required = distribution(name)
        except PackageNotFoundError:  # of another system or Python
            continue
        if name != "openradial":
            found.setdefault(name, set()).add(need)
        walk(required, need, wanted, found, seen)


def licence(package: Distribution) -> str:
    """Return the licence as the metadata of a package state it, in one line."""
    metadata = package.metadata
    if "License-Expression" in metadata:
        return metadata["License-Expression"]
    classifiers = [each for each in metadata.get_all("Classifier") or () if each.startswith("License :: ")]
    for long, short in SHORT.items():
        classifiers = [each.replace(long, short) for each in classifiers]
    text = metadata["License"].strip().splitlines() if "License" in metadata else []
    stated = text[0][:80] if text and text[0] != "UNKNOWN" else "not stated"
    return ", ".join(classifiers) or stated


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())
