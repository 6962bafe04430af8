"""Prediction sets: all classes that an input may belong to; the empty set means unknown."""

from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from openradial.conformal.calibration import Calibrated, Calibration
from openradial.conformal.inputs import TensorOrArray, as_distances, as_targets, check_calibration, in_kind_of


class PredictionSets(Calibrated):
    r"""All classes whose prototype is near enough; no class means unknown.

    :meth:`fit` takes the distances of held-out known data to every class, and the true classes. Class k is in the set
    of an input where the p-value of its distance :math:`d_k` among the distances of known data to their true class is
    above ``error_rate``. So the set holds the true class of a known input in at least a share 1 − ``error_rate`` of all
    cases; with ``per_class=True`` also of the cases of each class, because each class is compared with its examples.
    The nearest class is not always included: the set may be empty. For a known input that happens in at most a share
    ``error_rate`` of all cases. A class whose distance is nan or infinite is never included.

    >>> near_and_far = torch.arange(1.0, 20.0)[:, None] * torch.tensor([1.0, 10.0])
    >>> sets = PredictionSets(error_rate=0.1).fit(near_and_far, torch.zeros(19, dtype=torch.long))
    >>> sets.sets(torch.tensor([[2.0, 30.0], [5.0, 6.0], [40.0, 50.0]]))
    tensor([[ True, False],
            [ True,  True],
            [False, False]])
    """

    rate_name = "error_rate"
    fit_call = "fit(distances, labels)"

    def __init__(self, error_rate: float = 0.05, per_class: bool = False) -> None:
        super().__init__(error_rate, per_class)

    @property
    def error_rate(self) -> float:
        return self._default_rate

    def fit(self, distances: TensorOrArray, labels: TensorOrArray) -> Self:
        """Fit on the distances of held-out known data to all classes, ``(n, k), (n,)``."""
        exact = as_distances("distances", distances)
        y = as_targets(labels, *exact.shape)
        true = exact.gather(1, y[:, None]).squeeze(1)  # (n,) to the true class
        check_calibration("distances to the true class", true)
        width = exact.shape[1]
        return self._calibrate(Calibration.of(true, y.numpy(), np.arange(width) if self.per_class else None, width))

    def sets(self, distances: TensorOrArray, error_rate: float | None = None) -> Any:
        """Return which classes each input may belong to, ``(b, k) -> (b, k)`` of bool; a row without any is unknown.

        Any rate from 1 / (n + 1) on may be asked for; nothing is fitted again.
        """
        exact = as_distances("distances", distances, self._calibration.width)
        limits = self._calibration.thresholds(self.checked_rate(error_rate), self._indices(exact.shape[1]))
        return in_kind_of(distances, exact <= limits)

    def p_values(self, distances: TensorOrArray) -> Any:
        """Return the p-value of each class, ``(b, k) -> (b, k)``."""
        exact = as_distances("distances", distances, self._calibration.width)
        indices = self._indices(exact.shape[1]).expand(exact.shape).flatten()
        return in_kind_of(distances, self._calibration.p_values(exact.flatten(), indices).reshape(exact.shape))

    def _takes(self, calibration: Calibration) -> bool:
        classes = calibration.classes
        is_every_column = classes is None or classes.tolist() == list(range(calibration.width or 0))
        return super()._takes(calibration) and calibration.width is not None and is_every_column

    def _indices(self, width: int) -> Tensor:
        """Return the group of each column."""
        return torch.arange(width) if self.per_class else torch.zeros(width, dtype=torch.int64)
