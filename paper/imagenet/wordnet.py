"""WordNet 3.0's nouns: what is a kind of what."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from openradial.data import download
from openradial.errors import DataError

SOURCE = download.Source(
    name="wordnet",
    title="WordNet 3.0, nouns",
    files={"data.noun": "sha256:fea17d2f9656611334eac790e5d69e47645fa180c4aa481fb4cd9b3520754ca2"},
    origins=(download.Package("apt", "wordnet-base", None, {"data.noun": "usr/share/wordnet/data.noun"}),),
    size=15_300_280,
    licence="WordNet 3.0 licence (free, with Princeton University's notice)",
    homepage="https://wordnet.princeton.edu/download",
)
FOLDERS = ("", "dict", "wordnet", "usr/share/wordnet")  # that may hold data.noun below the given folder
WNID = re.compile(r"n\d{8}")


@dataclass(frozen=True, slots=True)
class Synset:
    """A meaning: its words, its lexicographer file (6 is noun.artifact) and the meanings directly above it."""

    wnid: str
    lemmas: tuple[str, ...]
    file: int
    hypernyms: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class WordNet:
    """The nouns of WordNet 3.0 by wnid: ``n`` and the eight digits that ImageNet uses too."""

    synsets: dict[str, Synset]

    @classmethod
    def load(cls, root: Path | str | None = None) -> Self:
        """Read WordNet from a folder with ``data.noun`` or ``dict/data.noun``, by default from the downloaded copy."""
        if root is None:
            return cls.read(download.fetch(SOURCE) / "data.noun")
        for folder in FOLDERS:
            path = Path(root).expanduser() / folder / "data.noun"
            if path.is_file():
                return cls.read(path)
        raise DataError(
            f"{root} must hold WordNet 3.0: expected data.noun there or in {', '.join(FOLDERS[1:])}; "
            "unpack WNdb-3.0.tar.gz there, or omit the folder to download it"
        )

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Parse a file ``data.noun``."""
        # the licence at the top is indented; anything else is one synset per line
        lines = Path(path).read_text(encoding="latin-1").splitlines()
        licence = [line for line in lines if line.startswith("  ")]
        if not any("WordNet 3.0" in line for line in licence):
            raise DataError(
                f"{path} must be data.noun of WordNet 3.0, whose numbers are ImageNet's, "
                "and its first lines do not say so; other versions number their meanings differently"
            )
        synsets = {}
        for number, line in enumerate(lines[len(licence) :], start=len(licence) + 1):
            synset = _parse(line, path, number)
            synsets[synset.wnid] = synset
        _check_complete(synsets, path)
        return cls(synsets)

    def __len__(self) -> int:
        return len(self.synsets)

    def __getitem__(self, wnid: str) -> Synset:
        if wnid not in self.synsets:
            raise DataError(f"{wnid!r} is not a noun of WordNet 3.0; a wnid is n and eight digits, as in n00021939")
        return self.synsets[wnid]

    def under(self, wnid: str) -> frozenset[str]:
        """Return the meaning itself and every meaning below it, along all paths."""
        below_it = {self[wnid].wnid}
        frontier = [wnid]
        while frontier:
            below = [lower for upper in frontier for lower in self._hyponyms[upper] if lower not in below_it]
            below_it.update(below)
            frontier = below
        return frozenset(below_it)

    def paths(self, wnid: str) -> Iterator[tuple[str, ...]]:
        """Yield every path from a meaning to the top, beginning with itself."""
        above = self[wnid].hypernyms
        if not above:
            yield (wnid,)
        for upper in above:
            yield from ((wnid, *path) for path in self.paths(upper))

    @cached_property
    def _hyponyms(self) -> dict[str, list[str]]:
        below = defaultdict(list)
        for synset in self.synsets.values():
            for upper in synset.hypernyms:
                below[upper].append(synset.wnid)
        return below


def _parse(line: str, path: Path | str, number: int) -> Synset:
    """Parse one line: offset, file, ``n``, number of words in hex, words with ids, number of pointers, pointers."""
    fields = line.partition(" | ")[0].split()
    try:
        offset, file, kind, count = fields[:4]
        end = 4 + 2 * int(count, 16)
        pointers = fields[end + 1 :]
        if kind != "n" or len(pointers) != 4 * int(fields[end]):
            raise ValueError(f"{len(pointers)} fields of pointers")
        hypernyms = tuple(
            f"n{target}" for symbol, target in zip(pointers[::4], pointers[1::4], strict=True) if symbol in ("@", "@i")
        )
        return Synset(f"n{offset}", tuple(fields[4:end:2]), int(file), hypernyms)
    except (ValueError, IndexError) as error:
        raise DataError(
            f"{path}: line {number} is not a synset ({error}); the file is damaged, get it again"
        ) from error


def _check_complete(synsets: dict[str, Synset], path: Path | str) -> None:
    for synset in synsets.values():
        for upper in synset.hypernyms:
            if upper not in synsets:
                raise DataError(
                    f"{path}: {synset.wnid} is a kind of {upper}, which is missing; the file is truncated, get it again"
                )
