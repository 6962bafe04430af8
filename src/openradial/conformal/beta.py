"""Choose beta after training, so that the winning probability is calibrated."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from openradial.conformal.inputs import TensorOrArray, as_distances, as_targets, check_calibration
from openradial.errors import ShapeError, check_count, check_positive
from openradial.metrics import ece


@dataclass(frozen=True)
class BetaFit:
    """The fitted beta, and the expected calibration errors with it and with the previous beta, on the same data."""

    beta: float
    ece: float
    before: float
    ece_before: float
    accuracy: float
    examples: int

    def __str__(self) -> str:
        return (
            f"beta {self.beta:.4g} (before {self.before:.4g}): calibration error {self.ece:.4f} "
            f"(before {self.ece_before:.4f}) at accuracy {self.accuracy:.4f} of {self.examples} examples"
        )


def fit_beta(distances: TensorOrArray, y: TensorOrArray, *, before: float = 1.0, bins: int = 15) -> BetaFit:
    r"""Fit the beta for which :math:`e^{-\beta d}` of the nearest class is the frequency with which it is right.

    It maximises the likelihood of what was right and wrong,
    :math:`\sum_{\text{right}} -\beta d_i + \sum_{\text{wrong}} \log(1 - e^{-\beta d_i})`, which has one maximum. The
    data must be known and held out; the errors in the result are measured on this data, so they are slightly too low.
    beta changes neither the nearest class nor any order, so neither a :class:`Rejector` on distances nor a ROC curve.

    ``distances`` are those to every class, ``(n, k)``, ``y`` the true classes, ``(n,)``; ``before`` is the beta to
    compare with, and :func:`openradial.metrics.ece` has ``bins``.

    >>> distances = [[0.1, 1.0], [0.4, 0.9], [0.8, 0.5], [0.6, 0.7]]
    >>> print(fit_beta(distances, [0, 0, 1, 1]))
    beta 0.7833 (before 1): calibration error 0.3234 (before 0.3418) at accuracy 0.7500 of 4 examples
    """
    check_positive("before", before)
    check_count("bins", bins)
    exact = as_distances("distances", distances)
    labels = as_targets(y, *exact.shape)
    nearest, winner = exact.min(1)  # (n,), (n,)
    check_calibration("distances to the nearest class", nearest)
    right = winner == labels
    beta = _most_likely(nearest, right)
    errors = [ece((-each * exact).exp(), labels, winner, bins=bins) for each in (beta, float(before))]
    return BetaFit(beta, errors[0], float(before), errors[1], float(right.double().mean()), len(labels))


def _most_likely(d: Tensor, right: Tensor) -> float:
    unit = float(d.max()) or 1.0  # sums of distances in this unit are finite
    push, wrong = float((d[right] / unit).sum()), d[~right] / unit

    def slope(beta: float) -> float:
        """Return the derivative of minus the log-likelihood; it increases with beta."""
        pull = torch.where(wrong == 0, 1 / beta, wrong / torch.expm1(beta * wrong))  # 1 / beta is the limit at 0
        return push - float(pull.sum())

    beta = 0.0 if not len(wrong) else math.inf
    if len(wrong) and push > 0:
        low = high = 1.0
        while slope(low) > 0:
            low, high = low / 2, low
        while slope(high) < 0:
            low, high = high, 2 * high
        for _ in range(60):  # until no number lies between them
            middle = (low + high) / 2
            low, high = (low, middle) if slope(middle) > 0 else (middle, high)
        beta = (low + high) / 2 / unit
    if not 0 < beta < math.inf:
        raise ShapeError(
            "distances must be of both right predictions (not all on their prototypes) and wrong ones, got "
            f"{int(right.sum())} right and {len(wrong)} wrong: the best beta would be {'infinite' if beta else '0'}; "
            "give more held-out data, or choose beta yourself, for instance by functional.safe_beta"
        )
    return beta
