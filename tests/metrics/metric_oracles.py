"""The metrics as plain loops over all pairs, thresholds or orders, and scores with many ties to try them on."""

from itertools import pairwise, permutations

import numpy as np
from hypothesis import strategies as st

SCORES = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=12)


@st.composite
def outcomes(draw, max_size=12):
    """Scores with ties, and whether each prediction is right."""
    scores = draw(st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=max_size))
    return scores, draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))


@st.composite
def open_world(draw):
    """Probabilities whose sum may be below or above one, labels and predictions with -1 among them."""
    num_classes, rows = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    p = st.lists(st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 1.0]), min_size=num_classes, max_size=num_classes)
    label = st.lists(st.integers(-1, num_classes - 1), min_size=rows, max_size=rows)
    return draw(st.lists(p, min_size=rows, max_size=rows)), draw(label), draw(label)


def share(flags):
    flags = list(flags)
    return sum(flags) / len(flags)


def auroc_by_pairs(known, novel):
    return np.mean([(n > k) + (n == k) / 2 for n in novel for k in known])


def average_precision(positives, negatives):
    """Scores are larger for the positive side."""
    area, recall = 0.0, 0.0
    for threshold in sorted({*positives, *negatives}, reverse=True):
        true = sum(score >= threshold for score in positives)
        false = sum(score >= threshold for score in negatives)
        area += (true / len(positives) - recall) * true / (true + false)
        recall = true / len(positives)
    return area


def fpr_by_thresholds(known, novel, tpr):
    """The best that any threshold can do."""
    return min(
        share(n <= threshold for n in novel)
        for threshold in {*known, *novel}
        if share(k <= threshold for k in known) >= tpr
    )


def curve_by_thresholds(known, novel, correct):
    """(threshold, false positive rate, correct classification rate) at each distinct score."""
    yield -np.inf, 0.0, 0.0
    for threshold in sorted({*known, *novel}):
        hits = [right and score <= threshold for score, right in zip(known, correct, strict=True)]
        yield threshold, share(n <= threshold for n in novel), share(hits)


def oscr_by_pairs(known, novel, correct):
    pairs = [right * ((n > k) + (n == k) / 2) for k, right in zip(known, correct, strict=True) for n in novel]
    return np.mean(pairs)


def aurc_over_all_orders(scores, correct):
    """Mean over every order that sorts the scores, of the mean risk of the first 1, 2, ..., n."""
    areas = []
    for order in permutations(range(len(scores))):
        if all(scores[a] <= scores[b] for a, b in pairwise(order)):
            wrong = np.cumsum([not correct[i] for i in order])
            areas.append(np.mean([wrong[i] / (i + 1) for i in range(len(order))]))
    return np.mean(areas)


def extended(row):
    """The probabilities and, last, so that -1 finds it, that of "unknown"."""
    return [*row, max(0.0, 1.0 - sum(row))]


def ece_by_bins(probs, labels, predictions, edges):
    """Bins are (lower, upper], the first with its lower end."""
    error = 0.0
    for place, (lower, upper) in enumerate(pairwise(edges)):
        inside = []
        for row, y, chosen in zip(probs, labels, predictions, strict=True):
            confidence = extended(row)[chosen]
            if lower < confidence <= upper or (place == 0 and confidence == lower):
                inside.append((confidence, y == chosen))
        if inside:
            error += len(inside) / len(probs) * abs(share(c for c, _ in inside) - share(right for _, right in inside))
    return error


def brier_by_categories(probs, labels):
    scores = []
    for row, y in zip(probs, labels, strict=True):
        q = extended(row)
        target = y if y >= 0 else len(row)
        scores.append(sum((q[j] - (j == target)) ** 2 for j in range(len(q))))
    return np.mean(scores)


def f1_by_classes(labels, predictions, num_classes):
    found = []
    for k in range(-1, num_classes):
        both = sum(y == k == chosen for y, chosen in zip(labels, predictions, strict=True))
        either = sum(y == k for y in labels) + sum(chosen == k for chosen in predictions)
        if either:
            found.append(2 * both / either)
    return np.mean(found)
