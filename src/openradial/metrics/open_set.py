"""Right class for known inputs and rejection of novel ones, in one curve."""

from typing import NamedTuple

from numpy.typing import ArrayLike

from openradial.metrics.inputs import Array, as_flags, as_scores
from openradial.metrics.tally import Tally, area

RIGHT, WRONG, NOVEL = 0, 1, 2  # the parts of the tally


class OscrCurve(NamedTuple):
    """Shares of novel inputs accepted (``fpr``) and of known ones accepted and right (``ccr``), at each threshold."""

    thresholds: Array
    fpr: Array
    ccr: Array


def oscr(known: ArrayLike, novel: ArrayLike, correct: ArrayLike) -> float:
    """Open-set classification rate: the area under :func:`openradial.metrics.oscr_curve`, by straight lines.

    It is the probability that a known input is classified correctly *and* scores lower than a novel one; ties count
    half. So it is at most the accuracy, and equal to it when no novel input scores as low as a correct known one.

    Args:
        known: unknown-scores of known inputs
        novel: unknown-scores of novel inputs
        correct: for each known input, whether its class is right, before any is rejected

    >>> oscr(known=[0.1, 0.2, 0.4], novel=[0.3, 0.9], correct=[True, False, True])
    0.5
    """
    return oscr_of(tally_open_set(known, novel, correct))


def oscr_curve(known: ArrayLike, novel: ArrayLike, correct: ArrayLike) -> OscrCurve:
    """Correct classification rate and false positive rate at every distinct score, from "nothing is accepted" on.

    >>> curve = oscr_curve(known=[0.1, 0.2, 0.4], novel=[0.3, 0.9], correct=[True, False, True])
    >>> curve.fpr.tolist()
    [0.0, 0.0, 0.0, 0.5, 0.5, 1.0]
    >>> curve.ccr.round(2).tolist()
    [0.0, 0.33, 0.33, 0.33, 0.67, 0.67]
    """
    tally = tally_open_set(known, novel, correct)
    right, wrong, novels = tally.accepted
    return OscrCurve(tally.curve_thresholds, novels / novels[-1], right / (right[-1] + wrong[-1]))


def tally_open_set(known: ArrayLike, novel: ArrayLike, correct: ArrayLike) -> Tally:
    """Scores of right, wrong and novel examples, counted; right and wrong are one group."""
    scores = as_scores("known", known)
    right = as_flags("correct", correct, len(scores))
    groups = ((RIGHT, WRONG), (NOVEL,))
    return Tally.of(scores[right], scores[~right], as_scores("novel", novel), groups=groups)


def oscr_of(tally: Tally) -> float:
    right, wrong, novel = tally.accepted
    return area(novel, right) / float(right[-1] + wrong[-1]) / float(novel[-1])
