"""Tiny-ImageNet from a local copy: 200 classes of ILSVRC at 64 x 64 pixels, in any of its layouts.

As published: ``train/<wnid>/images/*.JPEG``, ``val/images/*.JPEG`` with ``val/val_annotations.txt``, ``wnids.txt`` and
``words.txt``. Sorted: ``train/<wnid>/*.JPEG`` and ``val/<wnid>/*.JPEG``. Either as a folder or as an archive.
"""

import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from openradial.data import ImageFolder, download, scan
from openradial.errors import DataError
from paper.imagenet.listed import scan_listed

ANNOTATIONS = "val_annotations.txt"
NAMES = ("", "tiny-imagenet-200", "tiny-imagenet")  # folders that archives wrap it in


def tiny_imagenet(
    root: str | PathLike[str], split: str = "train", *, classes: Iterable[str] | None = None
) -> ImageFolder:
    """Return the images of one split; ``root`` is the folder, or a .tar, .tar.gz or .zip archive of it.

    Both splits have the classes of the training folder, so that their labels agree.
    """
    base = _base(Path(root).expanduser())
    wanted = _classes(base) if classes is None else tuple(classes)
    annotations = base / "val" / ANNOTATIONS
    if split == "val" and annotations.is_file() and (base / "val" / "images").is_dir():
        return scan_listed(base / "val" / "images", _annotated(annotations), classes=wanted)
    return scan(base / split, classes=wanted)


def _base(root: Path) -> Path:
    if root.is_file():
        root = unpacked(root)
    for name in NAMES:
        if (root / name / "train").is_dir():
            return root / name
    message = f"expected Tiny-ImageNet, the folders train and val in this folder or in {NAMES[1]}/"
    raise DataError(f"{message}; give the folder or the archive tiny-imagenet-200.zip", path=root)


def unpacked(archive: Path) -> Path:
    """Return the folder with the contents of an archive, unpacked once into the cache."""
    try:
        digest = download.checksum(archive, "sha256").partition(":")[2][:16]
        options = {"title": "Tiny-ImageNet", "licence": "research", "homepage": "https://image-net.org"}
        home = download.folder(download.Source(f"tiny-imagenet-{digest}", files={}, origins=(), size=0, **options))
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{home.name}-") as scratch:
            if not home.is_dir():
                made = Path(scratch) / "made"
                if zipfile.is_zipfile(archive):
                    shutil.unpack_archive(archive, made, "zip")
                else:
                    download.unpack_tar(archive, made)
                made.rename(home)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise DataError("expected a complete .tar, .tar.gz or .zip archive; get it again", path=archive) from error
    return home


def _classes(base: Path) -> tuple[str, ...]:
    listing = base / "wnids.txt"
    if listing.is_file():
        return tuple(sorted(listing.read_text(encoding="utf-8").split()))
    return tuple(sorted(entry.name for entry in (base / "train").iterdir() if entry.is_dir()))


def _annotated(path: Path) -> dict[str, str]:
    """Return the wnid of each file name; the numbers after them are boxes."""
    names = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        cells = line.split("\t")
        if len(cells) < 2:
            raise DataError(f"expected a file name, a tab and a wnid, got {line!r}", path=path, row=number)
        names[cells[0]] = cells[1]
    return names
