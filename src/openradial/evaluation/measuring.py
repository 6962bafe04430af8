"""What a bundle does on known and on novel data, in numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openradial import metrics
from openradial.bundle import Bundle, Predictions
from openradial.conformal import FalseRejectReport, false_reject_report
from openradial.data.progress import bar
from openradial.data.sources import RawInput
from openradial.errors import DataError, HeadError
from openradial.evaluation.samples import Sample
from openradial.evaluation.streaming import predict_rows
from openradial.metrics import Interval

SAMPLES = 300  # of the bootstrap
METRICS = ("auroc", "fpr_at_tpr", "aupr_novel", "oscr")
TOGETHER = "all novel sets"
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Answered:
    """A sample with what the bundle says of it, broken rows left out."""

    name: str
    rows: list[RawInput]
    labels: NDArray[np.int64]
    said: Predictions
    truths: tuple[str, ...]
    broken: tuple[tuple[str, str], ...] = ()  # input and what is wrong with it

    @property
    def scores(self) -> Floats:
        """Unknown-scores; nan counts as the most unknown."""
        return np.nan_to_num(self.said.unknown_score, nan=np.inf, posinf=np.inf, neginf=-np.inf)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether the nearest class is the true one."""
        right: NDArray[np.bool_] = self.said.nearest == self.labels
        return right


@dataclass(frozen=True)
class NovelNumbers:
    """How well one novel set is told from the known data."""

    name: str
    examples: int
    detected: float  # share that is called unknown
    metrics: Mapping[str, Interval]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Numbers of a bundle, and the answers that they were counted from."""

    classes: tuple[str, ...]
    accuracy: Interval
    accepted_accuracy: float | None  # of the known examples that are not rejected
    false_rejects: FalseRejectReport
    ece: float
    open_ece: float  # of known and novel examples together
    known: Answered
    novel: tuple[Answered, ...]
    numbers: tuple[NovelNumbers, ...]
    threshold: float
    notes: tuple[str, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        """The numbers as JSON can hold them."""
        novel = [
            {**asdict(each), "metrics": {name: value._asdict() for name, value in each.metrics.items()}}
            for each in self.numbers
        ]
        broken = [name for part in (self.known, *self.novel) for name, _ in part.broken]
        return {
            "known": {
                "name": self.known.name,
                "examples": len(self.known.labels),
                "classes": len(np.unique(self.known.labels)),
                "accuracy": self.accuracy._asdict(),
                "accuracy_of_accepted": self.accepted_accuracy,
                "false_reject_rate": asdict(self.false_rejects),
                "ece": self.ece,
            },
            "ece_with_novel": self.open_ece,
            "novel": novel,
            "broken": broken,
            "notes": list(self.notes),
        }


def evaluate(
    bundle: Bundle, known: Sample, novel: Sequence[Sample], false_reject_rate: float | None = None
) -> Evaluation:
    """Let a bundle answer, and count.

    The data should be none that the bundle was fitted on. Intervals are bootstrap intervals at 95 %; that of the
    false-reject rate is Clopper and Pearson's.
    """
    rejector = bundle.classifier.rejector
    if rejector is None:
        raise HeadError("the model has no rejector, so it calls nothing unknown; fit it again with a false-reject rate")

    def predict(raw: Sequence[Any]) -> Predictions:
        return bundle.predict(raw, false_reject_rate)

    total = sum(len(sample.rows) for sample in (known, *novel))
    with bar("evaluating", total, unit="inputs") as advance:
        answered = [_answered(sample, predict, advance) for sample in (known, *novel)]
    seen, strange = answered[0], tuple(answered[1:])
    labels = seen.said.nearest if rejector.per_class else None
    rejects = false_reject_report(seen.scores, rejector, labels, false_reject_rate=false_reject_rate)
    kept = seen.said.labels >= 0
    return Evaluation(
        classes=bundle.classes,
        accuracy=metrics.bootstrap(metrics.accuracy, seen.labels, seen.said.nearest, samples=SAMPLES),
        accepted_accuracy=float(seen.correct[kept].mean()) if kept.any() else None,
        false_rejects=rejects,
        ece=metrics.ece(*as_one_class(seen)),
        open_ece=metrics.ece(*as_one_class(seen, *strange)),
        known=seen,
        novel=strange,
        numbers=tuple(_numbers(seen, each) for each in (*strange, *_together(strange))),
        threshold=float("nan") if rejector.per_class else rejector.threshold(false_reject_rate),
        notes=tuple(note for sample in (known, *novel) for note in sample.notes),
    )


def as_one_class(*parts: Answered) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """The winning probability as that of one class, "right", as metrics of calibration take it."""
    labels = np.where(np.concatenate([each.correct for each in parts]), 0, -1)
    probs = np.concatenate([each.said.probability for each in parts])
    return np.clip(np.nan_to_num(probs), 0.0, 1.0)[:, None], labels, np.zeros_like(labels)


def _answered(sample: Sample, predict: Callable[[Sequence[Any]], Predictions], advance: Any) -> Answered:
    parts, broken, whole = [], [], []
    for run in predict_rows(predict, sample.rows):
        whole += [run.predictions is not None] * len(run.rows)
        if run.predictions is None:
            broken.append((run.rows[0].name, run.error or ""))
        else:
            parts.append(run.predictions)
        advance(len(run.rows))
    if not parts:
        raise DataError(f"no input of {sample.name} could be read; the first: {broken[0][0]}: {broken[0][1]}")
    keep = np.flatnonzero(whole)
    rows, truths = [sample.rows[i] for i in keep], [sample.truths[i] for i in keep]
    return Answered(sample.name, rows, sample.labels[keep], Predictions.joined(parts), tuple(truths), tuple(broken))


def _together(novel: tuple[Answered, ...]) -> list[Answered]:
    if len(novel) < 2:
        return []
    rows = [row for each in novel for row in each.rows]
    labels = np.concatenate([each.labels for each in novel])
    truths = tuple(truth for each in novel for truth in each.truths)
    return [Answered(TOGETHER, rows, labels, Predictions.joined([each.said for each in novel]), truths)]


def _numbers(known: Answered, novel: Answered) -> NovelNumbers:
    found = metrics.summary_intervals(known.scores, novel.scores, known.correct, samples=SAMPLES)
    detected = float((novel.said.labels < 0).mean())
    return NovelNumbers(novel.name, len(novel.labels), detected, {name: found[name] for name in METRICS})
