"""ILSVRC-2012 split into known and novel classes on disk: class lists, and trees of links for any folder loader."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from openradial.data.ilsvrc_classes import parse_known, wnids
from openradial.data.nearest import listed
from openradial.data.splits import FACTS, KNOWN, NOVEL, Split
from openradial.errors import DataError

BASES = ("", "ILSVRC/Data/CLS-LOC", "Data/CLS-LOC", "CLS-LOC")  # where train and val may be below a root
PARTS = ("train", "val", "validation")
MARK = "openradial data split-ilsvrc"
Folders = Mapping[str, Mapping[str, Path]]  # part -> wnid -> folder; one part "" where a root has no parts


@dataclass(frozen=True)
class SplitResult:
    """What was found and written."""

    split: Split
    out: Path
    folders: Mapping[str, int]  # class folders by part
    absent: tuple[str, ...]  # classes of ILSVRC that have no folder
    strange: tuple[Path, ...]  # folders that are no class of ILSVRC
    flat: tuple[str, ...]  # parts without class folders
    links: int

    def __str__(self) -> str:
        lines = [f"{len(self.split.known)} known and {len(self.split.novel)} novel classes in {self.out}"]
        found = ", ".join(f"{count} in {part}" if part else str(count) for part, count in self.folders.items())
        lines.append(f"class folders: {found}; links: {self.links or 'none'}")
        if self.absent:
            lines.append(f"{len(self.absent)} of 1000 classes have no folder: {listed(self.absent, 3)}")
        if self.strange:
            names = [str(path) for path in self.strange]
            lines.append(f"{len(names)} folders are no class of ILSVRC and were left out: {listed(names, 3)}")
        lines += [f"{part} has no class folders and was left out" for part in self.flat]
        return "\n".join(lines)


def split_ilsvrc(
    root: Path | str,
    known: str,
    seed: int = 0,
    *,
    out: Path | str,
    links: bool = False,
    wordnet: Path | str | None = None,
) -> SplitResult:
    """Split the class folders of a local ILSVRC-2012 (or a part of it, such as Tiny-ImageNet) by a rule.

    Writes ``known.txt``, ``novel.txt`` and ``split.json`` into ``out``; with ``links`` also ``known/train/<wnid>`` and
    so on, each a link to the absolute path of a class folder, so that ``out`` can be moved. Everything appears at once;
    an earlier result in ``out`` is replaced, anything else there is an error. For the rules see :func:`parse_known`.
    """
    folders, strange, flat = find_class_folders(Path(root))
    present = {wnid for classes in folders.values() for wnid in classes}
    split = parse_known(known, [wnid for wnid in wnids() if wnid in present], seed=seed, wordnet=wordnet)
    out = Path(out).expanduser().resolve()
    facts = {**split.facts, "made by": MARK, "root": str(Path(root).absolute()), "classes found": len(present)}
    split = replace(split, facts=facts)
    with _replaced(out) as fresh:
        split.write(fresh)
        made = _link_trees(fresh, split, folders) if links else 0
    absent = tuple(wnid for wnid in wnids() if wnid not in present)
    counts = {part: len(classes) for part, classes in folders.items()}
    return SplitResult(split, out, counts, absent, strange, flat, made)


def find_class_folders(root: Path) -> tuple[Folders, tuple[Path, ...], tuple[str, ...]]:
    """Class folders by part, folders that are no class, and parts without class folders."""
    base, parts = _parts(root)
    folders: dict[str, dict[str, Path]] = {}
    strange: list[Path] = []
    flat = []
    known = set(wnids())
    for part in parts:
        found = sorted(path for path in (base / part).iterdir() if path.is_dir())
        classes = {path.name: path for path in found if path.name in known}
        if classes:
            folders[part] = classes
            strange += [path for path in found if path.name not in classes]
        else:
            flat.append(part)
    if not folders:
        raise DataError(
            f"{root} must hold class folders named by wnids (n01440764, ...): expected them there, in train and val, "
            "or in ILSVRC/Data/CLS-LOC/train; unpack the class archives, or pass the folder above them"
        )
    return folders, tuple(strange), tuple(flat)


def _parts(root: Path) -> tuple[Path, tuple[str, ...]]:
    """The folder that holds train and val, and which of them there are; ``("",)`` if it holds the classes itself."""
    if not root.is_dir():
        raise DataError(f"expected a folder with ILSVRC-2012 at {root}; there is none")
    for below in BASES:
        parts = tuple(part for part in PARTS if (root / below / part).is_dir())
        if parts:
            return root / below, parts
    return root, ("",)


def _link_trees(out: Path, split: Split, folders: Folders) -> int:
    made = 0
    for side, names in (("known", split.known), ("novel", split.novel)):
        for part, classes in folders.items():
            tree = out / side / part
            tree.mkdir(parents=True)
            for wnid in names:
                if wnid in classes:
                    _link(tree / wnid, classes[wnid].absolute())
                    made += 1
    return made


def _link(link: Path, target: Path) -> None:
    try:
        link.symlink_to(target, target_is_directory=True)
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(
            f"cannot make links in this folder ({reason}); choose an out folder on a disk that can hold links, "
            "or leave the links out and use the class lists"
        ) from error


@contextmanager
def _replaced(out: Path) -> Iterator[Path]:
    """A fresh folder that takes the place of ``out`` once it is finished."""
    _check_replaceable(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{out.name}-", suffix=".part", dir=out.parent))
    try:
        fresh, old = scratch / "fresh", scratch / "old"
        fresh.mkdir()
        yield fresh
        if out.exists():
            out.rename(old)
        try:
            fresh.rename(out)
        except OSError:
            if old.exists():
                old.rename(out)
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)  # unlinks links, never what they point to


def _check_replaceable(out: Path) -> None:
    """Raise unless ``out`` is free, empty, or holds an earlier result and nothing else."""
    if not out.exists():
        return
    if not out.is_dir():
        raise DataError(f"out must be a folder, {out} is a file; choose another")
    content = list(out.iterdir())
    if not content:
        return
    strange = next((path for path in content if path.name not in (KNOWN, NOVEL, FACTS, "known", "novel")), None)
    strange = strange or next((path for side in ("known", "novel") for path in _files(out / side)), None)
    if strange is None and not (out / FACTS).is_file():
        strange = content[0]
    if strange is None and Split.read(out).facts.get("made by") != MARK:
        strange = out / FACTS
    if strange is not None:
        raise DataError(f"{out} must be empty or hold an earlier split, got {strange.name}; choose another folder")


def _files(tree: Path) -> Iterator[Path]:
    """What is neither a folder of ours nor a link."""
    for path in tree.iterdir() if tree.is_dir() else ():
        if path.is_symlink():
            continue
        if path.is_dir():
            yield from _files(path)
        else:
            yield path
