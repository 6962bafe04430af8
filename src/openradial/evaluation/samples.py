"""Data to evaluate a bundle on: known classes with their labels, and novel data."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from openradial.classifier import OpenClassifier
from openradial.classifier.predictions import Labels
from openradial.data import sources
from openradial.data.inputs import TableInputs
from openradial.data.readers.folder import ImageFolder
from openradial.data.readers.tables import Table
from openradial.data.sources import Data, RawInput
from openradial.errors import DataError, listed


@dataclass(frozen=True, eq=False)
class Sample:
    """Inputs to predict; ``labels`` ``(n,)`` are indices into the bundle's classes, -1 for novel ones."""

    name: str
    rows: list[RawInput]
    labels: Labels
    truths: tuple[str, ...]  # the class of each row, as far as the data tell
    notes: tuple[str, ...] = ()


def known_sample(bundle: OpenClassifier, data: str, label: str | None = None) -> Sample:
    """Return the examples of the classes that a bundle knows; those of other classes are left out and noted.

    ``data`` is what ``openradial fit`` takes. Of data with a test part, that part is used.
    """
    fitted = bundle.metadata.get("data")
    fitted = fitted if isinstance(fitted, dict) else {}
    if bundle.preprocessing.columns and label is None and not Path(data).is_dir():
        label = fitted.get("label")
    examples, has_test = _open(bundle, data, label, labelled=True)
    labels = _labels(bundle, examples)
    keep = np.flatnonzero(labels >= 0)
    if not len(keep):
        raise DataError(
            f"{data} holds none of the classes that the model knows: it has {listed(list(examples.classes))}, the "
            f"model knows {listed(list(bundle.classes))}"
        )
    left = sorted({examples.classes[k] for k in examples.labels[torch.from_numpy(labels < 0)].tolist() if k >= 0})
    notes = [f"left out of {data}: {listed(left, 5)}, which the model does not know"] if left else []
    if not has_test and Path(data).name == fitted.get("name"):
        notes.append(f"the model was fitted on data called {Path(data).name}: if it is these, the numbers are too good")
    truths = tuple(bundle.classes[k] for k in labels[keep].tolist())
    return Sample(_title(data), _rows(examples, keep, data), labels[keep], truths, tuple(notes))


def novel_sample(bundle: OpenClassifier, data: str, label: str | None = None) -> Sample:
    """Return data of no known class; classes that the bundle knows are left out and noted."""
    examples, _ = _open(bundle, data, label, labelled=False)
    labels = _labels(bundle, examples)
    keep = np.flatnonzero(labels < 0)
    left = sorted({bundle.classes[k] for k in labels[labels >= 0].tolist()})
    if not len(keep):
        raise DataError(f"{data} holds no novel data{': the model knows all of its classes' if left else ''}")
    names = (*examples.classes, _title(data))  # label -1 selects the last one
    truths = tuple(names[k] for k in examples.labels[torch.from_numpy(keep)].tolist())
    notes = (f"left out of {data}: {listed(left, 5)}, which the model knows",) if left else ()
    name = f"{_title(data)}, other classes" if left else _title(data)
    return Sample(name, _rows(examples, keep, data), np.full(len(keep), -1), truths, notes)


def _open(bundle: OpenClassifier, data: str, label: str | None, labelled: bool) -> tuple[Data, bool]:
    """Open data of the kind that the bundle takes; return the test part if there is one, and whether there is."""
    inputs = bundle.preprocessing
    encoder = inputs.encoder if isinstance(inputs, TableInputs) else None
    options: dict[str, Any] = {} if encoder is None else {"features": encoder.columns, "words": encoder.word_columns}
    if inputs.kind == "texts" and inputs.columns:
        options = {"text": inputs.columns[0]}
    source = sources.open(data, label=label, labelled=labelled, **options)
    if source.kind != inputs.kind:
        raise DataError(f"the model takes {inputs.kind}, but {data} holds {source.kind}")
    return source.train if source.test is None else source.test, source.test is not None


def _title(data: str) -> str:
    """Return the last two parts of a path, which tell more than its first ones.

    >>> _title("/data/animals/test"), _title("digits")
    ('animals/test', 'digits')
    """
    return "/".join(part for part in Path(data).parts[-2:] if part != "/")


def _labels(bundle: OpenClassifier, data: Data) -> Labels:
    """Return the labels as indices into the bundle's classes, -1 for all others."""
    index = {name: i for i, name in enumerate(bundle.classes)}
    table = np.array([*(index.get(name, -1) for name in data.classes), -1])  # label -1 selects the last one
    labels: Labels = table[data.labels.numpy()]
    return labels


def _rows(data: Data, keep: Labels, name: str) -> list[RawInput]:
    if isinstance(data, ImageFolder):
        return [RawInput(data.paths[i], data.paths[i]) for i in keep.tolist()]
    which = torch.from_numpy(keep)
    if isinstance(data, Table):
        values: Any = data.select(which).rows()
    else:
        values = data.inputs[which].numpy()
        values = values.transpose(0, 2, 3, 1) if values.ndim == 4 else values
    return [RawInput(f"{name}:{i + 1}", row) for i, row in zip(keep.tolist(), values, strict=True)]
