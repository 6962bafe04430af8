"""Estimate how well novel classes are detected, without any: leave known classes out in turn.

In closed form that is cheap, because the sums of a class are subtracted. In each round some classes and one fold of the
other examples are left out. Head and scorers without both of them score both: the classes as novel ones, the fold as
known examples. So the classifier of a round has seen neither, as if it had been fitted without these classes.
"""

import torch
from torch import Tensor

from openradial.classifier import OpenClassifier
from openradial.conformal import Rejector
from openradial.conformal.calibration import examples_needed
from openradial.fitting.calibration import fit_combination
from openradial.fitting.closed_form import WIDE, FeatureSet
from openradial.fitting.cross import FOLDS, OUTSIDE, assign_folds, cross_fit
from openradial.fitting.report import LeftOutReport
from openradial.heads import ClosedFormRadialHead
from openradial.metrics import auroc
from openradial.recipe import Recipe

LEAST_CLASSES = 6
ROUNDS, FEW_ROUNDS = 5, 3  # few with wide features or Mahalanobis distances: a round takes as long as a fold
PER_ROUND = 0.2  # share of the classes
MOST_ROWS, SHARE = 2_500, 0.25  # rows that are left out as novel: this number or share, whichever is larger


@torch.no_grad()
def expected_detection(
    model: OpenClassifier, recipe: Recipe, rate: float, known: FeatureSet, seed: int = 0
) -> LeftOutReport | None:
    """Return the detection of known classes by classifiers without them, at this false-reject rate.

    The head and the scorers of ``model`` are fitted on ``known``. None with fewer than six classes, or with too few
    examples for the rate.
    """
    head = model.head
    assert isinstance(head, ClosedFormRadialHead)
    if head.num_classes < LEAST_CLASSES:
        return None
    scorers = [scorer for _, scorer in model.layer_scorers() if scorer is not head]
    is_slow = head.sums.statistics.num_features > WIDE or recipe.mahalanobis
    rounds = classes_by_round(known.y, head.num_classes, FEW_ROUNDS if is_slow else ROUNDS, seed)
    folds, parts = assign_folds(known.y, FOLDS, known.groups, seed), []
    for fold, classes in enumerate(rounds):
        is_novel = torch.isin(known.y, classes)
        out = torch.where(is_novel | (folds == fold), 0, OUTSIDE)  # an empty class is never the nearest one
        result = cross_fit(head, scorers, known.z, known.y, out, seed=seed)
        parts.append((result.scores, result.labels, is_novel[result.rows]))
    columns, labels, is_novel = (torch.cat(column) for column in zip(*parts, strict=True))
    if int((~is_novel).sum()) < examples_needed(rate):
        return None
    scores = columns[:, 0]
    if model.combination is not None:
        model = model.replace(combination=recipe.make_combination())
        if fit_combination(model, columns[~is_novel]):
            scores = model.combination.unknown_score(columns)  # type: ignore[union-attr]
    usual, novel = scores[~is_novel], scores[is_novel]
    rejected = Rejector(rate).fit(usual).rejects(novel).double()
    left_out, labels = torch.cat(rounds).sort().values.tolist(), labels[is_novel]
    by_class = {head.classes[k]: float(rejected[labels == k].mean()) for k in left_out}
    return LeftOutReport(tuple(by_class), len(novel), auroc(usual, novel), float(rejected.mean()), by_class)


def classes_by_round(y: Tensor, num_classes: int, rounds: int = ROUNDS, seed: int = 0) -> list[Tensor]:
    """Return the classes to leave out in each round, in random order: a fifth of them, fewer of many rows.

    >>> [len(classes) for classes in classes_by_round(torch.arange(9), 9)]
    [2, 2, 2, 2, 1]
    """
    order, counts = torch.randperm(num_classes, generator=torch.Generator().manual_seed(seed)), torch.bincount(y)
    order = order[counts[order] <= len(y) / 2]  # without the majority, little is left to learn from
    rows = counts[order].cumsum(0)
    few = int((rows <= max(MOST_ROWS, SHARE * len(y))).sum())
    kept = order[: max(rounds, min(few, rounds * round(PER_ROUND * num_classes)))]
    return [part.sort().values for part in kept.tensor_split(rounds)]
