"""What one wants to know after fitting: how often it is right, what it promised and kept, where it is weak."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openradial.classifier import OpenClassifier
from openradial.conformal import FalseRejectReport, false_reject_report
from openradial.metrics import auroc
from openradial.training import BatchSource

MOST = 10  # confused pairs and hard classes that are named
SMALL = 12  # classes of which a whole table is shown


class Said(NamedTuple):
    """What a classifier says of a part of the data."""

    labels: Tensor  # (n,) the true ones
    decided: Tensor  # (n,) -1 where rejected
    nearest: Tensor  # (n,)
    scores: Tensor  # (n,)


class Confusion(NamedTuple):
    """How often a class was taken for another one, nothing rejected."""

    true: str
    said: str
    times: int


class ClassAccuracy(NamedTuple):
    """How often a class was recognised, nothing rejected, and how often it was rejected."""

    name: str
    accuracy: float
    rejected: float
    examples: int


@dataclass(frozen=True)
class NovelReport:
    """What became of examples of classes that were left out."""

    classes: tuple[str, ...]
    examples: int
    auroc: float
    detected: float  # share that is called unknown


@dataclass(frozen=True)
class FitReport:
    """Numbers on known examples that served nothing else; all None where there were too few for that."""

    accuracy: float | None
    false_rejects: FalseRejectReport | None
    matrix: tuple[tuple[int, ...], ...] | None  # rows: true classes, columns: nearest ones; of few classes only
    confused: tuple[Confusion, ...]
    hardest: tuple[ClassAccuracy, ...]
    novel: NovelReport | None
    examples: Mapping[str, int]
    seconds: float
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON can hold it."""
        values = asdict(self)
        values["confused"] = [pair._asdict() for pair in self.confused]
        values["hardest"] = [entry._asdict() for entry in self.hardest]
        return values


@torch.no_grad()
def say(classifier: OpenClassifier, source: BatchSource) -> Said:
    """Let a classifier decide on all examples of a source."""
    parts = []
    for x, y in source.epoch(0):
        answer = classifier.answer(x)
        parts.append((y, answer.labels, answer.nearest, answer.unknown_score))
    return Said(*(torch.cat(column) for column in zip(*parts, strict=True)))


def make_report(
    classifier: OpenClassifier,
    classes: tuple[str, ...],
    known: Said | None,
    novel: Said | None,
    novel_classes: tuple[str, ...],
    *,
    examples: Mapping[str, int],
    seconds: float,
    notes: tuple[str, ...] = (),
) -> FitReport:
    """The report of a classifier on known examples that nothing else was done with, and on novel ones."""
    if known is None:
        return FitReport(None, None, None, (), (), None, examples, seconds, notes)
    assert classifier.rejector is not None
    rejects = false_reject_report(known.scores, classifier.rejector)
    accuracy = float((known.nearest == known.labels).double().mean())
    found = None
    if novel is not None:
        detected = float((novel.decided < 0).double().mean())
        found = NovelReport(novel_classes, len(novel.scores), auroc(known.scores, novel.scores), detected)
    matrix = None
    if len(classes) <= SMALL:
        counts = confusion_matrix(known.labels, known.nearest, len(classes)).tolist()
        matrix = tuple(tuple(row) for row in counts)
    pairs, hard = confused(known, classes), hardest(known, classes)
    return FitReport(accuracy, rejects, matrix, pairs, hard, found, examples, seconds, notes)


def confusion_matrix(labels: Tensor, nearest: Tensor, num_classes: int) -> NDArray[np.int64]:
    """How often each class (row) was taken for each class (column), ``(k, k)``.

    >>> confusion_matrix(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), 2)
    array([[1, 1],
           [0, 1]])
    """
    flat = torch.bincount(labels * num_classes + nearest, minlength=num_classes**2)
    matrix: NDArray[np.int64] = flat.view(num_classes, num_classes).numpy()
    return matrix


def confused(said: Said, classes: tuple[str, ...]) -> tuple[Confusion, ...]:
    """The pairs that are confused most often."""
    wrong = said.labels != said.nearest
    codes, counts = torch.unique(said.labels[wrong] * len(classes) + said.nearest[wrong], return_counts=True)
    order = counts.argsort(descending=True, stable=True)[:MOST]
    pairs = zip(codes[order].tolist(), counts[order].tolist(), strict=True)
    return tuple(Confusion(classes[code // len(classes)], classes[code % len(classes)], n) for code, n in pairs)


def hardest(said: Said, classes: tuple[str, ...]) -> tuple[ClassAccuracy, ...]:
    """The classes that are recognised least often, if some are not always."""
    counts = torch.bincount(said.labels, minlength=len(classes))
    right, rejected = (
        torch.bincount(said.labels[which], minlength=len(classes)) / counts
        for which in (said.labels == said.nearest, said.decided < 0)
    )
    order = right.nan_to_num(1.0).argsort(stable=True)[:MOST].tolist()
    entries = [ClassAccuracy(classes[k], float(right[k]), float(rejected[k]), int(counts[k])) for k in order]
    return tuple(entry for entry in entries if entry.accuracy < 1)
