"""Operating points: accept as much as possible at a limited risk; and exact bounds on a share that was counted."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openradial.conformal.inputs import TensorOrArray, as_scores, check_rate
from openradial.metrics import RiskCoverage, risk_coverage_curve

LEVELS = 100  # coverages are tested in steps of 1 %,
STEP = 10  # in sequences that start at 10 %, 20 %, ..., 100 %


@dataclass(frozen=True)
class OperatingPoint:
    """Accept where ``score <= threshold``; coverage is the share of accepted inputs, risk that of errors among them.

    Where no threshold qualifies, it is minus infinity, and coverage and risk are 0. ``bound`` is an upper bound of the
    risk on new data at the requested confidence; None without a confidence, or where nothing is accepted.
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
    scores: TensorOrArray, correct: TensorOrArray, max_risk: float = 0.01, confidence: float | None = None
) -> OperatingPoint:
    """Return the threshold that accepts most while at most a share ``max_risk`` of the accepted predictions is wrong.

    Without ``confidence`` that holds on the given data only. The best of many thresholds was selected on it, so on new
    data the risk is larger about every second time. With ``confidence=0.95``, the risk on new data of the same
    distribution is at most ``max_risk`` for 95 % of the data sets that could have been given. Thresholds are tried
    from a coverage of 10 %, 20 %, ..., 100 % upwards in steps of 1 %, as long as the upper bound of Clopper and Pearson
    stays below ``max_risk``; each of the ten starts has a tenth of the 5 % error probability, so its bounds
    are at a confidence of 99.5 %. That costs coverage, and it needs examples: 529 without any error for a risk of 0.01.

    ``scores`` are unknown scores of held-out data, ``(n,)``; nan is never accepted. ``correct`` is whether each
    prediction is right, ``(n,)``; False for an unknown input.

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
    qualifies = (curve.risk <= max_risk) & np.isfinite(curve.thresholds)
    if confidence is not None:
        return _confident_point(curve, qualifies, len(exact), max_risk, (1 - confidence) * STEP / LEVELS)
    indices = np.flatnonzero(qualifies)
    return _point(curve, int(indices[-1]), len(exact)) if len(indices) else NOTHING


def _confident_point(
    curve: RiskCoverage, qualifies: NDArray[np.bool_], examples: int, max_risk: float, error_prob: float
) -> OperatingPoint:
    """Test increasing coverages from each start, as long as a risk above the largest one is rejected.

    Levels do not depend on what is correct. A sequence ends at the first level that fails, so a start uses its share
    of the error probability once, however many levels pass.
    """
    best, climbing = NOTHING, False
    for level in range(STEP, LEVELS + 1):
        if climbing or level % STEP == 0:
            index = int(np.searchsorted(curve.coverage, level / LEVELS))
            point = _point(curve, index, examples)
            trials = point.accepted - 1  # without the input at the threshold, which was set there
            climbing = bool(qualifies[index]) and trials > 0 and at_most(point.errors, trials, max_risk) <= error_prob
            best = point if climbing else best
    if not best.accepted:
        return NOTHING
    return replace(best, bound=binomial_upper(best.errors, best.accepted - 1, 1 - error_prob))


def _point(curve: RiskCoverage, index: int, examples: int) -> OperatingPoint:
    threshold, coverage, risk = (float(column[index]) for column in curve)
    accepted = round(coverage * examples)
    return OperatingPoint(threshold, coverage, risk, accepted, round(risk * accepted))


def binomial_interval(count: int, total: int, confidence: float) -> tuple[float, float]:
    """Return the interval of Clopper and Pearson, which contains the true share with this confidence.

    >>> low, high = binomial_interval(5, 100, confidence=0.95)
    >>> round(low, 4), round(high, 4)
    (0.0164, 0.1128)
    """
    each_side = (1 + confidence) / 2
    return 1 - binomial_upper(total - count, total, each_side), binomial_upper(count, total, each_side)


def binomial_upper(count: int, total: int, confidence: float) -> float:
    """Return the upper bound of Clopper and Pearson for ``count`` of ``total``: the true share does not exceed it.

    >>> round(binomial_upper(0, 299, confidence=0.95), 4)
    0.01
    """
    if count >= total:
        return 1.0
    low, high = count / total, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if at_most(count, total, middle) <= 1 - confidence else (middle, high)
    return high


def at_most(count: int, total: int, share: float) -> float:
    """Return the probability of at most ``count`` of ``total`` where each has the probability ``share``."""
    j, rest, log_coefficients = _log_coefficients(count, total)
    log_chances = log_coefficients + torch.special.xlogy(j, share) + torch.special.xlog1py(rest, -share)
    return float(log_chances.logsumexp(0).exp())


@lru_cache(maxsize=1)  # a bound is searched with one count
def _log_coefficients(count: int, total: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return j from 0 to ``count``, ``total`` - j, and the logarithms of the binomial coefficients."""
    j = torch.arange(count + 1, dtype=torch.float64)
    return j, total - j, math.lgamma(total + 1) - torch.lgamma(j + 1) - torch.lgamma(total - j + 1)
