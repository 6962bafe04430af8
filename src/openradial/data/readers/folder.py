"""Folders of images, one folder per class: listed at once, decoded and checked by workers."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from openradial.data.examples import Examples
from openradial.data.progress import bar
from openradial.data.readers.images import ENDINGS, KINDS
from openradial.data.workers import Request, View, decode, default_workers
from openradial.errors import DataError, listed

PARTS = {"train", "val", "valid", "validation", "test"}
SHOWN = 5  # names that a report or message lists of one kind
CHUNK = 256  # images that a worker decodes at a time


@dataclass(frozen=True)
class Finding:
    """How many files are of one kind, and the names of the first few."""

    count: int
    names: tuple[str, ...]

    def listing(self) -> str:
        more = self.count - len(self.names)
        return ", ".join(self.names) + (f" and {more:,} more" if more else "")


@dataclass(frozen=True)
class Report:
    """What a folder contains besides RGB images in class folders; ``print(report)`` shows it.

    Kinds: ``broken`` with what is wrong, ``empty`` classes, ``grey``, ``palette``, ``alpha``, ``16-bit`` and ``CMYK``
    images that are converted, and files ``left out``: without the ending of an image, outside of a class folder, not
    regular files, or of another class.
    """

    root: Path
    images: int
    classes: int
    findings: dict[str, Finding] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def count(self, kind: str) -> int:
        return self.findings[kind].count if kind in self.findings else 0

    def __str__(self) -> str:
        lines = [f"{self.root}: {self.images:,} images in {self.classes:,} classes"]
        for kind, finding in self.findings.items():
            words = f"{kind}, converted" if kind in KINDS else kind
            lines.append(f"  {words}: {finding.count:,} ({finding.listing()})")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])

    def add(self, kind: str, names: Sequence[str]) -> "Report":
        """Return the report with more files of one kind."""
        if not names:
            return self
        before = self.findings.get(kind, Finding(0, ()))
        merged = Finding(before.count + len(names), (*before.names, *names)[:SHOWN])
        return replace(self, findings={**self.findings, kind: merged})


@dataclass(frozen=True, eq=False)
class ImageFolder:
    """Image files with their labels: ``labels`` ``(n,)`` int64 are indices into ``classes``."""

    root: Path
    paths: list[str]
    labels: Tensor
    classes: tuple[str, ...]
    report: Report

    def __len__(self) -> int:
        return len(self.paths)

    def counts(self) -> Tensor:
        """Return how many images each class has, ``(k,)``."""
        return torch.bincount(self.labels, minlength=len(self.classes))

    def noted(self, *notes: str) -> "ImageFolder":
        """Return the folder with more notes in its report."""
        return replace(self, report=replace(self.report, notes=(*self.report.notes, *notes)))

    def reported(self, kind: str, names: Sequence[str]) -> "ImageFolder":
        """Return the folder with more files of one kind in its report."""
        return replace(self, report=self.report.add(kind, names))

    def check(self, *, skip_broken: bool = False, workers: int | None = None) -> "ImageFolder":
        """Decode every image; return the folder with a full report, without broken ones if these are to be skipped."""
        view = View(size=1, crop=1.0)  # read to the last byte, but built up at the smallest scale a JPEG has
        return self._decoded("checking", view, skip_broken, workers, None)[0]

    def load(
        self,
        size: int,
        *,
        channels: int = 3,
        crop: float = 1.0,
        skip_broken: bool = False,
        workers: int | None = None,
    ) -> Examples:
        """Decode all images, their centres resized to ``(channels, size, size)``."""
        self._check_memory(size, channels)
        inputs = torch.empty(len(self), channels, size, size, dtype=torch.uint8)
        folder, keep = self._decoded("decoding", View(size, channels, crop), skip_broken, workers, inputs)
        return Examples(inputs if len(folder) == len(self) else inputs[keep], folder.labels, self.classes)

    def _decoded(
        self, title: str, view: View, skip_broken: bool, workers: int | None, target: Tensor | None
    ) -> tuple["ImageFolder", Tensor]:
        """Decode all images, into ``target`` if it is given; return the folder with its report, and which are kept."""
        starts = range(0, len(self), CHUNK)
        requests = (Request(self.paths[start : start + CHUNK]) for start in starts)
        # processes take longer to start than a few images to decode
        processes = (default_workers() if workers is None else workers) if len(self) > CHUNK else 0
        report, keep = self.report, torch.ones(len(self), dtype=torch.bool)
        with bar(f"{title} {self.root.name}", len(self), unit="images") as advance:
            for start, (pixels, outcome) in zip(starts, decode(requests, view, CHUNK, workers=processes), strict=True):
                if target is not None:
                    target[start : start + len(pixels)] = pixels
                kinds = {} if target is not None else self._names(start, outcome.kinds)
                report = _with(report, self._names(start, outcome.broken), kinds)
                keep[[start + i for i in outcome.broken]] = False
                advance(len(pixels))
        return self._without(keep, report, skip_broken), keep

    def _names(self, start: int, reasons: dict[int, str]) -> dict[str, str]:
        return {os.path.relpath(self.paths[start + i], self.root): reason for i, reason in reasons.items()}

    def _without(self, keep: Tensor, report: Report, skip_broken: bool) -> "ImageFolder":
        """Return the folder without broken images; raise if there are some and they are not to be skipped."""
        if keep.all():
            return replace(self, report=report)
        broken = report.findings["broken"]
        if not skip_broken:
            raise DataError(
                f"{int((~keep).sum())} of {len(self)} images are broken: {broken.listing()}; replace them, or leave "
                "them out with skip_broken=True (--skip-broken)",
                path=self.root,
            )
        paths = [path for path, whole in zip(self.paths, keep.tolist(), strict=True) if whole]
        labels = self.labels[keep]
        report = replace(report, images=len(paths))
        report = report.add("empty", _without_images(labels, self.classes))
        return ImageFolder(self.root, paths, labels, self.classes, report)

    def _check_memory(self, size: int, channels: int) -> None:
        View(size, channels).check()
        wanted, free = len(self) * channels * size * size, free_memory()
        if free is not None and wanted > 0.9 * free:
            raise DataError(
                f"{len(self):,} images of {channels} x {size} x {size} take {wanted / 1e9:.1f} GB of memory and "
                f"{free / 1e9:.1f} GB are free; decode them as they are needed (FolderBatches), or take a smaller size"
            )


class HasClasses(Protocol):
    @property
    def classes(self) -> tuple[str, ...]: ...


def scan(root: str | PathLike[str], *, classes: Iterable[str] | None = None, allow_empty: bool = False) -> ImageFolder:
    """Find the images in ``root/class/``, sub-folders included; classes and files are sorted by name.

    No file is opened. ``classes`` keeps these classes only, in this order. Hidden files and ``__MACOSX`` are ignored,
    links are followed.
    """
    root = Path(root).expanduser()
    folders, loose = _class_folders(root)
    names = _wanted(root, folders, classes)
    paths: list[str] = []
    labels: list[int] = []
    others: list[str] = []
    with bar(f"scanning {root.name}", len(names), unit="classes") as advance:
        for label, name in enumerate(names):
            paths += image_files(folders[name], others, {identity_of(root)})
            labels += [label] * (len(paths) - len(labels))
            advance(1)
    left_out = [os.path.relpath(path, root) for path in sorted(others)] + loose
    empty = _without_images(torch.tensor(labels, dtype=torch.int64), names)
    if empty and not allow_empty:
        raise DataError(
            f"{len(empty)} of {len(names)} class folders hold no images ({', '.join(ENDINGS)}): "
            f"{listed(empty, SHOWN)}; remove them, or keep them with allow_empty=True",
            path=root,
        )
    return _folder(root, paths, labels, names).reported("left out", left_out).reported("empty", empty)


def scan_unlabelled(root: str | PathLike[str]) -> ImageFolder:
    """Find all images in a folder and below. The class of an image is the folder below ``root``, or ``root`` itself."""
    root = Path(root).expanduser()
    others: list[str] = []
    paths = list(image_files(root, others))
    parts = [Path(path).relative_to(root).parts for path in paths]
    classes = [part[0] if len(part) > 1 else root.name for part in parts]
    names = sorted(set(classes))
    folder = _folder(root, paths, [names.index(name) for name in classes], names)
    return folder.reported("left out", [os.path.relpath(path, root) for path in sorted(others)])


def _folder(root: Path, paths: list[str], labels: list[int], classes: Sequence[str]) -> ImageFolder:
    report = Report(root, len(paths), len(classes))
    return ImageFolder(root, paths, torch.tensor(labels, dtype=torch.int64), tuple(classes), report)


def scan_listed(root: Path, names: dict[str, str], *, classes: Iterable[str] | None = None) -> ImageFolder:
    """Find images directly in ``root``, with the class of each file name; others are left out and counted."""
    order = tuple(sorted(set(names.values())) if classes is None else classes)
    index = {name: i for i, name in enumerate(order)}
    entries = (entry for entry in os.scandir(root) if is_image(entry.name) and not _is_hidden(entry.name))
    files = sorted(entry.name for entry in entries if _kind(entry) == "file")
    kept = [name for name in files if names.get(name) in index]
    if not kept:
        raise DataError(
            f"none of the {len(files)} images is listed with a wanted class; check that the list of labels belongs to "
            "this folder",
            path=root,
        )
    folder = _folder(root, [str(root / name) for name in kept], [index[names[name]] for name in kept], order)
    absent = sorted(name for name in set(names) - set(files) if names[name] in index)
    folder = folder.reported("left out", sorted(set(files) - set(kept))).reported("listed but absent", absent)
    return folder.reported("empty", _without_images(folder.labels, order))


def compare_classes(train: HasClasses, validation: HasClasses) -> None:
    """Raise unless both sets have the same classes in the same order."""
    if train.classes == validation.classes:
        return
    missing = [name for name in train.classes if name not in set(validation.classes)]
    unknown = [name for name in validation.classes if name not in set(train.classes)]
    if not missing and not unknown:
        raise DataError(
            "the classes of training and validation are the same but in another order: their labels differ; "
            "scan the validation folder with classes=train.classes"
        )
    differ = [
        f"{len(names)} only in {part}: {listed(names, SHOWN)}"
        for part, names in (("training", missing), ("validation", unknown))
        if names
    ]
    raise DataError(
        f"training and validation must have the same classes, but {'; '.join(differ)}; rename the folders, or scan "
        "both with classes= the names they share"
    )


def free_memory() -> int | None:
    """Return how many bytes of memory are available without swapping; None if the system does not tell."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def is_image(name: str) -> bool:
    return name.lower().endswith(ENDINGS)


def _class_folders(root: Path) -> tuple[dict[str, str], list[str]]:
    """Return the folders by name, and the names of images beside them."""
    try:
        entries = [entry for entry in os.scandir(root) if not _is_hidden(entry.name)]
    except FileNotFoundError:
        raise DataError("the folder does not exist; give one with a folder of images per class", path=root) from None
    except NotADirectoryError:
        raise DataError("this is a file; give a folder with one folder of images per class", path=root) from None
    except PermissionError:
        raise DataError("the folder cannot be read; change its permissions", path=root) from None
    folders = {entry.name: entry.path for entry in entries if _kind(entry) == "folder"}
    loose = sorted(entry.name for entry in entries if is_image(entry.name) and entry.name not in folders)
    if not folders:
        content = f"{len(loose)} images and no folders" if loose else "no folders"
        raise DataError(f"expected one folder of images per class, as in {root}/cat/1.jpg, got {content}", path=root)
    return folders, loose


def _wanted(root: Path, folders: dict[str, str], classes: Iterable[str] | None) -> list[str]:
    if classes is not None:
        names = list(classes)
        missing = [name for name in names if name not in folders]
        if missing:
            message = f"there is no folder for {len(missing)} of {len(names)} classes: {listed(missing, SHOWN)}"
            raise DataError(message, path=root)
        return names
    names = sorted(folders)
    if set(names) <= PARTS and all(_has_folders(folders[name]) for name in names):
        raise DataError(
            f"expected folders of classes, got the parts {', '.join(names)}; give one of them: {root / names[0]}",
            path=root,
        )
    folded: dict[str, str] = {}
    for name in names:
        twin = folded.setdefault(name.casefold(), name)
        if twin != name:
            raise DataError(
                f"the class folders {twin!r} and {name!r} differ in case only; merge or rename them, or name all "
                "classes with classes=",
                path=root,
            )
    return names


def _has_folders(folder: str) -> bool:
    return any(entry.is_dir() for entry in Path(folder).iterdir())


def image_files(
    folder: str | PathLike[str], left_out: list[str], visited: set[tuple[int, int]] | None = None
) -> Iterator[str]:
    """Yield the image files in a folder and below, sorted by path, one after the other.

    Only regular files are images; others are appended to ``left_out``. Links are followed, but no folder is entered
    twice: ``visited`` are those that were entered before. Without it, each folder directly below may be entered once,
    because these may be classes that share images. Hidden files and ``__MACOSX`` are ignored.
    """
    identity = identity_of(folder)
    if visited is not None and identity in visited:
        return
    try:
        kinds = {entry.path: _kind(entry) for entry in os.scandir(folder) if not _is_hidden(entry.name)}
    except PermissionError:
        raise DataError("the folder cannot be read; change its permissions", path=folder) from None
    if visited is not None:
        visited.add(identity)
    # a folder is sorted as if its name ended in a slash: the order is that of the complete paths
    for path in sorted(kinds, key=lambda path: path + "/" if kinds[path] == "folder" else path):
        if kinds[path] == "folder":
            yield from image_files(path, left_out, {identity} if visited is None else visited)
        elif kinds[path] == "file" and is_image(path):
            yield path
        else:
            left_out.append(path)


def identity_of(folder: str | PathLike[str]) -> tuple[int, int]:
    """Return what tells one folder from another, whatever links lead to it."""
    facts = os.stat(folder)
    return facts.st_dev, facts.st_ino


def _kind(entry: os.DirEntry[str]) -> str:
    """Return "folder", "file" for a regular file, or "other", which includes links that lead nowhere."""
    try:
        return "folder" if entry.is_dir() else "file" if entry.is_file() else "other"
    except OSError:  # a link that leads to itself
        return "other"


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _without_images(labels: Tensor, classes: Sequence[str]) -> list[str]:
    counts = torch.bincount(labels, minlength=len(classes)).tolist()
    return [name for name, count in zip(classes, counts, strict=True) if not count]


def _with(report: Report, broken: dict[str, str], kinds: dict[str, str]) -> Report:
    report = report.add("broken", [f"{name} {reason}" for name, reason in broken.items()])
    for kind in KINDS:
        report = report.add(kind, [name for name, found in kinds.items() if found == kind])
    return report
