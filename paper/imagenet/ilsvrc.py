"""ILSVRC-2012 from a local copy in one of its usual layouts.

``train/<wnid>/*.JPEG`` and ``val/<wnid>/*.JPEG``, or a flat ``val/*.JPEG`` with one of: ``LOC_val_solution.csv``
(Kaggle), a list ``file wnid`` (``val_annotations.txt`` or ``val.txt``), or the development kit (needs SciPy).
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import replace
from os import PathLike
from pathlib import Path

from openradial.data import ImageFolder, scan
from openradial.errors import DataError, MissingError, OptionError
from paper.imagenet.ilsvrc_classes import wnids
from paper.imagenet.listed import scan_listed

BASES = ("", "ILSVRC/Data/CLS-LOC", "Data/CLS-LOC", "CLS-LOC")
KAGGLE = "LOC_val_solution.csv"
LISTS = ("val_annotations.txt", "val.txt")
TRUTH = "ILSVRC2012_validation_ground_truth.txt"
DEVKITS = ("ILSVRC2012_devkit_t12/data", "devkit/data", "data", "")
FILE = "ILSVRC2012_val_{:08d}.JPEG"


def ilsvrc(root: str | PathLike[str], split: str = "train", *, classes: Iterable[str] | None = None) -> ImageFolder:
    """Return the images of one split.

    Labels follow the sorted wnids, as in all published models, or the given ``classes``. A copy with fewer
    than the 1000 classes is accepted; the report says so.
    """
    if split not in ("train", "val"):
        raise OptionError(f"split must be 'train' or 'val', got {split!r}")
    root = Path(root).expanduser()
    base = _base(root, split)
    wanted = tuple(classes) if classes is not None else _train_classes(base)
    if split == "train" or any(entry.is_dir() for entry in (base / split).iterdir()):
        folder = scan(base / split, classes=wanted)
    else:
        folder = scan_listed(base / split, _flat_labels(root, base), classes=wanted)
    return folder if classes is not None else _with_note(folder)


def _base(root: Path, split: str) -> Path:
    for name in BASES:
        if (root / name / split).is_dir():
            return root / name
    packed = sorted(root.glob("ILSVRC2012_img_*.tar"))
    way_out = f"unpack {packed[0].name} first" if packed else f"expected {split}/ there or in {BASES[1]}/"
    raise DataError(f"{root} holds no folder {split} of ILSVRC-2012; {way_out}")


def _train_classes(base: Path) -> tuple[str, ...] | None:
    """Return the classes of training where there is a training folder, so that labels agree."""
    train = base / "train"
    names = sorted(entry.name for entry in train.iterdir() if entry.is_dir()) if train.is_dir() else []
    return tuple(name for name in names if not name.startswith(".")) or None


def _with_note(folder: ImageFolder) -> ImageFolder:
    known = set(wnids())
    notes = []
    if len(folder.classes) < len(known):
        notes.append(f"{len(folder.classes)} of the 1000 classes of ILSVRC-2012: labels differ from published models")
    others = [name for name in folder.classes if name not in known]
    if others:
        notes.append(f"{len(others)} folders are not classes of ILSVRC-2012, such as {others[0]}")
    return replace(folder, report=replace(folder.report, notes=(*folder.report.notes, *notes)))


def _flat_labels(root: Path, base: Path) -> dict[str, str]:
    """Map the names of validation images in one folder to their wnids."""
    for folder in dict.fromkeys((root, base, base / "val", *list(base.parents)[:2])):
        if (folder / KAGGLE).is_file():
            return _kaggle(folder / KAGGLE)
        for name in LISTS:
            if (folder / name).is_file():
                return _listed(folder / name)
        for kit in DEVKITS:
            if (folder / kit / TRUTH).is_file():
                return _devkit(folder / kit)
    raise DataError(
        f"{base / 'val'} has no class folders, and no list of labels is in {root}: expected {KAGGLE}, {LISTS[0]} with "
        f"lines 'file wnid', or {DEVKITS[0]}/{TRUTH}"
    )


def _kaggle(path: Path) -> dict[str, str]:
    """Rows ``ILSVRC2012_val_00048981,n03995372 85 1 499 272``: the first word is the class, the rest are boxes."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    try:
        return {f"{row['ImageId']}.JPEG": row["PredictionString"].split()[0] for row in rows}
    except (KeyError, IndexError, AttributeError) as error:
        raise DataError(
            f"{path}: expected the columns ImageId and PredictionString with a wnid in every row; get the file again"
        ) from error


def _listed(path: Path) -> dict[str, str]:
    return dict(_pairs(path))


def _pairs(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        cells = line.split()
        if not cells:
            continue
        if len(cells) < 2 or not (cells[1].startswith("n") and cells[1][1:].isdigit()):
            raise DataError(
                f"{path}, line {number}: expected 'file wnid' such as '{FILE.format(1)} n01751748', got {line!r}"
            )
        yield Path(cells[0]).name, cells[1]


def _devkit(folder: Path) -> dict[str, str]:
    """Image i has the ILSVRC2012_ID in line i; ``meta.mat`` translates it to a wnid."""
    try:
        import scipy.io  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingError(
            "reading meta.mat of the development kit needs the package scipy; pip install scipy"
        ) from error
    meta = folder / "meta.mat"
    if not meta.is_file():
        raise DataError(f"{folder} has {TRUTH} but no meta.mat; unpack the complete development kit there")
    rows = scipy.io.loadmat(meta, squeeze_me=True)["synsets"]
    translated = {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in rows}
    numbers = (folder / TRUTH).read_text(encoding="utf-8").split()
    try:
        return {FILE.format(i): translated[int(number)] for i, number in enumerate(numbers, start=1)}
    except (KeyError, ValueError) as error:
        raise DataError(f"{folder / TRUTH} holds {error}, which is not an ILSVRC2012_ID of meta.mat") from error
