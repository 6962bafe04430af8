"""Leave known classes out in turn: choose the weights of the scores, and estimate how well novel classes are detected.

In closed form that is cheap, because the sums of a class are subtracted. In each round some classes and one fold of the
other examples are left out. Head and scorers without both of them score both: the classes as novel ones, the fold as
known examples. So the classifier of a round has seen neither, as if it had been fitted without these classes.
"""

from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from openradial.classifier import OpenClassifier
from openradial.conformal import Rejector
from openradial.conformal.calibration import examples_needed
from openradial.fitting.calibration import fit_combination
from openradial.fitting.cross import FOLDS, OUTSIDE, WIDE, FeatureSet, assign_folds, cross_fit
from openradial.fitting.report import LeftOutReport
from openradial.heads import ClosedFormRadialHead
from openradial.metrics import auroc
from openradial.recipe import Recipe
from openradial.scorers import Combination

LEAST_CLASSES = 6
ROUNDS, FEW_ROUNDS = 5, 3  # few with wide features: a round takes as long as a fold
PER_ROUND = 0.2  # share of the classes
MOST_ROWS, SHARE = 2_500, 0.25  # rows that are left out as novel: this number or share, whichever is larger
WEIGHTS = (0.0, 1.0, 2.0)  # to choose from, for each score; the radial distance always counts
Weights = tuple[float, float, float]
MARGIN = 0.003  # of the AUROC, by which other weights must be better than those of the recipe


@dataclass(frozen=True)
class LeftOut:
    """Scores of known examples and of left-out classes under head and scorers that saw neither."""

    scores: Tensor  # (n, m)
    labels: Tensor  # (n,)
    is_novel: Tensor  # (n,) whether the class was left out

    def best_weights(self, default: Weights) -> Weights:
        """Return the weights of the scores with the highest AUROC; others than the default only if clearly better."""
        known = self.scores[~self.is_novel]
        floor = known.where(known > 0, torch.inf).amin(0)
        if not floor.isfinite().all():
            return default
        logs = self.scores.clamp_min(floor).log()
        centre, spread = logs[~self.is_novel].mean(0), logs[~self.is_novel].std(0)
        rows = (logs - centre) / spread.where(spread > 0, torch.inf)

        def separation(weights: Weights) -> float:
            score = rows @ rows.new_tensor(weights)
            return auroc(score[~self.is_novel], score[self.is_novel])

        choices = [weights for weights in product(WEIGHTS, WEIGHTS, WEIGHTS) if weights[0]]
        best = max(choices, key=separation)
        return best if separation(best) > separation(default) + MARGIN else default

    def select(self, weights: Weights) -> "LeftOut":
        """Return the scores whose weight is above 0."""
        return replace(self, scores=self.scores[:, [at for at, weight in enumerate(weights) if weight]])


@torch.no_grad()
def leave_classes_out(head: ClosedFormRadialHead, recipe: Recipe, known: FeatureSet, seed: int = 0) -> LeftOut | None:
    """Score known classes by head and all scorers of the recipe without them; None with fewer than six classes.

    The head is fitted on ``known``.
    """
    if head.num_classes < LEAST_CLASSES:
        return None
    scorers = [scorer for _, scorer in recipe.make_scorers(head, (1.0, 1.0, 1.0)) if scorer is not head]
    is_slow = head.sums.statistics.num_features > WIDE or known.z.shape[1] > WIDE
    rounds = classes_by_round(known.y, head.num_classes, FEW_ROUNDS if is_slow else ROUNDS, seed)
    folds, parts = assign_folds(known.y, FOLDS, known.groups, seed), []
    for fold, classes in enumerate(rounds):
        is_novel = torch.isin(known.y, classes)
        out = torch.where(is_novel | (folds == fold), 0, OUTSIDE)  # an empty class is never the nearest one
        result = cross_fit(head, scorers, known.z, known.y, out, seed=seed)
        parts.append((result.scores, result.labels, is_novel[result.rows]))
    return LeftOut(*(torch.cat(column) for column in zip(*parts, strict=True)))


def expected_detection(model: OpenClassifier, rate: float, left_out: LeftOut | None) -> LeftOutReport | None:
    """Return the detection of known classes by classifiers without them, at this false-reject rate.

    None with too few classes, or with too few examples for the rate.
    """
    if left_out is None or int((~left_out.is_novel).sum()) < examples_needed(rate):
        return None
    scores, is_novel = _combined(model, left_out), left_out.is_novel
    usual, novel, labels = scores[~is_novel], scores[is_novel], left_out.labels[is_novel]
    rejected = Rejector(rate).fit(usual).rejects(novel)
    by_class = {model.classes[k]: float(rejected[labels == k].double().mean()) for k in torch.unique(labels).tolist()}
    return LeftOutReport(tuple(by_class), len(novel), auroc(usual, novel), float(rejected.double().mean()), by_class)


def classes_by_round(y: Tensor, num_classes: int, rounds: int = ROUNDS, seed: int = 0) -> list[Tensor]:
    """Return the classes to leave out in each round, in random order: a fifth of them, fewer with many rows.

    >>> [len(classes) for classes in classes_by_round(torch.arange(9), 9)]
    [2, 2, 2, 2, 1]
    """
    order = torch.randperm(num_classes, generator=torch.Generator().manual_seed(seed))
    rows = torch.bincount(y, minlength=num_classes)[order].cumsum(0)
    few = int((rows <= max(MOST_ROWS, SHARE * len(y))).sum())
    kept = order[: max(rounds, min(few, rounds * round(PER_ROUND * num_classes)))]
    return [part.sort().values for part in kept.tensor_split(rounds)]


def _combined(model: OpenClassifier, left_out: LeftOut) -> Tensor:
    """Return one score per row, combined as in the model, on the scale of known examples; ``(n,)``."""
    if model.combination is not None:
        model = model.replace(combination=Combination(**model.combination.settings()))
        if fit_combination(model, left_out.scores[~left_out.is_novel]):
            return model.combination.unknown_score(left_out.scores)  # type: ignore[union-attr]
    return left_out.scores[:, 0]
