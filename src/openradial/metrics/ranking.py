"""How well unknown-scores tell known inputs from novel ones. Larger is more unknown; equal scores are never split."""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from openradial.errors import OptionError, check_choice
from openradial.metrics.inputs import Array, as_scores
from openradial.metrics.tally import Tally, area

Positive = Literal["known", "novel"]
KNOWN, NOVEL = 0, 1  # the parts of the tally


class RocCurve(NamedTuple):
    """Share of novel (``fpr``) and of known inputs (``tpr``) that have a score of at most each threshold."""

    thresholds: Array
    fpr: Array
    tpr: Array


def auroc(known: ArrayLike, novel: ArrayLike) -> float:
    """Area under the ROC curve: the probability that a novel input scores higher than a known one; ties count half.

    Scores are unknown-scores: larger is more unknown.

    >>> auroc(known=[0.1, 0.2, 0.4], novel=[0.3, 0.9])
    0.8333333333333334
    """
    return auroc_of(tally_ranking(known, novel))


def aupr(known: ArrayLike, novel: ArrayLike, positive: Positive = "novel") -> float:
    r"""Area under the precision-recall curve as average precision, with the known or the novel inputs as positive.

    :math:`\sum_j (R_j - R_{j-1}) P_j` over the distinct thresholds, from the most positive one on: steps, not straight
    lines, as in scikit-learn's ``average_precision_score``.

    >>> aupr(known=[0.1, 0.2, 0.4], novel=[0.3, 0.9])
    0.8333333333333333
    >>> aupr(known=[0.1, 0.2, 0.4], novel=[0.3, 0.9], positive="known")
    0.9166666666666666
    """
    return aupr_of(tally_ranking(known, novel), positive)


def fpr_at_tpr(known: ArrayLike, novel: ArrayLike, tpr: float = 0.95) -> float:
    """Share of novel inputs that are accepted when (at least) the share ``tpr`` of the known ones is: "FPR95".

    Known inputs are the positive side. The threshold is the smallest score that accepts enough of them; whatever
    scores the same is accepted too.

    >>> fpr_at_tpr(known=[0.1, 0.2, 0.3, 0.9], novel=[0.2, 0.4, 0.8], tpr=0.75)
    0.3333333333333333
    """
    return fpr_at_tpr_of(tally_ranking(known, novel), tpr)


def roc_curve(known: ArrayLike, novel: ArrayLike) -> RocCurve:
    """The ROC curve at every distinct score, from "nothing is accepted" (threshold -inf) to "all are".

    >>> curve = roc_curve(known=[0.1, 0.3], novel=[0.3, 0.9])
    >>> curve.thresholds.tolist(), curve.fpr.tolist(), curve.tpr.tolist()
    ([-inf, 0.1, 0.3, 0.9], [0.0, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 1.0])
    """
    tally = tally_ranking(known, novel)
    knowns, novels = tally.accepted
    return RocCurve(tally.curve_thresholds, novels / novels[-1], knowns / knowns[-1])


def tally_ranking(known: ArrayLike, novel: ArrayLike) -> Tally:
    """Known and novel scores, counted; two groups."""
    return Tally.of(as_scores("known", known), as_scores("novel", novel), groups=((KNOWN,), (NOVEL,)))


def auroc_of(tally: Tally) -> float:
    known, novel = tally.accepted
    return area(novel, known) / float(known[-1]) / float(novel[-1])


def aupr_of(tally: Tally, positive: Positive) -> float:
    check_choice("positive", positive, ("known", "novel"))
    counts = tally.accepted if positive == "known" else (tally.sizes[:, None] - tally.accepted)[:, ::-1]
    positives = counts[KNOWN if positive == "known" else NOVEL, 1:]
    precision = positives / np.maximum(counts[:, 1:].sum(0), 1)  # a resampled tally may begin with nothing
    return float(np.diff(positives, prepend=0) @ precision / positives[-1])


def fpr_at_tpr_of(tally: Tally, tpr: float) -> float:
    if not 0 < tpr <= 1:
        raise OptionError(f"tpr must be above 0 and at most 1, got {tpr!r}; the usual one is 0.95")
    known, novel = tally.accepted
    # Shares, not tpr * size: 55 / 100 is exactly the float 0.55, but 0.55 * 100 is more than 55.
    place = np.searchsorted(known / known[-1], tpr)
    return float(novel[place] / novel[-1])
