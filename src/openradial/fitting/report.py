"""The report after fitting: accuracy, asked and measured false-reject rate, hard classes, novel classes."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from openradial.classifier import OpenClassifier
from openradial.conformal import FalseRejectReport
from openradial.conformal.risk import binomial_interval
from openradial.fitting.calibration import LabelledBatches
from openradial.metrics import auroc

MOST = 10  # confused pairs and hard classes in the report
CONFIDENCE = 0.95
GUARANTEES = {
    "split": "split conformal: on average, at most the asked share of known inputs is called unknown",
    "cross": "cross-fitting: about the asked share of known inputs is called unknown, without a proven bound; "
    "cross-conformal prediction, which keeps the models of all folds, is bounded by about twice that share",
}
SMALL = 12  # classes up to which the confusion matrix is shown


class Decided(NamedTuple):
    """Labels and decisions of a part of the data."""

    labels: Tensor  # (n,) the true ones
    predicted: Tensor  # (n,) -1 where rejected
    nearest: Tensor  # (n,)
    scores: Tensor  # (n,)


@dataclass(frozen=True)
class Confusion:
    """How often a class was predicted as another one, before rejection."""

    true: str
    predicted: str
    examples: int


@dataclass(frozen=True)
class ClassAccuracy:
    """Accuracy of a class before rejection, and the share of it that was rejected."""

    name: str
    accuracy: float
    rejected: float
    examples: int


@dataclass(frozen=True)
class NovelReport:
    """Results on examples of novel classes."""

    classes: tuple[str, ...]
    examples: int
    auroc: float
    detected: float  # share that is predicted as unknown


@dataclass(frozen=True)
class FitReport:
    """Numbers on known examples that were used for nothing else; all None with too few examples.

    After cross-fitting, and without test data, they are those of each training example without its fold.
    ``closed_form`` has what was chosen for a head in closed form: ``alpha``, the number of ``random_features`` and
    their ``width``, and ``class_weight``.
    """

    accuracy: float | None
    false_rejects: FalseRejectReport | None
    matrix: tuple[tuple[int, ...], ...] | None  # rows: true classes, columns: nearest ones; of few classes only
    confused: tuple[Confusion, ...]
    hardest: tuple[ClassAccuracy, ...]
    novel: NovelReport | None
    examples: Mapping[str, int]
    seconds: float
    notes: tuple[str, ...] = ()
    guarantee: str = GUARANTEES["split"]
    closed_form: Mapping[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return asdict(self)


@torch.no_grad()
def decide(classifier: OpenClassifier, batches: LabelledBatches) -> Decided:
    """Return the decisions on all examples."""
    parts = []
    for x, y in batches:
        result = classifier.decide(x)
        parts.append((y, result.labels, result.nearest, result.unknown_score))
    return Decided(*(torch.cat(column) for column in zip(*parts, strict=True)))


def make_report(
    classifier: OpenClassifier,
    known: Decided | None,
    novel: Decided | None,
    novel_classes: tuple[str, ...],
    examples: Mapping[str, int],
    seconds: float,
    notes: tuple[str, ...] = (),
) -> FitReport:
    """Return the report of a classifier on known examples that were used for nothing else, and on novel ones."""
    if known is None:
        return FitReport(None, None, None, (), (), None, examples, seconds, notes)
    assert classifier.rejector is not None
    count, rejected = len(known.labels), int((known.predicted < 0).sum())
    interval = binomial_interval(rejected, count, CONFIDENCE)
    asked = classifier.rejector.false_reject_rate
    rejects = FalseRejectReport(asked, rejected / count, *interval, rejected, count, CONFIDENCE)
    accuracy = float((known.nearest == known.labels).double().mean())
    novel_report = None
    if novel is not None:
        detected = float((novel.predicted < 0).double().mean())
        novel_report = NovelReport(novel_classes, len(novel.scores), auroc(known.scores, novel.scores), detected)
    classes, matrix = classifier.classes, None
    if len(classes) <= SMALL:
        matrix = tuple(map(tuple, confusion_matrix(known.labels, known.nearest, len(classes)).tolist()))
    pairs, hard = confused(known, classes), hardest(known, classes)
    return FitReport(accuracy, rejects, matrix, pairs, hard, novel_report, examples, seconds, notes)


def confusion_matrix(labels: Tensor, nearest: Tensor, num_classes: int) -> Tensor:
    """Return how often each class (row) was predicted as each class (column), ``(k, k)``.

    >>> confusion_matrix(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), 2)
    tensor([[1, 1],
            [0, 1]])
    """
    return torch.bincount(labels * num_classes + nearest, minlength=num_classes**2).view(num_classes, num_classes)


def confused(decided: Decided, classes: tuple[str, ...]) -> tuple[Confusion, ...]:
    """Return the pairs of classes that are confused most often."""
    wrong = decided.labels != decided.nearest
    codes, counts = torch.unique(decided.labels[wrong] * len(classes) + decided.nearest[wrong], return_counts=True)
    order = counts.argsort(descending=True, stable=True)[:MOST]
    pairs = zip(codes[order].tolist(), counts[order].tolist(), strict=True)
    return tuple(Confusion(classes[code // len(classes)], classes[code % len(classes)], n) for code, n in pairs)


def hardest(decided: Decided, classes: tuple[str, ...]) -> tuple[ClassAccuracy, ...]:
    """Return the classes with the lowest accuracy below 1."""
    counts = torch.bincount(decided.labels, minlength=len(classes))
    right, rejected = (
        torch.bincount(decided.labels[which], minlength=len(classes)) / counts
        for which in (decided.labels == decided.nearest, decided.predicted < 0)
    )
    order = right.nan_to_num(1.0).argsort(stable=True)[:MOST].tolist()
    entries = [ClassAccuracy(classes[k], float(right[k]), float(rejected[k]), int(counts[k])) for k in order]
    return tuple(entry for entry in entries if entry.accuracy < 1)
