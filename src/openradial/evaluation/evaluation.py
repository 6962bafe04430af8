"""Evaluate a bundle on known and novel data: the data, metrics with intervals, and the most confident mistakes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from openradial import metrics
from openradial.classifier import OpenClassifier, Predictions
from openradial.classifier.predictions import Floats, Labels
from openradial.classifier.streaming import predict_rows
from openradial.conformal import FalseRejectReport, false_reject_report
from openradial.data import sources
from openradial.data.inputs import TableInputs
from openradial.data.progress import bar
from openradial.data.readers.folder import ImageFolder
from openradial.data.readers.tables import Table
from openradial.data.sources import Data, DataSource, RawInput
from openradial.data.splits import renumbered
from openradial.errors import DataError, HeadError, listed
from openradial.fitting.report import ClassAccuracy, class_accuracies
from openradial.metrics import Interval

SAMPLES = 300  # of the bootstrap
METRICS = ("auroc", "fpr_at_tpr", "aupr_novel", "oscr")
SHOWN_TEXT = 200  # characters of a text that is shown


@dataclass(frozen=True, eq=False)
class Sample:
    """Inputs to predict; ``labels`` ``(n,)`` are indices into the bundle's classes, -1 for novel ones."""

    name: str
    rows: list[RawInput]
    labels: Labels
    truths: tuple[str, ...]  # the class of each row, as far as the data tell
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class PredictedSample(Sample):
    """A sample with the predictions of the bundle; rows that cannot be read are left out."""

    predictions: Predictions
    broken: tuple[tuple[str, str], ...] = ()  # input and error message

    @property
    def scores(self) -> Floats:
        """Return unknown scores; NaN counts as the most unknown."""
        return np.nan_to_num(self.predictions.unknown_score, nan=np.inf, posinf=np.inf, neginf=-np.inf)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Return whether the nearest class is the true one."""
        return np.equal(self.predictions.nearest, self.labels)


@dataclass(frozen=True)
class NovelMetrics:
    """How well one novel set is separated from the known data."""

    name: str
    examples: int
    detected: float  # share of inputs called unknown
    metrics: Mapping[str, Interval]

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "metrics": {name: value._asdict() for name, value in self.metrics.items()}}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Metrics of a bundle, and the predictions that they were computed from."""

    classes: tuple[str, ...]
    accuracy: Interval
    accepted_accuracy: float | None  # of the known examples that are not rejected
    false_rejects: FalseRejectReport
    ece: float
    open_ece: float  # of known and novel examples together
    known: PredictedSample
    novel: tuple[PredictedSample, ...]
    novel_metrics: tuple[NovelMetrics, ...]
    threshold: float
    notes: tuple[str, ...] = ()

    @property
    def per_class(self) -> tuple[ClassAccuracy, ...]:
        """Return accuracy and rejections of each known class."""
        predictions = self.known.predictions
        return class_accuracies(self.known.labels, predictions.nearest, predictions.labels < 0, self.classes)

    def as_dict(self) -> dict[str, Any]:
        """Return the metrics as JSON-compatible values."""
        return {
            "known": {
                "name": self.known.name,
                "examples": len(self.known.labels),
                "classes": len(np.unique(self.known.labels)),
                "accuracy": self.accuracy._asdict(),
                "accuracy_of_accepted": self.accepted_accuracy,
                "false_reject_rate": asdict(self.false_rejects),
                "ece": self.ece,
                "per_class": [asdict(each) for each in self.per_class],
            },
            "ece_with_novel": self.open_ece,
            "novel": [each.as_dict() for each in self.novel_metrics],
            "broken": [name for part in (self.known, *self.novel) for name, _ in part.broken],
            "notes": list(self.notes),
        }


class Mistake(NamedTuple):
    """An input that was decided wrongly; the p-value says how compatible it is with known data."""

    row: RawInput
    true: str
    predicted: str
    p_value: float
    probability: float  # of the most probable class


def text_of(raw: Any) -> str:
    """Return a text, or the row of a table that holds one, as one line; its beginning if it is long."""
    raw = next(iter(raw.values())) if isinstance(raw, dict) else raw
    text = " ".join(str(raw or "")[: 2 * SHOWN_TEXT].encode("utf-8", "replace").decode("utf-8").split())
    return text if len(text) <= SHOWN_TEXT else f"{text[:SHOWN_TEXT]}…"


def evaluate(
    bundle: OpenClassifier, known: Sample, novel: Sequence[Sample], false_reject_rate: float | None = None
) -> Evaluation:
    """Evaluate a bundle on held-out known data and on novel data.

    Intervals are bootstrap intervals at 95 %; the interval of the false-reject rate is Clopper and Pearson's.
    """
    rejector = bundle.rejector
    if rejector is None:
        raise HeadError("the model has no rejector, so it rejects no input; fit it again with a false-reject rate")
    predict = partial(bundle.predict, false_reject_rate=false_reject_rate)
    total = sum(len(sample.rows) for sample in (known, *novel))
    with bar("evaluating", total, unit="inputs") as advance:
        seen, *unseen = [_predict(sample, predict, advance) for sample in (known, *novel)]
    labels = seen.predictions.nearest if rejector.per_class else None
    rejects = false_reject_report(seen.scores, rejector, labels, false_reject_rate=false_reject_rate)
    kept = seen.predictions.labels >= 0
    groups = [(each.name, [each]) for each in unseen] + [("all novel sets", unseen)] * (len(unseen) > 1)
    return Evaluation(
        classes=bundle.classes,
        accuracy=metrics.bootstrap(metrics.accuracy, seen.labels, seen.predictions.nearest, samples=SAMPLES),
        accepted_accuracy=float(seen.correct[kept].mean()) if kept.any() else None,
        false_rejects=rejects,
        ece=metrics.ece(*as_one_class(seen)),
        open_ece=metrics.ece(*as_one_class(seen, *unseen)),
        known=seen,
        novel=tuple(unseen),
        novel_metrics=tuple(_novel_metrics(seen, *group) for group in groups),
        threshold=float("nan") if rejector.per_class else rejector.threshold(false_reject_rate),
        notes=tuple(note for sample in (known, *novel) for note in sample.notes),
    )


def as_one_class(*parts: PredictedSample) -> tuple[Floats, Labels, Labels]:
    """Return the winning probability as that of a single class "correct", in the form of the calibration metrics."""
    labels = np.where(np.concatenate([each.correct for each in parts]), 0, -1)
    probs = np.concatenate([each.predictions.probability for each in parts])
    return np.clip(np.nan_to_num(probs), 0.0, 1.0)[:, None], labels, np.zeros_like(labels)


def _predict(sample: Sample, predict: Callable[[Sequence[Any]], Predictions], advance: Any) -> PredictedSample:
    parts, broken, readable = [], [], []
    for run in predict_rows(predict, sample.rows):
        readable += [run.predictions is not None] * len(run.rows)
        if run.predictions is None:
            broken.append((run.rows[0].name, run.error or ""))
        else:
            parts.append(run.predictions)
        advance(len(run.rows))
    if not parts:
        raise DataError(f"no input of {sample.name} could be read; the first: {broken[0][0]}: {broken[0][1]}")
    rows, truths = list(compress(sample.rows, readable)), tuple(compress(sample.truths, readable))
    results: dict[str, Any] = {"predictions": Predictions.concatenate(parts), "broken": tuple(broken)}
    return PredictedSample(sample.name, rows, sample.labels[readable], truths, **results)


def _novel_metrics(known: PredictedSample, name: str, novel: Sequence[PredictedSample]) -> NovelMetrics:
    scores, labels = np.concatenate([n.scores for n in novel]), np.concatenate([n.predictions.labels for n in novel])
    intervals = metrics.summary_intervals(known.scores, scores, known.correct, samples=SAMPLES)
    return NovelMetrics(name, len(labels), float((labels < 0).mean()), {name: intervals[name] for name in METRICS})


def find_mistakes(evaluation: Evaluation) -> tuple[list[Mistake], list[Mistake], list[Mistake]]:
    """Return what is novel but accepted, known but misclassified, and known but rejected; the most telling first."""
    known, accepted = evaluation.known, evaluation.known.predictions.labels >= 0
    novel = _sorted([(each, each.predictions.labels >= 0) for each in evaluation.novel])
    return novel, _sorted([(known, accepted & ~known.correct)]), _sorted([(known, ~accepted)])[::-1]


def _sorted(parts: Sequence[tuple[PredictedSample, NDArray[np.bool_]]]) -> list[Mistake]:
    """Return the inputs selected by each mask, sorted by unknown score."""
    scored: list[tuple[float, Mistake]] = []
    for part, mask in parts:
        assert part.predictions.p_values is not None
        names, p_values, scores = part.predictions.names, part.predictions.p_values.tolist(), part.scores.tolist()
        facts = list(zip(part.rows, part.truths, names, p_values, part.predictions.probability.tolist(), strict=True))
        scored += [(scores[i], Mistake(*facts[i])) for i in np.flatnonzero(mask).tolist()]
    return [mistake for _, mistake in sorted(scored, key=lambda pair: pair[0])]


def known_sample(bundle: OpenClassifier, data: str, label: str | None = None) -> Sample:
    """Return the examples of the classes that a bundle knows; those of other classes are left out and noted.

    ``data`` is what ``openradial fit`` takes. Of data with a test part, that part is used.
    """
    source, labels, has_test = _open(bundle, data, label, labelled=True)
    examples = source.train
    keep = np.flatnonzero(labels >= 0)
    if not len(keep):
        has, knows = listed(list(examples.classes)), listed(list(bundle.classes))
        raise DataError(f"{data} holds none of the classes that the model knows: it has {has}, the model knows {knows}")
    left = sorted({examples.classes[k] for k in examples.labels[torch.from_numpy(labels < 0)].tolist() if k >= 0})
    notes = [f"left out of {data}: {listed(left, 5)}, which the model does not know"] * bool(left) + source.notes
    if not has_test and Path(data).name == _fitted(bundle, "name"):
        notes.append(f"the model was fitted on data called {Path(data).name}: if it is these, the numbers are too good")
    truths = tuple(bundle.classes[k] for k in labels[keep].tolist())
    return Sample(_title(data), _rows(examples, keep, data), labels[keep], truths, tuple(notes))


def novel_sample(bundle: OpenClassifier, data: str, label: str | None = None) -> Sample:
    """Return data of no known class; classes that the bundle knows are left out and noted."""
    source, labels, _ = _open(bundle, data, label, labelled=False)
    examples = source.train
    keep = np.flatnonzero(labels < 0)
    left = sorted({bundle.classes[k] for k in labels[labels >= 0].tolist()})
    if not len(keep):
        raise DataError(f"{data} holds no novel data{': the model knows all of its classes' if left else ''}")
    names = (*examples.classes, _title(data))  # label -1 selects the last one
    truths = tuple(names[k] for k in examples.labels[torch.from_numpy(keep)].tolist())
    notes = [f"left out of {data}: {listed(left, 5)}, which the model knows"] * bool(left) + source.notes
    name = f"{_title(data)}, other classes" if left else _title(data)
    return Sample(name, _rows(examples, keep, data), np.full(len(keep), -1), truths, tuple(notes))


def _fitted(bundle: OpenClassifier, name: str) -> Any:
    """Return what the metadata of a bundle say about its training data."""
    fitted = bundle.metadata.get("data")
    return fitted.get(name) if isinstance(fitted, dict) else None


def _open(bundle: OpenClassifier, data: str, label: str | None, labelled: bool) -> tuple[DataSource, Labels, bool]:
    """Open data of the kind that the bundle takes; return its test part if it has one, the labels, and whether."""
    inputs = bundle.preprocessing
    encoder = inputs.encoder if isinstance(inputs, TableInputs) else None
    options: dict[str, Any] = {} if encoder is None else {"features": encoder.columns, "words": encoder.word_columns}
    if inputs.kind == "texts" and inputs.columns:
        options = {"text": inputs.columns[0]}
    column = label or (_fitted(bundle, "label") if inputs.columns and not Path(data).is_dir() else None)
    try:
        source = sources.open(data, label=column, labelled=labelled, **options)
    except DataError as error:
        if label is not None or labelled or column is None or error.column != column:
            raise
        source = sources.open(data, labelled=False, **options)  # novel data need no labels
    if source.kind != inputs.kind:
        raise DataError(f"the model takes {inputs.kind}, but {data} holds {source.kind}")
    used = source if source.test is None else replace(source, train=source.test, test=None)
    return used, renumbered(used.train, bundle.classes).numpy(), source.test is not None


def _title(data: str) -> str:
    """Return the last two parts of a path, which tell more than its first ones.

    >>> _title("/data/animals/test"), _title("digits")
    ('animals/test', 'digits')
    """
    return "/".join(part for part in Path(data).parts[-2:] if part != "/")


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
