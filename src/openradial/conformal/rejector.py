"""The rejector: a class or "unknown" at a guaranteed rate of false rejections, and a report that checks the rate."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from openradial.conformal import inputs
from openradial.conformal.calibration import Calibrated, Calibration
from openradial.conformal.inputs import LabelsLike, TensorOrArray
from openradial.conformal.risk import binomial_interval
from openradial.errors import OptionError, ShapeError
from openradial.metrics.inputs import UNKNOWN, UNKNOWN_NAME


class Rejector(Calibrated):
    r"""A class or "unknown": of all known inputs, at most a share ``false_reject_rate`` is rejected.

    :meth:`fit` takes the unknown scores of known data that the network was not trained on. An input is rejected where
    its :func:`conformal_p_values` is at most the rate, which is where its score is above the
    :math:`\lceil (n+1)(1-\text{rate}) \rceil`-th smallest calibration score. The promise holds on average over the
    calibration sets that could have been drawn, for every scorer and every distribution, as long as calibration data
    and later known inputs are drawn alike. It says nothing about how many unknown inputs are rejected.

    With ``per_class=True`` each class has separate scores, and the label given to :meth:`decide` selects them.
    What is promised depends on the labels given to :meth:`fit`:

    - *predicted* labels, those of the same network: of all known inputs that are predicted as class c, at most a share
      ``false_reject_rate`` is rejected, and so for all classes together.
    - *true* labels: of all inputs that belong to class c, at most a share ``false_reject_rate`` is rejected although
      it was predicted as c. A known input that is predicted wrongly may be rejected beyond that.

    All scores are kept up to 100,000 in all (or 1,000 in each class, if that is more), so that another rate can be
    asked for later. Of more, half of the kept ones are the largest; between the others p is rounded up, which can only
    reject less. A score that is nan or infinite is always rejected, and never accepted by :meth:`fit`.

    >>> rejector = Rejector(false_reject_rate=0.1).fit(torch.arange(1.0, 20.0))
    >>> rejector.decide(torch.tensor([3.0, 18.0, 18.5, torch.nan]), torch.tensor([0, 1, 1, 0]))
    tensor([ 0,  1, -1, -1])
    >>> rejector.decide([3.0, 19.5], ["cat", "dog"], false_reject_rate=0.05)
    array(['cat', 'unknown'], dtype='<U7')
    """

    rate_name = "false_reject_rate"
    fit_call = "fit(scores, labels)"

    def __init__(self, false_reject_rate: float = 0.05, per_class: bool = False) -> None:
        super().__init__(false_reject_rate, per_class)

    @property
    def false_reject_rate(self) -> float:
        return self._default_rate

    def fit(self, scores: TensorOrArray, labels: TensorOrArray | None = None) -> Self:
        """Fit on the unknown scores of held-out known data, ``(n,), (n,)``; labels are needed per class only."""
        exact = inputs.as_scores("scores", scores)
        inputs.check_calibration("scores", exact)
        names = None if labels is None else inputs.as_labels(labels, len(exact), known=True)
        if self.per_class and names is None:
            raise OptionError("per_class=True needs the class of each score: call fit(scores, labels)")
        classes = np.unique(names) if self.per_class and names is not None else None
        return self._calibrate(Calibration.of(exact, names, classes))

    def decide(self, scores: TensorOrArray, labels: TensorOrArray, false_reject_rate: float | None = None) -> Any:
        """Return the labels, with -1 (or ``"unknown"`` for strings) where rejected; ``(b,), (b,) -> (b,)``.

        A label that is already unknown stays. The result is a tensor where the scores are one and labels are numbers,
        otherwise a NumPy array. Any rate from 1 / (n + 1) on may be asked for; nothing is fitted again.
        """
        exact = inputs.as_scores("scores", scores)
        names = inputs.as_labels(labels, len(exact))
        rejected = self._rejects(exact, names, false_reject_rate)
        if names.dtype.kind == "U":
            return np.where(rejected.numpy(), UNKNOWN_NAME, names)
        return inputs.in_kind_of(scores, torch.from_numpy(names).masked_fill(rejected, UNKNOWN))

    def rejects(
        self, scores: TensorOrArray, labels: TensorOrArray | None = None, false_reject_rate: float | None = None
    ) -> Any:
        """Return whether each input is rejected, ``(b,), (b,) -> (b,)``; labels are needed per class only."""
        exact = inputs.as_scores("scores", scores)
        return inputs.in_kind_of(scores, self._rejects(exact, self._names(labels, len(exact)), false_reject_rate))

    def p_values(self, scores: TensorOrArray, labels: TensorOrArray | None = None) -> Any:
        """Return the p-value of each score, see :func:`conformal_p_values`; ``(b,), (b,) -> (b,)``.

        Per class, the label selects the scores to compare with; for an unknown label p is 0.
        """
        exact = inputs.as_scores("scores", scores)
        indices = self._calibration.indices(self._names(labels, len(exact)))
        return inputs.in_kind_of(scores, self._calibration.p_values(exact, indices))

    def _rejects(self, scores: Tensor, labels: LabelsLike, asked: float | None) -> Tensor:
        rate = self.checked_rate(asked)
        indices = self._calibration.indices(labels)
        accepted = scores <= self._calibration.thresholds(rate, indices)  # never so for nan
        return ~accepted | (indices < 0)

    def _names(self, labels: TensorOrArray | None, count: int) -> LabelsLike:
        if labels is not None:
            return inputs.as_labels(labels, count)
        if self.per_class:
            raise OptionError("per_class=True needs the predicted class of each score: give labels too")
        return np.zeros(count, dtype=np.int64)


@dataclass(frozen=True)
class FalseRejectReport:
    """The requested and the measured rate. ``low`` to ``high`` contains the true rate with this confidence."""

    asked: float
    measured: float
    low: float
    high: float
    rejected: int
    examples: int
    confidence: float

    @property
    def is_kept(self) -> bool:
        """Whether the count is compatible with the requested rate, or with a lower one."""
        return self.low <= self.asked

    def __str__(self) -> str:
        return (
            f"false-reject rate: asked {self.asked:g}, measured {self.measured:.4g} ({self.rejected} of "
            f"{self.examples}; {100 * self.confidence:g} % interval {self.low:.4g} to {self.high:.4g})"
        )


def false_reject_report(
    scores: TensorOrArray,
    rejector: Rejector,
    labels: TensorOrArray | None = None,
    *,
    false_reject_rate: float | None = None,
    confidence: float = 0.95,
) -> FalseRejectReport:
    """Measure the share of other known data that a rejector rejects, with the interval of Clopper and Pearson.

    The data must be known, and used neither for training nor for calibration. The rate of one fitted rejector varies
    around the requested one, because its calibration set is a sample too.

    >>> rejector = Rejector(false_reject_rate=0.1).fit(list(range(99)))
    >>> print(false_reject_report(list(range(0, 100, 2)), rejector))
    false-reject rate: asked 0.1, measured 0.1 (5 of 50; 95 % interval 0.03328 to 0.2181)
    """
    inputs.check_rate("confidence", confidence)
    if not isinstance(rejector, Rejector):
        raise OptionError(f"the second argument must be a fitted Rejector, got {type(rejector).__name__}")
    asked = rejector.false_reject_rate if false_reject_rate is None else false_reject_rate
    exact = inputs.as_scores("scores", scores)
    if not len(exact):
        raise ShapeError("scores must hold at least one known example to measure a rate, got none")
    rejected = int(rejector.rejects(exact, labels, asked).sum())
    low, high = binomial_interval(rejected, len(exact), confidence)
    return FalseRejectReport(asked, rejected / len(exact), low, high, rejected, len(exact), confidence)
