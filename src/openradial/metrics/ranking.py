"""Metrics of unknown scores of known and novel inputs. Larger is more unknown; equal scores are never split."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from openradial.errors import OptionError, check_choice
from openradial.metrics.inputs import Array, as_flags, as_scores

Positive = Literal["known", "novel"]
KNOWN, NOVEL = 0, 1  # the rows of a tally of known and novel inputs


@dataclass(frozen=True)
class Tally:
    """Counts of accepted examples for every threshold; a score of at most the threshold is accepted.

    The thresholds are the distinct scores: equal scores are accepted together, in any order. Each row of ``accepted``
    counts one part of the examples, such as the known ones, and begins with 0, before the first threshold. ``groups``
    lists the rows that are one sample and are resampled together.
    """

    thresholds: Array  # (m,)
    accepted: Array  # (parts, m + 1), each row increases from 0 to the size of the part
    groups: Sequence[Sequence[int]]

    @classmethod
    def of(cls, *parts: Array, groups: Sequence[Sequence[int]]) -> Self:
        """Sort and count the scores of each part."""
        # Most of the time goes into touching new memory: hence in place, and small integers.
        scores, sizes = np.concatenate(parts), [len(part) for part in parts]
        for run in np.split(scores, np.cumsum(sizes)[:-1]):
            run.sort()
        order = np.argsort(scores, kind="stable")  # merges sorted runs in linear time
        origin = np.repeat(np.arange(len(parts), dtype=np.int8), sizes)[order]
        del order
        scores.sort(kind="stable")
        is_last = np.append(scores[1:] != scores[:-1], True)  # of equal scores
        thresholds = scores[is_last]
        accepted = np.zeros((len(parts), len(thresholds) + 1), np.int32 if len(scores) < 2**30 else np.int64)
        for part in range(len(parts)):
            accepted[part, 1:] = np.cumsum(origin == part, dtype=accepted.dtype)[is_last]
        return cls(thresholds, accepted, groups)

    @property
    def sizes(self) -> Array:
        """Number of examples of each part."""
        return self.accepted[:, -1]

    def resample(self, random: np.random.Generator) -> "Tally":
        """Draw each group again with replacement, without sorting."""
        accepted = np.zeros_like(self.accepted)
        for rows, cells in zip(self.groups, self._cells, strict=True):
            drawn = cells[random.integers(len(cells), size=len(cells))]
            counts = np.bincount(drawn, minlength=len(rows) * len(self.thresholds))
            accepted[list(rows), 1:] = np.cumsum(counts.reshape(len(rows), -1), axis=1)
        return Tally(self.thresholds, accepted, self.groups)

    @cached_property
    def _cells(self) -> list[Array]:
        """For each group, the cell (part, threshold) of each example."""
        counts = [np.diff(self.accepted[list(rows)]).ravel() for rows in self.groups]
        return [np.repeat(np.arange(len(count)), count) for count in counts]


def area(x: Array, y: Array) -> float:
    """Return the area under the line through two rows of counts, as a number of pairs; equal scores count half."""
    return float(np.einsum("i,i", np.diff(x), y[1:] + y[:-1], dtype=np.int64)) / 2


class RocCurve(NamedTuple):
    """Share of novel (``fpr``) and of known inputs (``tpr``) that have a score of at most each threshold."""

    thresholds: Array
    fpr: Array
    tpr: Array


def auroc(known: ArrayLike, novel: ArrayLike) -> float:
    """Return the area under the ROC curve: the probability that a novel input scores above a known one.

    Ties count half.

    >>> auroc(known=[0.1, 0.2, 0.4], novel=[0.3, 0.9])
    0.8333333333333334
    """
    return auroc_of(tally_ranking(known, novel))


def aupr(known: ArrayLike, novel: ArrayLike, positive: Positive = "novel") -> float:
    r"""Return the average precision, the area under the precision-recall curve, with known or novel as positive.

    :math:`\sum_j (R_j - R_{j-1}) P_j` over the distinct thresholds, from the most positive one on: steps, not straight
    lines, as in scikit-learn's ``average_precision_score``.

    >>> aupr(known=[0.1, 0.2, 0.4], novel=[0.3, 0.9])
    0.8333333333333333
    >>> aupr(known=[0.1, 0.2, 0.4], novel=[0.3, 0.9], positive="known")
    0.9166666666666666
    """
    return aupr_of(tally_ranking(known, novel), positive)


def fpr_at_tpr(known: ArrayLike, novel: ArrayLike, tpr: float = 0.95) -> float:
    """Return the share of novel inputs that are accepted when the share ``tpr`` of the known ones is: "FPR95".

    Known inputs are the positive side. The threshold is the smallest score that accepts at least ``tpr`` of them; equal
    scores are accepted too.

    >>> fpr_at_tpr(known=[0.1, 0.2, 0.3, 0.9], novel=[0.2, 0.4, 0.8], tpr=0.75)
    0.3333333333333333
    """
    return fpr_at_tpr_of(tally_ranking(known, novel), tpr)


def roc_curve(known: ArrayLike, novel: ArrayLike) -> RocCurve:
    """Return the ROC curve at every distinct score, from "nothing is accepted" (threshold -inf) to "all are".

    >>> curve = roc_curve(known=[0.1, 0.3], novel=[0.3, 0.9])
    >>> curve.thresholds.tolist(), curve.fpr.tolist(), curve.tpr.tolist()
    ([-inf, 0.1, 0.3, 0.9], [0.0, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 1.0])
    """
    tally = tally_ranking(known, novel)
    knowns, novels = tally.accepted
    return RocCurve(np.append(-np.inf, tally.thresholds), novels / novels[-1], knowns / knowns[-1])


def tally_ranking(known: ArrayLike, novel: ArrayLike) -> Tally:
    """Count known and novel scores for ranking metrics."""
    return Tally.of(as_scores("known", known), as_scores("novel", novel), groups=((KNOWN,), (NOVEL,)))


def auroc_of(tally: Tally) -> float:
    """Return the area under the ROC curve."""
    known, novel = tally.accepted
    return area(novel, known) / float(known[-1]) / float(novel[-1])


def aupr_of(tally: Tally, positive: Positive) -> float:
    """Return the area under the precision-recall curve."""
    check_choice("positive", positive, ("known", "novel"))
    counts = tally.accepted if positive == "known" else (tally.sizes[:, None] - tally.accepted)[:, ::-1]
    positives = counts[KNOWN if positive == "known" else NOVEL, 1:]
    precision = positives / np.maximum(counts[:, 1:].sum(0), 1)  # a resampled tally may begin with nothing
    return float(np.diff(positives, prepend=0) @ precision / positives[-1])


def fpr_at_tpr_of(tally: Tally, tpr: float) -> float:
    """Return the share of novel inputs accepted where ``tpr`` of the known ones are."""
    if not 0 < tpr <= 1:
        raise OptionError(f"tpr must be above 0 and at most 1, got {tpr!r}; the usual one is 0.95")
    known, novel = tally.accepted
    # Shares, not tpr * size: 55 / 100 is exactly the float 0.55, but 0.55 * 100 is more than 55.
    return float(novel[np.searchsorted(known / known[-1], tpr)] / novel[-1])


class OscrCurve(NamedTuple):
    """Shares of novel inputs accepted (``fpr``) and of known ones accepted and right (``ccr``), at each threshold."""

    thresholds: Array
    fpr: Array
    ccr: Array


def oscr(known: ArrayLike, novel: ArrayLike, correct: ArrayLike) -> float:
    """Return the open-set classification rate: the area under :func:`openradial.metrics.oscr_curve`, by straight lines.

    It is the probability that a known input is classified correctly *and* scores lower than a novel one; ties count
    half. So it is at most the accuracy, and equal to it when no novel input scores as low as a correct known one.

    ``correct`` tells for each known input whether its class is right, before any is rejected.

    >>> oscr(known=[0.1, 0.2, 0.4], novel=[0.3, 0.9], correct=[True, False, True])
    0.5
    """
    return oscr_of(tally_open_set(known, novel, correct))


def oscr_curve(known: ArrayLike, novel: ArrayLike, correct: ArrayLike) -> OscrCurve:
    """Return correct classification and false positive rates at every distinct score, from "nothing is accepted" on.

    >>> curve = oscr_curve(known=[0.1, 0.2, 0.4], novel=[0.3, 0.9], correct=[True, False, True])
    >>> curve.fpr.tolist()
    [0.0, 0.0, 0.0, 0.5, 0.5, 1.0]
    >>> curve.ccr.round(2).tolist()
    [0.0, 0.33, 0.33, 0.33, 0.67, 0.67]
    """
    tally = tally_open_set(known, novel, correct)
    right, wrong, novels = tally.accepted
    ccr = right / (right[-1] + wrong[-1])
    return OscrCurve(np.append(-np.inf, tally.thresholds), novels / novels[-1], ccr)


def tally_open_set(known: ArrayLike, novel: ArrayLike, correct: ArrayLike) -> Tally:
    """Count the scores of right, wrong and novel examples; right and wrong are one group."""
    scores = as_scores("known", known)
    right = as_flags("correct", correct, len(scores))
    return Tally.of(scores[right], scores[~right], as_scores("novel", novel), groups=((0, 1), (2,)))


def oscr_of(tally: Tally) -> float:
    """Return the area under the OSCR curve."""
    right, wrong, novel = tally.accepted
    return area(novel, right) / float(right[-1] + wrong[-1]) / float(novel[-1])
