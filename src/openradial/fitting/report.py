"""The report after fitting: accuracy, false-reject rates of all and of each class, novel classes, and weaknesses."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from openradial.classifier import OpenClassifier
from openradial.conformal import FalseRejectReport
from openradial.conformal.calibration import examples_needed
from openradial.conformal.risk import binomial_interval
from openradial.data.progress import current
from openradial.errors import listed
from openradial.fitting.calibration import LabelledBatches
from openradial.metrics import auroc

MOST = 10  # confused pairs and hard classes in the report
CONFIDENCE = 0.95
GUARANTEES = {
    "split": "split conformal: on average, at most the asked share of known inputs is called unknown",
    "cross": "cross-fitting: about the asked share of known inputs is called unknown, without a proven bound "
    "(cross-conformal prediction, which keeps the models of all folds, has one: about twice that share)",
}
SMALL = 12  # classes up to which the confusion matrix is shown
LEAST_DETECTED = 0.1  # share of novel inputs beyond the false-reject rate, below which detection is weak
LEAST_EXAMPLES = 5  # of a class
ENOUGH = 3  # times the examples that a rate needs: with fewer, the threshold depends on one or two scores


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
    """Accuracy of a class before rejection, and the share of it that was rejected, with its 95 % interval."""

    name: str
    accuracy: float
    rejected: float
    examples: int
    rejected_low: float
    rejected_high: float


@dataclass(frozen=True)
class NovelReport:
    """Results on examples of novel classes."""

    classes: tuple[str, ...]
    examples: int
    auroc: float
    detected: float  # share that is predicted as unknown


@dataclass(frozen=True)
class LeftOutReport(NovelReport):
    """Results on examples of known classes, from classifiers that were fitted without them."""

    by_class: Mapping[str, float]  # share of each class that is predicted as unknown


@dataclass(frozen=True)
class Baseline:
    """Another classifier on the same features, measured on the same known examples or, of large data, on a fold."""

    name: str
    accuracy: float
    auroc: float | None  # of its maximum logit, if there are novel examples
    examples: int  # known ones


@dataclass(frozen=True)
class FitReport:
    """Numbers on known examples that were used for nothing else; all None with too few examples.

    After cross-fitting, and without test data, they are those of each training example without its fold.
    ``closed_form`` has what was chosen for a head in closed form: ``alpha``, the number of ``random_features`` and
    their ``width``, and ``class_weight``. ``expected_detection`` is that of known classes left out in turn. ``weak``
    has a sentence for each reason not to trust the model; they are the first notes too.
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
    per_class: tuple[ClassAccuracy, ...] = ()
    expected_detection: LeftOutReport | None = None
    baseline: Baseline | None = None
    weak: tuple[str, ...] = ()

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
        current().advance(len(y))
    return Decided(*(torch.cat(column) for column in zip(*parts, strict=True)))


def make_report(
    classifier: OpenClassifier,
    known: Decided | None,
    novel: Decided | None,
    novel_classes: tuple[str, ...],
    **values: Any,
) -> FitReport:
    """Return the report on known examples that were used for nothing else, and on novel ones; with other values."""
    if known is None:
        return FitReport(None, None, None, (), (), None, **values)
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
    pairs, rows = confused(known, classes), class_accuracies(known.labels, known.nearest, known.predicted < 0, classes)
    hard = tuple(sorted((row for row in rows if row.accuracy < 1), key=lambda row: row.accuracy)[:MOST])
    return FitReport(accuracy, rejects, matrix, pairs, hard, novel_report, per_class=rows, **values)


def weaknesses(report: FitReport, rate: float, classes: Sequence[str], counts: Tensor) -> tuple[str, ...]:
    """Return a sentence for each reason why a model is weak; ``counts`` are the training examples of each class."""
    reasons, total = [], sum(each.examples for each in report.per_class)
    if report.accuracy is not None:
        chance = max(each.examples for each in report.per_class) / total
        if binomial_interval(round(report.accuracy * total), total, CONFIDENCE)[0] <= chance:
            values = f"{100 * report.accuracy:.1f} % on {total:,} inputs is not clearly above {100 * chance:.1f} %"
            reasons.append(f"accuracy {values}, the share of the most frequent class: near chance")
    novel, kind = report.novel or report.expected_detection, "novel" if report.novel else "left-out"
    if novel is not None and novel.detected < rate + LEAST_DETECTED * (1 - rate):
        share = f"only {100 * novel.detected:.1f} % of the examples of {kind} classes are called unknown"
        reasons.append(f"{share}, against {100 * rate:g} % of known ones")
    used, needed = report.examples.get("calibration", report.examples.get("train", 0)), ENOUGH * examples_needed(rate)
    if used < needed:
        reasons.append(
            f"{used} examples set the threshold; a rate of {100 * rate:g} % is reliable with {needed} or more"
        )
    if few := [name for name, count in zip(classes, counts.tolist(), strict=True) if count < LEAST_EXAMPLES]:
        number = "1 class has" if len(few) == 1 else f"{len(few)} classes have"
        reasons.append(f"{number} fewer than {LEAST_EXAMPLES} examples to train with: {listed(few, 3)}")
    return tuple(reasons)


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


def class_accuracies(y: Any, nearest: Any, rejected: Any, classes: Sequence[str]) -> tuple[ClassAccuracy, ...]:
    """Return accuracy and rejections of each class that has examples; tensors or arrays of labels ``(n,)``."""
    counts, right, called = (
        np.bincount(np.asarray(y[which]), minlength=len(classes)).tolist() for which in (y >= 0, y == nearest, rejected)
    )
    pairs = set(zip(called, counts, strict=True))  # an interval takes milliseconds, and many classes have the same
    intervals = {(r, n): binomial_interval(r, n, CONFIDENCE) for r, n in pairs if n}
    return tuple(
        ClassAccuracy(name, correct / n, r / n, n, *intervals[r, n])
        for name, correct, r, n in zip(classes, right, called, counts, strict=True)
        if n
    )
