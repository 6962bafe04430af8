"""Bootstrap intervals of a metric, the error over repeated runs, and the usual metrics of one experiment together."""

from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from openradial.errors import OptionError, ShapeError, check_count
from openradial.metrics import calibration, classification, ranking, selective
from openradial.metrics.inputs import Array, as_array, as_flags, as_label_pair


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


class PairedArrays(NamedTuple):
    """Arrays of examples; arrays with the same number in ``groups`` are paired row by row."""

    arrays: Sequence[Array]
    groups: Sequence[int]

    def resample(self, random: np.random.Generator) -> "PairedArrays":
        sizes = {group: len(array) for group, array in zip(self.groups, self.arrays, strict=True)}
        drawn = {group: random.integers(size, size=size) for group, size in sizes.items()}
        arrays = [array[drawn[group]] for group, array in zip(self.groups, self.arrays, strict=True)]
        return PairedArrays(arrays, self.groups)


MetricPlan = tuple[ranking.Tally | PairedArrays, Callable[[Any], float]]  # what is resampled, and the metric of it


def bootstrap(
    metric: Callable[..., float],
    *arrays: ArrayLike,
    groups: Sequence[int] | None = None,
    samples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    **options: Any,
) -> Interval:
    """Return the metric of some arrays with its percentile bootstrap interval.

    Examples are drawn with replacement ``samples`` times. Known and novel ones are drawn separately, so their numbers
    stay; the values of one example stay together. The same seed gives the same interval.

    Args:
        metric: one of this module, or any function of arrays that returns a number
        groups: for any other function of several arrays, a number per array: arrays of the same number are paired
            row by row. ``(0, 1)`` is for known and novel, ``(0, 0)`` for predictions and labels
        confidence: share of the values that the interval contains
        options: further arguments of the metric

    >>> print(bootstrap(ranking.auroc, [0.1, 0.2, 0.4, 0.5], [0.3, 0.6, 0.9]))
    0.8333 [0.4958, 1.0000]
    """
    return interval(_plan(metric, arrays, groups, options), samples, confidence, seed)


def interval(plan: MetricPlan, samples: int, confidence: float, seed: int) -> Interval:
    """Return the value and the quantiles of the resampled values."""
    check_count("samples", samples)
    check_count("seed", seed, least=0)
    if not 0 < confidence < 1:
        raise OptionError(f"confidence must be above 0 and below 1, got {confidence!r}; the usual one is 0.95")
    sample, value_of = plan
    random = np.random.default_rng(seed)
    values = [value_of(sample.resample(random)) for _ in range(samples)]
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(value_of(sample)), float(low), float(high))


def _plan(
    metric: Callable[..., float], arrays: Sequence[ArrayLike], groups: Sequence[int] | None, options: dict[str, Any]
) -> MetricPlan:
    if not callable(metric):
        got = repr(metric) if isinstance(metric, str) else f"an object of type {type(metric).__name__}"
        raise OptionError(
            f"metric must be a function and come first, as in bootstrap(metrics.auroc, known, novel), got {got}"
        )
    if metric in PLANS and groups is None:
        prepare, value_of = PLANS[metric]
        bound = signature(metric).bind(*arrays, **options)
        bound.apply_defaults()
        once = {name: bound.arguments.pop(name) for name in signature(prepare).parameters}
        prepared, each_time = prepare(**once), bound.arguments
        if isinstance(prepared, ranking.Tally):
            return prepared, partial(value_of, **each_time)
        rows = prepared if isinstance(prepared, tuple) else (prepared,)
        return PairedArrays(rows, [0] * len(rows)), lambda drawn: value_of(*drawn.arrays, **each_time)
    examples = [as_array(f"array {index}", values) for index, values in enumerate(arrays)]
    shapes = [array.shape for array in examples]
    if not shapes or not all(shape and shape[0] for shape in shapes):
        got = f"the shapes {', '.join(map(str, shapes))}" if shapes else "no array"
        raise ShapeError(f"arrays must have at least one row each, got {got}")
    value = metric(*examples, **options)
    if not isinstance(value, Real) and getattr(value, "ndim", None) != 0:
        name = getattr(metric, "__name__", type(metric).__name__)
        raise OptionError(
            f"metric must return one number, but {name} returned a {type(value).__name__}; summary has "
            "summary_intervals, and of a curve take the area, such as auroc, oscr or aurc"
        )
    groups = (0,) if groups is None and len(examples) == 1 else groups
    if groups is None or len(groups) != len(examples):
        raise OptionError(
            f"groups must have one number for each of {len(examples)} arrays, got {groups!r}; arrays of the same "
            "number are paired row by row: (0, 1) for known and novel, (0, 0) for predictions and labels"
        )
    sizes = [len(array) for array in examples]
    if len(set(zip(groups, sizes, strict=True))) > len(set(groups)):
        lengths = ", ".join(map(str, sizes))
        raise ShapeError(f"arrays of one group must have equally many rows, got {lengths} in the groups {groups}")
    return PairedArrays(examples, groups), lambda drawn: metric(*drawn.arrays, **options)


# What does not change from one sample to the next, such as sorting and checking, is done once, by the first function.
PLANS: dict[Callable[..., float], tuple[Callable[..., Any], Callable[..., Any]]] = {
    ranking.auroc: (ranking.tally_ranking, ranking.auroc_of),
    ranking.aupr: (ranking.tally_ranking, ranking.aupr_of),
    ranking.fpr_at_tpr: (ranking.tally_ranking, ranking.fpr_at_tpr_of),
    ranking.oscr: (ranking.tally_open_set, ranking.oscr_of),
    selective.misclassification_auroc: (selective.tally_mistakes, ranking.auroc_of),
    selective.aurc: (selective.tally_outcomes, selective.aurc_of),
    classification.accuracy: (classification.hits, np.mean),
    classification.top_k_accuracy: (classification.top_k_hits, np.mean),
    classification.open_f1: (as_label_pair, classification.f1_of),
    calibration.brier: (calibration.brier_per_row, np.mean),
    calibration.ece: (calibration.confidences, calibration.ece_of),
}


def summary(
    known: ArrayLike, novel: ArrayLike, correct: ArrayLike | None = None, *, tpr: float = 0.95
) -> dict[str, float]:
    """Return the usual metrics of known and novel inputs.

    ``auroc``, ``aupr_known``, ``aupr_novel`` and ``fpr_at_tpr``. With ``correct``, whether the class of each known
    input is right, also ``accuracy``, ``oscr``, ``aurc`` and, where some are right and some wrong,
    ``misclassification_auroc``.

    >>> values = summary(known=[0.1, 0.2, 0.4], novel=[0.3, 0.9], correct=[True, False, True])
    >>> [round(values[name], 3) for name in ("auroc", "accuracy", "oscr")]
    [0.833, 0.667, 0.5]
    """
    return {name: value_of(sample) for name, (sample, value_of) in _plans(known, novel, correct, tpr).items()}


def summary_intervals(
    known: ArrayLike,
    novel: ArrayLike,
    correct: ArrayLike | None = None,
    *,
    tpr: float = 0.95,
    samples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """Return the metrics of :func:`summary` with the intervals of :func:`bootstrap`."""
    plans = _plans(known, novel, correct, tpr)
    return {name: interval(plan, samples, confidence, seed) for name, plan in plans.items()}


def _plans(known: ArrayLike, novel: ArrayLike, correct: ArrayLike | None, tpr: float) -> dict[str, MetricPlan]:
    tally = ranking.tally_ranking(known, novel)
    plans: dict[str, MetricPlan] = {
        "auroc": (tally, ranking.auroc_of),
        "aupr_known": (tally, partial(ranking.aupr_of, positive="known")),
        "aupr_novel": (tally, partial(ranking.aupr_of, positive="novel")),
        "fpr_at_tpr": (tally, partial(ranking.fpr_at_tpr_of, tpr=tpr)),
    }
    if correct is None:
        return plans
    right = as_flags("correct", correct, int(tally.sizes[0]))
    plans["accuracy"] = (PairedArrays([right], [0]), lambda rows: float(np.mean(rows.arrays[0])))
    plans["oscr"] = (ranking.tally_open_set(known, novel, right), ranking.oscr_of)
    plans["aurc"] = (selective.tally_outcomes(known, right), selective.aurc_of)
    if right.any() and not right.all():
        plans["misclassification_auroc"] = (selective.tally_mistakes(known, right), ranking.auroc_of)
    return plans
