"""How sure a number is: bootstrap intervals of a metric, and the error over repeated runs."""

from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from numbers import Real
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from openradial.errors import OptionError, ShapeError, check_count
from openradial.metrics.calibration import brier, brier_per_row, confidences, ece, ece_of
from openradial.metrics.classification import (
    accuracy,
    f1_of,
    hits,
    open_f1,
    open_labels,
    top_k_accuracy,
    top_k_hits,
)
from openradial.metrics.inputs import Array, as_array, as_scores
from openradial.metrics.open_set import oscr, oscr_of, tally_open_set
from openradial.metrics.ranking import aupr, aupr_of, auroc, auroc_of, fpr_at_tpr, fpr_at_tpr_of, tally_ranking
from openradial.metrics.selective import aurc, aurc_of, misclassification_auroc, tally_mistakes, tally_outcomes


class Interval(NamedTuple):
    """A value and the ends of its confidence interval.

    >>> print(Interval(0.95, 0.93, 0.96))
    0.9500 [0.9300, 0.9600]
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


class Sample(Protocol):
    def resample(self, random: np.random.Generator) -> Any:
        """As many examples, drawn with replacement."""


class Rows(NamedTuple):
    """Arrays of examples; those of the same number in ``groups`` belong together, row by row."""

    arrays: Sequence[Array]
    groups: Sequence[int]

    def resample(self, random: np.random.Generator) -> "Rows":
        sizes = {group: len(array) for group, array in zip(self.groups, self.arrays, strict=True)}
        drawn = {group: random.integers(size, size=size) for group, size in sizes.items()}
        arrays = [array[drawn[group]] for group, array in zip(self.groups, self.arrays, strict=True)]
        return Rows(arrays, self.groups)


Plan = tuple[Sample, Callable[[Any], float]]  # what is resampled, and the metric of it


def bootstrap(
    metric: Callable[..., float],
    *arrays: ArrayLike,
    groups: Sequence[int] | None = None,
    samples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    **options: Any,
) -> Interval:
    """The metric of some arrays with its percentile bootstrap interval.

    Examples are drawn anew with replacement ``samples`` times. Known and novel ones are drawn apart, so their numbers
    stay; what belongs to one example stays together. The same seed gives the same interval.

    Args:
        metric: one of this module, or any function of arrays that returns a number
        arrays: what the metric takes
        groups: for a function of your own with several arrays, a number per array: arrays of the same number belong
            together row by row. ``(0, 1)`` is for known and novel, ``(0, 0)`` for predictions and labels
        samples: how often examples are drawn
        confidence: share of the samples' values that the interval holds
        seed: of the drawing
        options: further arguments of the metric

    >>> print(bootstrap(auroc, [0.1, 0.2, 0.4, 0.5], [0.3, 0.6, 0.9]))
    0.8333 [0.4958, 1.0000]
    """
    return interval(_plan(metric, arrays, groups, options), samples, confidence, seed)


def interval(plan: Plan, samples: int, confidence: float, seed: int) -> Interval:
    """Draw, compute, and take the quantiles."""
    check_count("samples", samples)
    check_count("seed", seed, least=0)
    if not 0 < confidence < 1:
        raise OptionError(f"confidence must be above 0 and below 1, got {confidence!r}; the usual one is 0.95")
    sample, value_of = plan
    random = np.random.default_rng(seed)
    values = [value_of(sample.resample(random)) for _ in range(samples)]
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(value_of(sample)), float(low), float(high))


def mean_and_error(values: ArrayLike) -> tuple[float, float]:
    """Mean of repeated runs and their error, twice the corrected sample standard deviation.

    >>> mean_and_error([0.5, 0.75, 1.0])
    (0.75, 0.5)
    """
    runs = as_scores("values", values).astype(np.float64)
    if len(runs) < 2:
        raise ShapeError("values must be of at least two runs, got 1: one run has no spread")
    return float(runs.mean()), 2 * float(runs.std(ddof=1))


def _plan(
    metric: Callable[..., float], arrays: Sequence[ArrayLike], groups: Sequence[int] | None, options: dict[str, Any]
) -> Plan:
    _check_callable(metric)
    if metric in PLANS and groups is None:
        bound = signature(metric).bind(*arrays, **options)
        bound.apply_defaults()
        return PLANS[metric](**bound.arguments)
    examples = [as_array(f"array {place}", values) for place, values in enumerate(arrays)]
    _check_any_rows(examples)
    _check_number(metric, metric(*examples, **options))
    rows = Rows(examples, _checked(groups, arrays))
    _check_lengths(rows)
    return rows, lambda drawn: metric(*drawn.arrays, **options)


def _check_callable(metric: object) -> None:
    if not callable(metric):
        got = repr(metric) if isinstance(metric, str) else f"an object of type {type(metric).__name__}"
        raise OptionError(
            f"metric must be a function and come first, as in bootstrap(metrics.auroc, known, novel), got {got}"
        )


def _check_number(metric: object, value: object) -> None:
    if not isinstance(value, Real) and getattr(value, "ndim", None) != 0:
        name = getattr(metric, "__name__", type(metric).__name__)
        raise OptionError(
            f"metric must return one number, but {name} returned a {type(value).__name__}; summary has "
            "summary_intervals, and of a curve take the area, such as auroc, oscr or aurc"
        )


def _checked(groups: Sequence[int] | None, arrays: Sequence[ArrayLike]) -> Sequence[int]:
    groups = (0,) if groups is None and len(arrays) == 1 else groups
    if groups is None or len(groups) != len(arrays):
        raise OptionError(
            f"groups must have one number for each of {len(arrays)} arrays, got {groups!r}; arrays of the same number "
            "belong together row by row: (0, 1) for known and novel, (0, 0) for predictions and labels"
        )
    return groups


def _check_any_rows(arrays: Sequence[Array]) -> None:
    shapes = [array.shape for array in arrays]
    if not shapes or not all(shape and shape[0] for shape in shapes):
        got = f"the shapes {', '.join(map(str, shapes))}" if shapes else "no array"
        raise ShapeError(f"arrays must have at least one row each, got {got}")


def _check_lengths(rows: Rows) -> None:
    shapes = [array.shape for array in rows.arrays]
    if len({(group, shape[0]) for group, shape in zip(rows.groups, shapes, strict=True)}) > len(set(rows.groups)):
        lengths = ", ".join(str(shape[0]) for shape in shapes)
        raise ShapeError(f"arrays of one group must have equally many rows, got {lengths} in the groups {rows.groups}")


def rows_of(*arrays: Array) -> Rows:
    """Arrays that belong together row by row."""
    return Rows(arrays, [0] * len(arrays))


def mean_of(rows: Rows) -> float:
    return float(np.mean(rows.arrays[0]))


# Everything that does not change from one sample to the next, such as sorting and checking, is done once.
PLANS: dict[Callable[..., float], Callable[..., Plan]] = {
    auroc: lambda known, novel: (tally_ranking(known, novel), auroc_of),
    aupr: lambda known, novel, positive: (tally_ranking(known, novel), partial(aupr_of, positive=positive)),
    fpr_at_tpr: lambda known, novel, tpr: (tally_ranking(known, novel), partial(fpr_at_tpr_of, tpr=tpr)),
    oscr: lambda known, novel, correct: (tally_open_set(known, novel, correct), oscr_of),
    misclassification_auroc: lambda scores, correct: (tally_mistakes(scores, correct), auroc_of),
    aurc: lambda scores, correct: (tally_outcomes(scores, correct), aurc_of),
    accuracy: lambda labels, predictions: (rows_of(hits(labels, predictions)), mean_of),
    top_k_accuracy: lambda scores, labels, k: (rows_of(top_k_hits(scores, labels, k)), mean_of),
    brier: lambda probs, labels: (rows_of(brier_per_row(probs, labels)), mean_of),
    open_f1: lambda labels, predictions, num_classes: (
        rows_of(*open_labels(labels, predictions, num_classes)),
        lambda rows: f1_of(*rows.arrays),
    ),
    ece: lambda probs, labels, predictions, **options: (
        rows_of(*confidences(probs, labels, predictions)),
        lambda rows: ece_of(*rows.arrays, **options),
    ),
}
