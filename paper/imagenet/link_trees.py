"""ILSVRC-2012 split into known and novel classes on disk: class lists, and trees of links for any folder loader."""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from openradial.data import Split
from openradial.errors import DataError, MissingError
from paper.imagenet.ilsvrc import BASES, ilsvrc
from paper.imagenet.ilsvrc_classes import parse_known, wnids
from paper.imagenet.tiny_imagenet import tiny_imagenet

PARTS = ("train", "val")
MARK = "python -m paper split-ilsvrc"
KNOWN, NOVEL, FACTS = "known.txt", "novel.txt", "split.json"
# part -> wnid -> its folder, or its images if all classes share a folder; a root without parts has the part ""
ClassFolders = Mapping[str, Path | list[Path]]
Parts = Mapping[str, ClassFolders]


@dataclass(frozen=True)
class SplitResult:
    """The split and what was read and written."""

    split: Split
    out: Path
    counts: Mapping[str, int]  # classes by part
    absent: tuple[str, ...]  # classes of ILSVRC without images
    others: tuple[Path, ...]  # folders that are not classes of ILSVRC
    left_out: tuple[str, ...]  # why a part has no classes
    links: int

    def __str__(self) -> str:
        lines = [f"{len(self.split.known)} known and {len(self.split.novel)} novel classes in {self.out}"]
        counts = ", ".join(f"{count} in {part}" if part else str(count) for part, count in self.counts.items())
        lines.append(f"classes found: {counts}; links: {self.links or 'none'}")
        if self.absent:
            lines.append(f"{len(self.absent)} of 1000 classes have no images: {_listed(self.absent)}")
        if self.others:
            names = [str(path) for path in self.others]
            lines.append(f"{len(names)} folders are not classes of ILSVRC and were left out: {_listed(names)}")
        lines += [f"left out: {reason}" for reason in self.left_out]
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
    so on, each a link to the absolute path of a class folder, so that ``out`` can be moved; validation images in one
    folder with a list of labels are linked one by one. ``out`` appears at once; an earlier result in it is replaced,
    anything else in it is an error. For the rules see :func:`parse_known`.
    """
    parts, others, left_out = find_classes(Path(root).expanduser())
    present = {wnid for classes in parts.values() for wnid in classes}
    split = parse_known(known, [wnid for wnid in wnids() if wnid in present], seed=seed, wordnet=wordnet)
    out = Path(out).expanduser().resolve()
    facts = {"rule": known, "seed": seed, "made by": MARK, "root": str(Path(root).absolute())}
    with _replaced(out) as fresh:
        for name, names in ((KNOWN, split.known), (NOVEL, split.novel)):
            (fresh / name).write_text("".join(f"{wnid}\n" for wnid in names))
        (fresh / FACTS).write_text(json.dumps({**facts, "classes found": len(present)}, indent=1) + "\n")
        made = _link_trees(fresh, split, parts) if links else 0
    absent = tuple(wnid for wnid in wnids() if wnid not in present)
    counts = {part: len(classes) for part, classes in parts.items()}
    return SplitResult(split, out, counts, absent, others, left_out, made)


def find_classes(root: Path) -> tuple[Parts, tuple[Path, ...], tuple[str, ...]]:
    """Return the classes by part, folders that are not classes, and why parts have no classes."""
    base, names = _parts(root)
    known = set(wnids())
    parts: dict[str, ClassFolders] = {}
    others: list[Path] = []
    left_out = []
    for part in names:
        folders = sorted(path for path in (base / part).iterdir() if path.is_dir())
        classes: ClassFolders = {path.name: path for path in folders if path.name in known}
        if classes:
            others += [path for path in folders if path.name not in classes]
        elif part == "val":
            classes, reason = _listed_images(root, base)
            left_out += reason
        if classes:
            parts[part] = classes
    if not parts:
        raise DataError(
            f"{root} must hold class folders named by wnids (n01440764, ...): expected them there, in train and val, "
            "or in ILSVRC/Data/CLS-LOC/train; unpack the class archives, or pass the folder above them"
        )
    return parts, tuple(others), tuple(left_out)


def _listed_images(root: Path, base: Path) -> tuple[ClassFolders, list[str]]:
    """Return validation images by class, if a list names the class of each, or why there are none."""
    read = tiny_imagenet if (base / "val" / "images").is_dir() else ilsvrc
    try:
        images = read(root, "val")
    except (DataError, MissingError) as error:
        return {}, [str(error)]
    known = set(wnids())
    classes: dict[str, list[Path]] = {}
    for path, label in zip(images.paths, images.labels.tolist(), strict=True):
        classes.setdefault(images.classes[label], []).append(Path(path))
    return {wnid: paths for wnid, paths in classes.items() if wnid in known}, []


def _parts(root: Path) -> tuple[Path, tuple[str, ...]]:
    """Return the folder that holds train and val, and which of them exist; ``("",)`` if it holds the classes itself."""
    if not root.is_dir():
        raise DataError(f"expected a folder with ILSVRC-2012 at {root}; there is none")
    for below in BASES:
        parts = tuple(part for part in PARTS if (root / below / part).is_dir())
        if parts:
            return root / below, parts
    return root, ("",)


def _link_trees(out: Path, split: Split, parts: Parts) -> int:
    made = 0
    for side, names in (("known", split.known), ("novel", split.novel)):
        for part, classes in parts.items():
            tree = out / side / part
            tree.mkdir(parents=True)
            for wnid in names:
                if wnid in classes:
                    made += _link_class(tree / wnid, classes[wnid])
    return made


def _link_class(link: Path, target: Path | list[Path]) -> int:
    """Make a link to a class folder, or a folder of links to images, and return the number of links."""
    if isinstance(target, Path):
        _link(link, target.absolute())
        return 1
    link.mkdir()
    for image in target:
        _link(link / image.name, image.absolute())
    return len(target)


def _link(link: Path, target: Path) -> None:
    try:
        link.symlink_to(target, target_is_directory=target.is_dir())
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(
            f"cannot make links in this folder ({reason}); choose an out folder on a disk that can hold links, "
            "or omit the links and use the class lists"
        ) from error


@contextmanager
def _replaced(out: Path) -> Iterator[Path]:
    """Yield a new folder that replaces ``out`` at the end."""
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
    """Raise unless ``out`` does not exist, is empty, or holds an earlier result and nothing else."""
    if not out.exists():
        return
    if not out.is_dir():
        raise DataError(f"out must be a folder, {out} is a file; choose another")
    content = list(out.iterdir())
    if not content:
        return
    foreign = next((path for path in content if path.name not in (KNOWN, NOVEL, FACTS, "known", "novel")), None)
    foreign = foreign or next((path for side in ("known", "novel") for path in _files(out / side)), None)
    if foreign is None and not (out / FACTS).is_file():
        foreign = content[0]
    if foreign is None and not _is_ours(out / FACTS):
        foreign = out / FACTS
    if foreign is not None:
        raise DataError(f"{out} must be empty or hold an earlier split, got {foreign.name}; choose another folder")


def _is_ours(path: Path) -> bool:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return isinstance(facts, dict) and facts.get("made by") == MARK


def _files(tree: Path) -> Iterator[Path]:
    """Yield files that are neither folders nor links."""
    for path in tree.iterdir() if tree.is_dir() else ():
        if path.is_symlink():
            continue
        if path.is_dir():
            yield from _files(path)
        else:
            yield path


def _listed(names: Sequence[str], most: int = 3) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
