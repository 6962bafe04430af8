"""Accept as much as possible while the accepted predictions stay right."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from openradial.conformal.binomial import at_most, binomial_upper
from openradial.conformal.inputs import Given, as_scores, check_rate
from openradial.metrics import RiskCoverage, risk_coverage_curve

LEVELS = 100  # the careful choice looks at coverages in steps of 1 %,
STEP = 10  # and starts anew at 10 %, 20 %, ..., 100 %


@dataclass(frozen=True)
class OperatingPoint:
    """Accept where ``score <= threshold``; coverage is the share of accepted inputs, risk that of errors among them.

    Where no threshold will do, it is minus infinity, and coverage and risk are 0. ``bound`` is what the risk on new
    data does not exceed, with the chosen confidence; None where none was asked for, or nothing is accepted.
    """

    threshold: float
    coverage: float
    risk: float
    accepted: int
    errors: int
    bound: float | None = None

    def __str__(self) -> str:
        bound = "" if self.bound is None else f", at most {self.bound:.4g} on new data"
        return (
            f"accept up to {self.threshold:.6g}: coverage {self.coverage:.4g}, "
            f"risk {self.risk:.4g} ({self.errors} of {self.accepted}){bound}"
        )


NOTHING = OperatingPoint(-math.inf, 0.0, 0.0, 0, 0)


def operating_point(
    scores: Given, correct: Given, max_risk: float = 0.01, confidence: float | None = None
) -> OperatingPoint:
    """The threshold that accepts most inputs while at most a share ``max_risk`` of the accepted predictions is wrong.

    Without ``confidence`` that holds on the given data only. The best of many thresholds was picked on it, so on new
    data the risk is larger about every second time. With ``confidence=0.95``, the risk on new data drawn alike is at
    most ``max_risk`` for 95 % of the data sets that could have been given. Thresholds are tried from a coverage of
    10 %, 20 %, ..., 100 % upwards in steps of 1 %, as long as the upper bound of Clopper and Pearson stays below
    ``max_risk``; each of the ten starts has a tenth of the 5 % of doubt, so its bounds are at a confidence of 99.5 %.
    That costs coverage, and it needs examples: 529 without any error for a risk of 0.01.

    Args:
        scores: unknown-scores of held-out data, ``(n,)``; nan is never accepted
        correct: whether each prediction is right, ``(n,)``; that of an unknown input never is
        max_risk: largest share of errors among what is accepted
        confidence: None, or how sure to be that it also holds on new data

    >>> scores, correct = [0.1, 0.2, 0.3, 0.4, 0.5], [True, True, True, False, True]
    >>> print(operating_point(scores, correct, max_risk=0.2))
    accept up to 0.5: coverage 1, risk 0.2 (1 of 5)
    >>> print(operating_point(scores, correct, max_risk=0.1))
    accept up to 0.3: coverage 0.6, risk 0 (0 of 3)
    """
    check_rate("max_risk", max_risk)
    if confidence is not None:
        check_rate("confidence", confidence)
    exact = as_scores("scores", scores)
    curve = risk_coverage_curve(exact.masked_fill(exact.isnan(), math.inf), correct)
    will_do = (curve.risk <= max_risk) & np.isfinite(curve.thresholds)
    if confidence is not None:
        return _sure_point(curve, will_do, len(exact), max_risk, (1 - confidence) * STEP / LEVELS)
    places = np.flatnonzero(will_do)
    return _point(curve, int(places[-1]), len(exact)) if len(places) else NOTHING


def _sure_point(
    curve: RiskCoverage, will_do: NDArray[np.bool_], examples: int, max_risk: float, doubt: float
) -> OperatingPoint:
    """Climb through the levels of coverage from each start, as long as a risk above the largest one is out of question.

    Levels are chosen without a look at what is right. A climb ends at the first level that fails, so a start takes up
    its share of the doubt once, however far it leads.
    """
    found, climbing = NOTHING, False
    for level in range(STEP, LEVELS + 1):
        if climbing or level % STEP == 0:
            place = int(np.searchsorted(curve.coverage, level / LEVELS))
            point = _point(curve, place, examples)
            trials = point.accepted - 1  # without the input at the threshold: the threshold was put there for it
            climbing = bool(will_do[place]) and trials > 0 and at_most(point.errors, trials, max_risk) <= doubt
            found = point if climbing else found
    if not found.accepted:
        return NOTHING
    return replace(found, bound=binomial_upper(found.errors, found.accepted - 1, 1 - doubt))


def _point(curve: RiskCoverage, place: int, examples: int) -> OperatingPoint:
    threshold, coverage, risk = (float(column[place]) for column in curve)
    accepted = round(coverage * examples)
    return OperatingPoint(threshold, coverage, risk, accepted, round(risk * accepted))
