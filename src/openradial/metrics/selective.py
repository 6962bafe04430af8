"""Selective classification: how well a score separates right predictions from wrong ones."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from openradial.errors import ShapeError
from openradial.metrics.inputs import Array, as_flags, as_scores
from openradial.metrics.ranking import Tally, auroc_of

RIGHT, WRONG = 0, 1  # the rows of the tally


class RiskCoverage(NamedTuple):
    """At each threshold the share of inputs that are accepted, and the share of errors among those."""

    thresholds: Array
    coverage: Array
    risk: Array


def misclassification_auroc(scores: ArrayLike, correct: ArrayLike) -> float:
    """Return the probability that a wrong prediction scores higher than a right one; ties count half.

    >>> misclassification_auroc(scores=[0.1, 0.2, 0.7], correct=[True, False, True])
    0.5
    """
    return auroc_of(tally_mistakes(scores, correct))


def aurc(scores: ArrayLike, correct: ArrayLike) -> float:
    r"""Return the area under the risk-coverage curve: the mean risk over the coverages 1/n, 2/n, ..., 1.

    Smaller is better. With i inputs accepted, the risk is the share of errors among them. The errors among equal scores
    are counted as their mean over all orders, so the result does not depend on the order.

    >>> aurc(scores=[0.1, 0.2, 0.3, 0.4], correct=[True, True, False, True])
    0.14583333333333331
    """
    return aurc_of(tally_outcomes(scores, correct))


def risk_coverage_curve(scores: ArrayLike, correct: ArrayLike) -> RiskCoverage:
    """Return coverage and risk at every distinct score; scores up to it are accepted.

    >>> curve = risk_coverage_curve(scores=[0.1, 0.2, 0.2, 0.4], correct=[True, True, False, True])
    >>> curve.coverage.tolist(), curve.risk.round(2).tolist()
    ([0.25, 0.75, 1.0], [0.0, 0.33, 0.25])
    """
    tally = tally_outcomes(scores, correct)
    errors = tally.accepted[WRONG, 1:]
    accepted = tally.accepted[:, 1:].sum(0)
    return RiskCoverage(tally.thresholds, accepted / accepted[-1], errors / accepted)


def tally_outcomes(scores: ArrayLike, correct: ArrayLike) -> Tally:
    """Count the scores of right and wrong predictions; one group."""
    values = as_scores("scores", scores)
    right = as_flags("correct", correct, len(values))
    return Tally.of(values[right], values[~right], groups=((RIGHT, WRONG),))


def tally_mistakes(scores: ArrayLike, correct: ArrayLike) -> Tally:
    """Count them as two groups, each with at least one example."""
    tally = tally_outcomes(scores, correct)
    right, wrong = tally.sizes
    if not right or not wrong:
        raise ShapeError(f"correct must hold both right and wrong predictions, got {right} right and {wrong} wrong")
    return Tally(tally.thresholds, tally.accepted, groups=((RIGHT,), (WRONG,)))


def aurc_of(tally: Tally) -> float:
    """Return the area under the risk-coverage curve."""
    accepted = tally.accepted.sum(0)
    corners = np.append(0, np.flatnonzero(np.diff(accepted)) + 1)  # where more is accepted
    counts = np.arange(1, accepted[-1] + 1)
    errors = np.interp(counts, accepted[corners], tally.accepted[WRONG, corners])
    return float(np.mean(errors / counts))
