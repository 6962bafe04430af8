"""Calibration of probabilities that need not sum to one: the missing mass is the probability of "unknown"."""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from openradial.errors import check_choice, check_count
from openradial.metrics.inputs import UNKNOWN, Array, as_labels, as_probs

Binning = Literal["width", "mass"]


class ReliabilityBins(NamedTuple):
    """Mean confidence and accuracy of the predictions whose confidence is above ``lower`` and at most ``upper``.

    The first bin also holds its lower end. Empty bins count 0 predictions and nan for their means.
    """

    lower: Array
    upper: Array
    counts: Array
    confidence: Array
    accuracy: Array


def confidences(probs: ArrayLike, labels: ArrayLike, predictions: ArrayLike | None = None) -> tuple[Array, Array]:
    r"""Return the confidence of each prediction, and whether it is right, in the open world.

    Row sums of ``probs`` may be below 1; the missing mass :math:`u = \max(0, 1 - \sum_k p_k)` is the probability of
    "unknown", label -1. A prediction of class k has the confidence :math:`p_k`, a rejection (-1) has the confidence u.
    A rejection is right for an input of no known class, and wrong for any other. Without ``predictions``, the most
    probable of the k classes and "unknown" is predicted, the first class where some are equal.

    >>> confidence, correct = confidences([[0.9, 0.05], [0.2, 0.1], [0.2, 0.1]], labels=[0, -1, 1])
    >>> confidence.round(2).tolist(), correct.tolist()
    ([0.9, 0.7, 0.7], [True, True, False])
    """
    p = as_probs("probs", probs)
    rows, num_classes = p.shape
    y = as_labels("labels", labels, rows, num_classes)
    missing = missing_mass(p)
    if predictions is None:
        predicted = np.where(missing > p.max(1), UNKNOWN, p.argmax(1))
    else:
        predicted = as_labels("predictions", predictions, rows, num_classes)
    confidence = np.where(predicted == UNKNOWN, missing, p[np.arange(rows), predicted])
    return confidence, predicted == y


def ece(
    probs: ArrayLike,
    labels: ArrayLike,
    predictions: ArrayLike | None = None,
    *,
    bins: int = 15,
    binning: Binning = "width",
) -> float:
    r"""Return the expected calibration error over bins b.

    .. math:: \sum_b \frac{n_b}{n} |\text{accuracy}_b - \text{confidence}_b|

    Confidence and correctness are those of :func:`openradial.metrics.confidences`, so rejections count with the
    missing mass. Where the probabilities sum to one, this is the usual closed-world error.

    Bins have equal ``"width"`` over 0 to 1, or equal ``"mass"``: as many predictions; equal confidences stay together.

    >>> ece([[1.0, 0.0], [0.75, 0.25]], labels=[0, 1], bins=1)
    0.375
    """
    return ece_of(*confidences(probs, labels, predictions), bins=bins, binning=binning)


def reliability_bins(
    probs: ArrayLike,
    labels: ArrayLike,
    predictions: ArrayLike | None = None,
    *,
    bins: int = 15,
    binning: Binning = "width",
) -> ReliabilityBins:
    """Return the bins of :func:`openradial.metrics.ece`, for a reliability diagram.

    >>> diagram = reliability_bins([[0.9, 0.1], [0.8, 0.2]], labels=[0, 1], bins=2)
    >>> diagram.counts.tolist(), diagram.confidence.round(2).tolist(), diagram.accuracy.tolist()
    ([0, 2], [nan, 0.85], [nan, 0.5])
    """
    return _bins(*confidences(probs, labels, predictions), bins, binning)


def brier(probs: ArrayLike, labels: ArrayLike) -> float:
    r"""Return the mean Brier score over the k classes and "unknown", :math:`\sum_{j=0}^{k} (q_j - [y = j])^2`.

    ``q`` are the probabilities and the missing mass u, see :func:`openradial.metrics.confidences`; label -1 is
    "unknown". Where the probabilities sum to one, it is the original score, from 0 to 2; scikit-learn's score of two
    classes is half of it.

    >>> brier([[0.9, 0.1], [0.2, 0.3]], labels=[0, -1])
    0.2
    """
    return float(np.mean(brier_per_row(probs, labels)))


def brier_per_row(probs: ArrayLike, labels: ArrayLike) -> Array:
    """Return the Brier score of each row, ``(n,)``."""
    p = as_probs("probs", probs)
    y = as_labels("labels", labels, *p.shape)
    missing = missing_mass(p)
    true = np.where(y == UNKNOWN, missing, p[np.arange(len(p)), y])
    squares = np.einsum("nk,nk->n", p, p, dtype=np.float64) + missing**2
    return np.asarray(squares - true**2 + (1 - true) ** 2)


def missing_mass(p: Array) -> Array:
    """Return the probability of "unknown", ``(n, k) -> (n,)``."""
    return np.asarray(np.maximum(0, 1 - p.sum(1, dtype=np.float64)))


def ece_of(confidence: Array, correct: Array, bins: int, binning: Binning) -> float:
    """Return the expected calibration error of confidences."""
    diagram = _bins(confidence, correct, bins, binning)
    filled = diagram.counts > 0
    gaps = np.abs(diagram.accuracy[filled] - diagram.confidence[filled])
    return float(diagram.counts[filled] @ gaps / len(confidence))


def _bins(confidence: Array, correct: Array, bins: int, binning: Binning) -> ReliabilityBins:
    check_count("bins", bins)
    check_choice("binning", binning, ("width", "mass"))
    edges = np.linspace(0, 1, bins + 1)
    if binning == "mass":  # edges at confidences that occur, so that equal ones stay together in one of fewer bins
        last = -(-len(confidence) * np.arange(1, bins + 1) // bins) - 1  # of each bin, were all different
        edges = np.append(confidence.min(), np.unique(np.sort(confidence)[last]))
    index = np.searchsorted(edges[1:-1], confidence)  # (lower, upper]
    counts = np.bincount(index, minlength=len(edges) - 1)
    sums = (np.bincount(index, weights=each, minlength=len(edges) - 1) for each in (confidence, correct))
    means = (np.divide(each, counts, out=np.full(len(counts), np.nan), where=counts > 0) for each in sums)
    return ReliabilityBins(edges[:-1], edges[1:], counts, *means)
