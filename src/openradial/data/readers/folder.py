"""Folders of images, one folder per class: listed at once, decoded and checked by workers."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor

from openradial.data.examples import Examples
from openradial.data.progress import bar
from openradial.data.readers.images import KINDS, is_animated, is_image
from openradial.data.workers import View, decode, default_workers
from openradial.errors import DataError, listed

PARTS = {"train", "val", "valid", "validation", "test"}
SHOWN = 5  # names that a report or message lists of one kind
UNREADABLE = "the folder cannot be read; change its permissions"
LEFT_OUT = ("not an image", "not a regular file", "outside of a class folder", "broken")
CHUNK = 256  # images that a worker decodes at a time


@dataclass(frozen=True)
class Report:
    """What a folder contains besides RGB images in class folders; ``print(report)`` shows it.

    Kinds: ``broken`` with what is wrong, ``empty`` classes, ``grey``, ``palette``, ``alpha``, ``16-bit`` and ``CMYK``
    images that are converted, ``animated`` ones, and files that are left out: ``not an image``, ``not a regular file``
    (a pipe, a device, a link that leads nowhere), ``outside of a class folder``, or ``of another class``.
    """

    root: Path
    images: int
    classes: int
    findings: dict[str, list[str]] = field(default_factory=dict)  # names of files by kind
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.root}: {self.images:,} images in {self.classes:,} classes"]
        for kind, names in self.findings.items():
            words = f"{kind}, converted" if kind in KINDS else kind
            lines.append(f"  {words}: {len(names):,} ({listed(names, SHOWN)})")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])

    def skipped(self) -> list[str]:
        """Return a sentence for each reason to leave files out, and for animations."""
        groups = {kind: self.findings[kind] for kind in LEFT_OUT if kind in self.findings}
        notes = [f"left out, {kind}: {len(each):,} ({listed(each, SHOWN)})" for kind, each in groups.items()]
        moving = self.findings.get("animated", [])
        return notes + [f"animated: {len(moving):,} ({listed(moving, SHOWN)}); the first frame is used"] * bool(moving)


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

    def reported(self, kind: str, names: Iterable[str]) -> "ImageFolder":
        """Return the folder with more files of one kind in its report."""
        findings = self.report.findings
        merged = [*findings.get(kind, ()), *names]
        return replace(self, report=replace(self.report, findings={**findings, kind: merged})) if merged else self

    def check(self, *, skip_broken: bool = False, workers: int | None = None) -> "ImageFolder":
        """Decode every image; return the folder with a full report, without broken ones if these are to be skipped."""
        view = View(size=1, crop=1.0)  # read to the last byte, but built up at the smallest scale a JPEG has
        return self._decoded("checking", view, skip_broken, workers, None)[0]

    def load(
        self, size: int, *, channels: int = 3, crop: float = 1.0, skip_broken: bool = False, workers: int | None = None
    ) -> Examples:
        """Decode all images, their centres resized to ``(channels, size, size)``."""
        view = View(size, channels, crop)
        wanted, free = len(self) * channels * size * size, free_memory()
        if free is not None and wanted > 0.9 * free:
            images = f"{len(self):,} images of {channels} x {size} x {size}"
            message = f"{images} take {wanted / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are free"
            raise DataError(f"{message}; decode them as they are needed (FolderBatches), or take a smaller size")
        inputs = torch.empty(len(self), channels, size, size, dtype=torch.uint8)
        folder, keep = self._decoded("decoding", view, skip_broken, workers, inputs)
        return Examples(inputs if len(folder) == len(self) else inputs[keep], folder.labels, self.classes)

    def _decoded(
        self, title: str, view: View, skip_broken: bool, workers: int | None, target: Tensor | None
    ) -> tuple["ImageFolder", Tensor]:
        """Decode all images, into ``target`` if it is given; return the folder with its report, and which are kept."""
        starts = range(0, len(self), CHUNK)
        requests = (self.paths[start : start + CHUNK] for start in starts)
        # processes take longer to start than a few images to decode
        processes = (default_workers() if workers is None else workers) if len(self) > CHUNK else 0
        broken: dict[int, str] = {}
        kinds: dict[int, str] = {}
        with bar(f"{title} {self.root.name}", len(self), unit="images") as advance:
            for start, (pixels, outcome) in zip(starts, decode(requests, view, CHUNK, workers=processes), strict=True):
                if target is not None:
                    target[start : start + len(pixels)] = pixels
                broken |= {start + i: reason for i, reason in outcome.broken.items()}
                kinds |= {start + i: kind for i, kind in outcome.kinds.items()}
                advance(len(pixels))
        folder = self.reported("broken", [f"{self._name(i)} {reason}" for i, reason in broken.items()])
        for kind in KINDS if target is None else ():
            folder = folder.reported(kind, [self._name(i) for i, found in kinds.items() if found == kind])
        keep = torch.ones(len(self), dtype=torch.bool)
        keep[list(broken)] = False
        return folder._without_broken(keep, skip_broken) if broken else folder, keep

    def _name(self, index: int) -> str:
        return os.path.relpath(self.paths[index], self.root)

    def _without_broken(self, keep: Tensor, skip_broken: bool) -> "ImageFolder":
        """Return the folder without broken images; raise if these are not to be skipped."""
        if not skip_broken:
            broken = listed(self.report.findings["broken"], SHOWN)
            message = f"{int((~keep).sum())} of {len(self)} images are broken: {broken}; replace them"
            raise DataError(f"{message}, or leave them out with skip_broken=True (--skip-broken)", path=self.root)
        paths = [self.paths[i] for i in keep.nonzero()[:, 0].tolist()]
        report = replace(self.report, images=len(paths))
        folder = ImageFolder(self.root, paths, self.labels[keep], self.classes, report)
        return folder.reported("empty", _without_images(folder.labels, self.classes))


def scan(root: str | PathLike[str], *, classes: Iterable[str] | None = None) -> ImageFolder:
    """Find the images in ``root/class/``, sub-folders included; classes and files are sorted by name.

    Only files that may be animated or do not have the ending of an image are opened. ``classes`` keeps these classes
    only, in this order. Hidden files and ``__MACOSX`` are ignored, links are followed.
    """
    root = Path(root).expanduser()
    folders, loose = _class_folders(root)
    names = _wanted(root, folders, classes)
    paths: list[str] = []
    labels: list[int] = []
    others: dict[str, str] = {}
    with bar(f"scanning {root.name}", len(names), unit="classes") as advance:
        for label, name in enumerate(names):
            paths += image_files(folders[name], others, {identity_of(root)})
            labels += [label] * (len(paths) - len(labels))
            advance(1)
    empty = _without_images(torch.tensor(labels, dtype=torch.int64), names)
    if empty:
        message = f"{len(empty)} of {len(names)} class folders hold no images"
        raise DataError(f"{message}: {listed(empty, SHOWN)}; remove them", path=root)
    others |= dict.fromkeys(loose, "outside of a class folder")
    return _folder(root, paths, labels, names, others)


def scan_unlabelled(root: str | PathLike[str]) -> ImageFolder:
    """Find all images in a folder and below. The class of an image is the folder below ``root``, or ``root`` itself."""
    root = Path(root).expanduser()
    others: dict[str, str] = {}
    paths = list(image_files(root, others))
    parts = [Path(path).relative_to(root).parts for path in paths]
    classes = [part[0] if len(part) > 1 else root.name for part in parts]
    names = sorted(set(classes))
    return _folder(root, paths, [names.index(name) for name in classes], names, others)


def _folder(
    root: Path, paths: list[str], labels: list[int], classes: Sequence[str], others: Mapping[str, str]
) -> ImageFolder:
    report = Report(root, len(paths), len(classes))
    folder = ImageFolder(root, paths, torch.tensor(labels, dtype=torch.int64), tuple(classes), report)
    kinds = dict.fromkeys(others.values())
    groups = {kind: [path for path in sorted(others) if others[path] == kind] for kind in kinds}
    for kind, files in {**groups, "animated": filter(is_animated, paths)}.items():
        folder = folder.reported(kind, [os.path.relpath(path, root) for path in files])
    return folder


def skipped(root: Path, others: Mapping[str, str]) -> list[str]:
    """Return a sentence for each reason to leave out the files that :func:`image_files` found besides images."""
    return _folder(root, [], [], (), others).report.skipped()


def compare_classes(train: ImageFolder | Examples, validation: ImageFolder | Examples) -> None:
    """Raise unless both sets have the same classes in the same order."""
    if train.classes == validation.classes:
        return
    first, second = dict.fromkeys(train.classes), dict.fromkeys(validation.classes)
    only = {"training": [name for name in first if name not in second]}
    only["validation"] = [name for name in second if name not in first]
    differ = "; ".join(f"{len(names)} only in {part}: {listed(names, SHOWN)}" for part, names in only.items() if names)
    if not differ:
        message = "the classes of training and validation are the same but in another order: their labels differ"
        raise DataError(f"{message}; scan the validation folder with classes=train.classes")
    message = f"training and validation must have the same classes, but {differ}"
    raise DataError(f"{message}; rename the folders, or scan both with classes= the names they share")


def free_memory() -> int | None:
    """Return how many bytes of memory are available without swapping; None if the system does not tell."""
    meminfo = Path("/proc/meminfo")
    lines = meminfo.read_text().splitlines() if meminfo.exists() else []
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def _class_folders(root: Path) -> tuple[dict[str, str], list[str]]:
    """Return the folders by name, and the paths of images beside them."""
    try:
        entries = [entry for entry in os.scandir(root) if not _is_hidden(entry.name)]
    except FileNotFoundError:
        raise DataError("the folder does not exist; give one with a folder of images per class", path=root) from None
    except NotADirectoryError:
        raise DataError("this is a file; give a folder with one folder of images per class", path=root) from None
    except PermissionError:
        raise DataError(UNREADABLE, path=root) from None
    folders = {entry.name: entry.path for entry in entries if _kind(entry) == "folder"}
    loose = sorted(entry.path for entry in entries if _kind(entry) == "file" and is_image(entry.path))
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
    if set(names) <= PARTS and all(any(map(Path.is_dir, Path(folders[name]).iterdir())) for name in names):
        message = f"expected folders of classes, got the parts {', '.join(names)}"
        raise DataError(f"{message}; give one of them: {root / names[0]}", path=root)
    folded: dict[str, str] = {}
    for name in names:
        twin = folded.setdefault(name.casefold(), name)
        if twin != name:
            message = f"the class folders {twin!r} and {name!r} differ in case only"
            raise DataError(f"{message}; merge or rename them, or in Python name all with classes=", path=root)
    return names


def image_files(
    folder: str | PathLike[str], left_out: dict[str, str], visited: set[tuple[int, int]] | None = None
) -> Iterator[str]:
    """Yield the image files in a folder and below, sorted by path, one after the other.

    Only regular files are images; ``left_out`` gets the paths of others, with what they are. Links are followed, but
    no folder is entered twice: ``visited`` are those that were entered before. Without it, each folder directly below
    may be entered once, because these may be classes that share images. Hidden files and ``__MACOSX`` are ignored.
    """
    identity = identity_of(folder)
    if visited is not None and identity in visited:
        return
    try:
        kinds = {entry.path: _kind(entry) for entry in os.scandir(folder) if not _is_hidden(entry.name)}
    except PermissionError:
        raise DataError(UNREADABLE, path=folder) from None
    if visited is not None:
        visited.add(identity)
    # a folder is sorted as if its name ended in a slash: the order is that of the complete paths
    for path in sorted(kinds, key=lambda path: path + "/" if kinds[path] == "folder" else path):
        if kinds[path] == "folder":
            yield from image_files(path, left_out, {identity} if visited is None else visited)
        elif kinds[path] == "file" and is_image(path):
            yield path
        else:
            left_out[path] = "not an image" if kinds[path] == "file" else "not a regular file"


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
