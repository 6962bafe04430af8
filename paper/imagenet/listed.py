"""Images in one folder, with the class of each file name from a list."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch

from openradial.data import ImageFolder, scan
from openradial.errors import DataError


def scan_listed(root: Path, names: dict[str, str], *, classes: Iterable[str] | None = None) -> ImageFolder:
    """Find the images in ``root``, with the class of each file name; others are left out and counted."""
    order = tuple(sorted(set(names.values())) if classes is None else classes)
    index = {name: i for i, name in enumerate(order)}
    folder = scan(root.parent, classes=[root.name])  # all images as one class
    files = {Path(path).name: path for path in folder.paths}
    kept = [name for name in files if names.get(name) in index]
    if not kept:
        message = f"none of the {len(files)} images is listed with a wanted class"
        raise DataError(f"{message}; check that the list of labels belongs to this folder", path=root)
    labels = torch.tensor([index[names[name]] for name in kept])
    folder = replace(folder, root=root, paths=[files[name] for name in kept], labels=labels, classes=order)
    report = replace(folder.report, root=root, images=len(kept), classes=len(order))
    folder = replace(folder, report=report).reported("of another class", [name for name in files if name not in kept])
    absent = sorted(name for name in set(names) - set(files) if names[name] in index)
    empty = [name for name, count in zip(order, folder.counts().tolist(), strict=True) if not count]
    return folder.reported("listed but absent", absent).reported("empty", empty)
