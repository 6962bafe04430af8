"""Whether a promised rate is kept on other known data."""

from dataclasses import dataclass

from openradial.conformal.binomial import binomial_interval
from openradial.conformal.inputs import Given, as_scores, check_rate
from openradial.conformal.rejector import Rejector
from openradial.errors import OptionError, ShapeError


@dataclass(frozen=True)
class FalseRejectReport:
    """What was asked for and what was counted. ``low`` to ``high`` holds the true rate with this confidence."""

    asked: float
    measured: float
    low: float
    high: float
    rejected: int
    examples: int
    confidence: float

    @property
    def is_kept(self) -> bool:
        """Whether the count is compatible with the rate that was asked for, or with a lower one."""
        return self.low <= self.asked

    def __str__(self) -> str:
        return (
            f"false-reject rate: asked {self.asked:g}, measured {self.measured:.4g} "
            f"({self.rejected} of {self.examples}; "
            f"{100 * self.confidence:g} % interval {self.low:.4g} to {self.high:.4g})"
        )


def false_reject_report(
    scores: Given,
    rejector: Rejector,
    labels: Given | None = None,
    *,
    false_reject_rate: float | None = None,
    confidence: float = 0.95,
) -> FalseRejectReport:
    """Count how much of other known data a rejector rejects, with the interval of Clopper and Pearson.

    The data must be known, and neither trained on nor calibrated with. The rate of one fitted rejector lies around the
    one asked for and not exactly on it, because its calibration set is a sample too.

    >>> rejector = Rejector(false_reject_rate=0.1).fit(list(range(99)))
    >>> print(false_reject_report(list(range(0, 100, 2)), rejector))
    false-reject rate: asked 0.1, measured 0.1 (5 of 50; 95 % interval 0.03328 to 0.2181)
    """
    check_rate("confidence", confidence)
    if not isinstance(rejector, Rejector):
        raise OptionError(f"the second argument must be a fitted Rejector, got {type(rejector).__name__}")
    asked = rejector.false_reject_rate if false_reject_rate is None else false_reject_rate
    exact = as_scores("scores", scores)
    if not len(exact):
        raise ShapeError("scores must hold at least one known example to measure a rate, got none")
    rejected = int(rejector.rejects(exact, labels, asked).sum())
    low, high = binomial_interval(rejected, len(exact), confidence)
    return FalseRejectReport(asked, rejected / len(exact), low, high, rejected, len(exact), confidence)
