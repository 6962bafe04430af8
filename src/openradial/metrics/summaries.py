"""The usual numbers of one experiment, together."""

from functools import partial

from numpy.typing import ArrayLike

from openradial.metrics.inputs import as_flags
from openradial.metrics.intervals import Interval, Plan, interval, mean_of, rows_of
from openradial.metrics.open_set import oscr_of, tally_open_set
from openradial.metrics.ranking import aupr_of, auroc_of, fpr_at_tpr_of, tally_ranking
from openradial.metrics.selective import aurc_of, tally_mistakes, tally_outcomes


def summary(
    known: ArrayLike, novel: ArrayLike, correct: ArrayLike | None = None, *, tpr: float = 0.95
) -> dict[str, float]:
    """The usual metrics of known and novel inputs; the scores are sorted once for all that need no more than them.

    ``auroc``, ``aupr_known``, ``aupr_novel`` and ``fpr_at_tpr``. With ``correct``, whether the class of each known
    input is right, also ``accuracy``, ``oscr``, ``aurc`` and, where some are right and some wrong,
    ``misclassification_auroc``.

    >>> found = summary(known=[0.1, 0.2, 0.4], novel=[0.3, 0.9], correct=[True, False, True])
    >>> for name, value in found.items():
    ...     print(f"{name:<23} {value:.3f}")
    auroc                   0.833
    aupr_known              0.917
    aupr_novel              0.833
    fpr_at_tpr              0.500
    accuracy                0.667
    oscr                    0.500
    aurc                    0.278
    misclassification_auroc 0.500
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
    """The metrics of :func:`openradial.metrics.summary`, each as :func:`openradial.metrics.bootstrap` gives it."""
    plans = _plans(known, novel, correct, tpr)
    return {name: interval(plan, samples, confidence, seed) for name, plan in plans.items()}


def _plans(known: ArrayLike, novel: ArrayLike, correct: ArrayLike | None, tpr: float) -> dict[str, Plan]:
    ranking = tally_ranking(known, novel)
    plans: dict[str, Plan] = {
        "auroc": (ranking, auroc_of),
        "aupr_known": (ranking, partial(aupr_of, positive="known")),
        "aupr_novel": (ranking, partial(aupr_of, positive="novel")),
        "fpr_at_tpr": (ranking, partial(fpr_at_tpr_of, tpr=tpr)),
    }
    if correct is None:
        return plans
    right = as_flags("correct", correct, int(ranking.sizes[0]))
    plans["accuracy"] = (rows_of(right), mean_of)
    plans["oscr"] = (tally_open_set(known, novel, right), oscr_of)
    plans["aurc"] = (tally_outcomes(known, right), aurc_of)
    if right.any() and not right.all():
        plans["misclassification_auroc"] = (tally_mistakes(known, right), auroc_of)
    return plans
