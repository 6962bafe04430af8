"""Reject what looks unknown, with a promise about what is known."""

from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from openradial.conformal.calibrated import Calibrated
from openradial.conformal.calibration import Calibration
from openradial.conformal.inputs import (
    UNKNOWN,
    UNKNOWN_NAME,
    Given,
    Labels,
    as_labels,
    as_scores,
    check_calibration,
    check_known,
    in_kind_of,
)
from openradial.errors import OptionError


class Rejector(Calibrated):
    r"""A class or "unknown": of all known inputs, at most a share ``false_reject_rate`` is rejected.

    :meth:`fit` takes the unknown-scores of known data that the network was not trained on. An input is rejected where
    its :func:`conformal_p_values` is at most the rate, which is where its score is above the
    :math:`\lceil (n+1)(1-\text{rate}) \rceil`-th smallest calibration score. The promise holds on average over the
    calibration sets that could have been drawn, for every scorer and every distribution, as long as calibration data
    and later known inputs are drawn alike. It says nothing of how many unknown inputs are found.

    With ``per_class=True`` each class has scores of its own, and the label given to :meth:`decide` says which are used.
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

    def fit(self, scores: Given, labels: Given | None = None) -> Self:
        """Learn from the unknown-scores of held-out known data, ``(n,), (n,)``; labels are needed per class only."""
        exact = as_scores("scores", scores)
        check_calibration("scores", exact)
        names = None if labels is None else as_labels(labels, len(exact))
        if names is not None:
            check_known(names)
        calibration = self._calibrate(exact, names)
        calibration.check(self.false_reject_rate)
        self._fitted = calibration
        return self

    def _calibrate(self, scores: Tensor, labels: Labels | None) -> Calibration:
        if not self.per_class:
            return Calibration.of(scores)
        if labels is None:
            raise OptionError("per_class=True needs the class of each score: call fit(scores, labels)")
        return Calibration.per_class(scores, labels, np.unique(labels))

    def decide(self, scores: Given, labels: Given, false_reject_rate: float | None = None) -> Any:
        """The labels, with -1 (or ``"unknown"`` where labels are strings) where rejected; ``(b,), (b,) -> (b,)``.

        A label that says unknown already stays. The result is a tensor where the scores are one and labels are numbers,
        otherwise a NumPy array. Another rate may be asked for: nothing is fitted again.
        """
        exact = as_scores("scores", scores)
        names = as_labels(labels, len(exact))
        rejected = self._rejects(exact, names, false_reject_rate)
        if names.dtype.kind == "U":
            return np.where(rejected.numpy(), UNKNOWN_NAME, names)
        return in_kind_of(scores, torch.from_numpy(names).masked_fill(rejected, UNKNOWN))

    def rejects(self, scores: Given, labels: Given | None = None, false_reject_rate: float | None = None) -> Any:
        """Whether each input is rejected, ``(b,), (b,) -> (b,)``; labels are needed per class only."""
        exact = as_scores("scores", scores)
        return in_kind_of(scores, self._rejects(exact, self._names(labels, len(exact)), false_reject_rate))

    def p_values(self, scores: Given, labels: Given | None = None) -> Any:
        """How compatible each score is with known data, see :func:`conformal_p_values`; ``(b,), (b,) -> (b,)``.

        Per class, the label says whose scores to compare with; where it says unknown, p is 0.
        """
        exact = as_scores("scores", scores)
        places = self._calibration.places(self._names(labels, len(exact)))
        return in_kind_of(scores, self._calibration.p_values(exact, places))

    def _rejects(self, scores: Tensor, labels: Labels, asked: float | None) -> Tensor:
        rate = self._rate(asked)
        places = self._calibration.places(labels)
        accepted = scores <= self._calibration.thresholds(rate, places)  # never so for nan
        return ~accepted | (places < 0)

    def _names(self, labels: Given | None, count: int) -> Labels:
        if labels is not None:
            return as_labels(labels, count)
        if self.per_class:
            raise OptionError("per_class=True needs the predicted class of each score: give labels too")
        return np.zeros(count, dtype=np.int64)
