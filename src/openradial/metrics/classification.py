"""Metrics of predicted classes. Label and prediction -1, or the name "unknown", is unknown."""

import numpy as np
from numpy.typing import ArrayLike

from openradial.errors import OptionError, check_count
from openradial.metrics.inputs import Array, as_class_scores, as_label_pair, as_labels


def accuracy(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Return the share of predictions that are right. With -1 for unknown among both, it is the open-set accuracy.

    Both may be names instead of numbers.

    >>> accuracy(labels=[0, 1, 2, -1], predictions=[0, 1, -1, -1])
    0.75
    >>> accuracy(labels=["cat", "dog"], predictions=["cat", "unknown"])
    0.5
    """
    return float(np.mean(hits(labels, predictions)))


def top_k_accuracy(scores: ArrayLike, labels: ArrayLike, k: int = 1) -> float:
    """Return the share of known examples whose class is among the ``k`` most likely ones.

    ``scores``, (n, classes), are larger for a likelier class: probabilities, log-probabilities or negative distances.
    Of equal scores the first class comes first, as in ``argmax``.

    >>> top_k_accuracy([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2]], labels=[0, 1])
    0.5
    >>> top_k_accuracy([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2]], labels=[0, 1], k=2)
    1.0
    """
    return float(np.mean(top_k_hits(scores, labels, k)))


def open_f1(labels: ArrayLike, predictions: ArrayLike, num_classes: int | None = None) -> float:
    r"""Return the macro F1 over the known classes and "unknown": the mean of the F1 of each.

    F1 is :math:`2 \text{TP} / (2 \text{TP} + \text{FP} + \text{FN})`. Classes that are neither among the labels nor
    among the predictions are left out of the mean, so ``num_classes`` only checks that no label is beyond it. Both may
    be names, where ``"unknown"`` is unknown.

    >>> open_f1(labels=[0, 0, 1, -1], predictions=[0, -1, 1, -1], num_classes=2)
    0.7777777777777777
    >>> open_f1(["cat", "cat", "dog", "unknown"], ["cat", "unknown", "dog", "unknown"])
    0.7777777777777777
    """
    return f1_of(*as_label_pair(labels, predictions, num_classes))


def hits(labels: ArrayLike, predictions: ArrayLike) -> Array:
    """Return whether each prediction is right, ``(n,)``."""
    y, predicted = as_label_pair(labels, predictions)
    return np.asarray(y == predicted)


def top_k_hits(scores: ArrayLike, labels: ArrayLike, k: int) -> Array:
    """Return whether each label is among the k largest scores, ``(n,)``."""
    values = as_class_scores("scores", scores)
    y = as_labels("labels", labels, *values.shape, unknown=False)[:, None]
    check_count("k", k)
    if k > values.shape[1]:
        raise OptionError(f"k must be at most the number of classes: k={k} but {values.shape[1]} classes")
    true = np.take_along_axis(values, y, axis=1)
    ahead = (values > true) | ((values == true) & (np.arange(values.shape[1]) < y))
    return np.asarray(ahead.sum(1) < k)


def f1_of(labels: Array, predictions: Array) -> float:
    """Return the mean F1 over the labels that occur."""
    counts = [np.bincount(each + 1) for each in (labels[labels == predictions], labels, predictions)]
    right, actual, predicted = (np.pad(each, (0, max(map(len, counts)) - len(each))) for each in counts)
    present = actual + predicted > 0
    return float(np.mean(2 * right[present] / (actual + predicted)[present]))
