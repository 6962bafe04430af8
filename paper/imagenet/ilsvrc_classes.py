"""The 1000 classes of ILSVRC-2012, and the rules by which some of them are known.

The table ``ilsvrc2012.csv`` lists each class with its first word in WordNet 3.0 (© 2006 Princeton University) and
whether it is an *artifact*, the subtree of the paper's novel classes.
"""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path

from openradial import data
from openradial.data import Split
from openradial.errors import DataError, OptionError
from paper.imagenet.wordnet import WNID, WordNet

ARTIFACT = "n00021939"
RULES = "random:N, not:WNID, under:WNID, names:A,B,... or file:PATH"


@dataclass(frozen=True)
class IlsvrcClass:
    """One class: its usual index (the rank of its wnid), its first word, and whether it is a kind of artifact."""

    index: int
    wnid: str
    lemma: str
    artifact: bool


@cache
def ilsvrc_classes() -> tuple[IlsvrcClass, ...]:
    """Return all classes in the order of their index.

    >>> ilsvrc_classes()[1]
    IlsvrcClass(index=1, wnid='n01443537', lemma='goldfish', artifact=False)
    """
    text = (files("paper.imagenet") / "ilsvrc2012.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return tuple(IlsvrcClass(int(row["index"]), row["wnid"], row["lemma"], row["artifact"] == "1") for row in rows)


def wnids() -> tuple[str, ...]:
    """Return the wnids of all classes in the order of their index."""
    return tuple(row.wnid for row in ilsvrc_classes())


def recompute_table(root: Path | str | None = None) -> tuple[IlsvrcClass, ...]:
    """Compute the table from WordNet 3.0, in ``root`` or downloaded; the 1000 wnids are given by ILSVRC."""
    wordnet = WordNet.load(root)
    artifacts = wordnet.under(ARTIFACT)
    return tuple(
        IlsvrcClass(index, wnid, wordnet[wnid].lemmas[0], wnid in artifacts) for index, wnid in enumerate(wnids())
    )


def table_differences(rows: Iterable[IlsvrcClass]) -> list[str]:
    """Return one line per row of a recomputed table that differs from the shipped one."""
    return [
        f"{shipped.wnid}: shipped {shipped}, recomputed {row}"
        for shipped, row in zip(ilsvrc_classes(), rows, strict=True)
        if shipped != row
    ]


def write_table(rows: Iterable[IlsvrcClass], path: Path | str) -> None:
    """Write a table in the format of the shipped one."""
    lines = [f"{row.index},{row.wnid},{row.lemma},{int(row.artifact)}\n" for row in rows]
    Path(path).write_text("index,wnid,lemma,artifact\n" + "".join(lines), encoding="utf-8", newline="\n")


def parse_known(
    rule: str, classes: Sequence[str] | None = None, *, seed: int = 0, wordnet: Path | str | None = None
) -> Split:
    """Split classes (wnids, by default all of ILSVRC-2012) by a rule that says which are known.

    ``random:100`` draws with the seed; ``not:n00021939`` knows all but a WordNet subtree, ``under:n00021939`` the
    subtree alone; ``names:n01440764,goldfish`` takes wnids or words; ``file:PATH`` takes a list, one name per line.
    Subtrees other than the artifacts need WordNet, in the folder ``wordnet`` or downloaded.

    >>> split = parse_known("not:n00021939")
    >>> len(split.known), len(split.novel)
    (478, 522)
    """
    classes = wnids() if classes is None else tuple(classes)
    kind, _, value = rule.partition(":")
    if kind == "random" and value.strip():
        return data.parse_known(rule, classes, seed=seed)
    if not value.strip() or kind not in ("not", "under", "names", "file"):
        raise OptionError(f"known must be {RULES}, got {rule!r}")
    if kind in ("names", "file"):
        names = value.split(",") if kind == "names" else _read_lines(Path(value))
        known = [_wnid(name.strip(), classes) for name in names if name.strip()]
    else:
        tree = _subtree(value.strip(), classes, wordnet)
        if tree.isdisjoint(classes):
            raise DataError(f"none of the {len(classes)} classes lies under {value}; name a meaning above some of them")
        known = [name for name in classes if (name in tree) == (kind == "under")]
    return data.named_split(classes, known=known)


def _read_lines(path: Path) -> list[str]:
    try:
        return path.expanduser().read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"cannot read the list of classes {path}: {error.strerror}") from error


def _subtree(wnid: str, classes: Sequence[str], wordnet: Path | str | None) -> frozenset[str]:
    if not WNID.fullmatch(wnid):
        raise OptionError(f"a WordNet subtree is named by n and eight digits, as in not:{ARTIFACT}, got {wnid!r}")
    others = [name for name in classes if not WNID.fullmatch(name)]
    if others:
        raise DataError(f"a WordNet subtree splits classes named by wnids only, got {others[0]!r}; use names:A,B,...")
    if wnid == ARTIFACT and wordnet is None and set(classes) <= set(wnids()):
        return frozenset(row.wnid for row in ilsvrc_classes() if row.artifact)
    return WordNet.load(wordnet).under(wnid)


def _wnid(name: str, classes: Sequence[str]) -> str:
    """Return the class that a name means: itself, or the one whose first word it is."""
    if name in classes:
        return name
    meant = [row.wnid for row in ilsvrc_classes() if row.lemma == name.replace(" ", "_") and row.wnid in classes]
    if len(meant) > 1:
        raise DataError(f"{name!r} means {len(meant)} classes, {' and '.join(meant)}; name one of these")
    if not meant:
        words = [row.lemma for row in ilsvrc_classes() if row.wnid in classes]
        near = get_close_matches(name, [*classes, *words], 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise DataError(f"{name!r} is not one of these {len(classes)} classes{hint}")
    return meant[0]
