"""Metrics: arrays in, float out."""

import numpy as np
from numpy.typing import ArrayLike

from openradial.errors import ShapeError


def auroc(known: ArrayLike, novel: ArrayLike) -> float:
    """Area under the ROC curve: the probability that a novel input scores higher than a known one; ties count half.

    Scores are unknown-scores: larger is more unknown.

    >>> auroc(known=[0.1, 0.2, 0.4], novel=[0.3, 0.9])
    0.8333333333333334
    """
    known, novel = np.sort(_scores("known", known)), _scores("novel", novel)
    below = np.searchsorted(known, novel, side="left").sum()
    not_above = np.searchsorted(known, novel, side="right").sum()
    return float((below + not_above) / 2 / len(known) / len(novel))


def _scores(name: str, values: ArrayLike) -> np.ndarray:
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1 or not len(scores):
        raise ShapeError(f"{name} must be a list of at least one score, got shape {scores.shape}")
    if np.isnan(scores).any():
        raise ShapeError(f"{name} must be numbers, got nan at place {int(np.isnan(scores).argmax())}")
    return scores
