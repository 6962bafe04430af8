"""Texts: a folder of text files per class, and the column of a table that holds free text."""

from pathlib import Path

import torch

from openradial.data.readers.columns import Words, word_column
from openradial.data.readers.folder import image_files
from openradial.data.readers.tables import Table
from openradial.errors import DataError, listed
from openradial.files import expecting

COLUMN = "text"  # of the table that a folder becomes
UNIQUE, WORDS = 0.5, 3.0  # free text: at least this share of different values, and so many words on average


def holds_texts(root: Path) -> bool:
    """Return whether the class folders of a folder hold text files and no images."""
    return next(root.glob("*/*.txt"), None) is not None and next(image_files(root, {}), None) is None


def read_text_folder(root: Path, classes: tuple[str, ...] | None = None) -> Table:
    """Read the files ``root/class/*.txt``, sub-folders included, as a table with one column of texts."""
    names = tuple(sorted(each.name for each in root.iterdir() if each.is_dir() and not each.name.startswith(".")))
    order = names if classes is None else classes
    if novel := [name for name in names if name not in order]:
        raise DataError(f"the classes {listed(novel, 5)} are not in the training data; add or remove them", path=root)
    files = [(label, path) for label, name in enumerate(order) for path in sorted((root / name).rglob("*.txt"))]
    if empty := [name for label, name in enumerate(order) if classes is None and label not in {k for k, _ in files}]:
        raise DataError(f"the class folders {listed(empty, 5)} hold no text files (.txt); remove them", path=root)
    if others := [str(path.relative_to(root)) for _, path in files if not path.is_file()]:
        raise DataError(f"expected regular files, got pipes, devices or broken links: {listed(others, 5)}", path=root)
    texts = []
    for _, path in files:
        with expecting("text in UTF-8", path, "convert or remove it"):
            texts.append(path.read_text(encoding="utf-8-sig"))
    return Table({COLUMN: word_column(texts)}, torch.tensor([label for label, _ in files], dtype=torch.int64), order)


def other_files(root: Path) -> list[str]:
    """Return the files of a folder of texts that are not read, because their names do not end in ``.txt``."""
    others: dict[str, str] = {}
    paths = [*image_files(root, others), *others]
    return [str(Path(path).relative_to(root)) for path in sorted(paths) if not path.endswith(".txt")]


def free_text_column(table: Table) -> str | None:
    """Return the only column of a table if it holds free text: mostly different values of several words."""
    if len(table.columns) != 1:
        return None
    ((name, column),) = table.columns.items()
    if not isinstance(column, Words) or len(column.categories) < UNIQUE * len(column):
        return None
    return name if sum(len(text.split()) for text in column.categories) >= WORDS * len(column.categories) else None
