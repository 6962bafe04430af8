"""Leave known classes out in turn: choose weights of scores and a rate, and estimate how novel classes are detected.

In closed form that is cheap, because the sums of a class are subtracted. In each round some classes and one fold of the
other examples are left out. Head and scorers without both score both: classes as novel, the fold as known examples.
"""

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from openradial.classifier import OpenClassifier
from openradial.conformal import Rejector
from openradial.conformal.calibration import examples_needed
from openradial.errors import OptionError
from openradial.fitting.calibration import fit_combination
from openradial.fitting.cross import FOLDS, WIDE, FeatureSet, assign_folds, cross_fit
from openradial.fitting.report import LeftOutReport
from openradial.heads import ClosedFormRadialHead
from openradial.heads.radial import RadialScore
from openradial.metrics import auroc
from openradial.recipe import Recipe
from openradial.scorers import Combination

LEAST_CLASSES = 6
ROUNDS, FEW_ROUNDS = 5, 3  # few with wide features: a round takes as long as a fold
PER_ROUND = 0.2  # share of the classes
MOST_ROWS, SHARE = 2_500, 0.25  # rows that are left out as novel: this number or share, whichever is larger
WEIGHTS = (0.0, 1.0, 2.0)  # to choose from, for each score
# the head always counts, and one of the others: left-out classes do not show what is far from all data
CHOICES = tuple(each for each in product(WEIGHTS, WEIGHTS, WEIGHTS) if each[0] and any(each[1:]))
ScoreWeights = tuple[float, float, float]
MARGIN = 0.003  # of the AUROC, by which other weights must be better than those of the recipe
RATES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2)  # to choose a false-reject rate from


@dataclass(frozen=True)
class LeftOut:
    """Scores of known examples and of left-out classes under head and scorers that saw neither."""

    scores: Tensor  # (n, m) distances of the head, Mahalanobis, neighbour, and those of FAR_LAYERS if there are any
    labels: Tensor  # (n,)
    is_novel: Tensor  # (n,) whether the class was left out
    projections: Tensor  # (n,) the other score of the head, see openradial.heads.RadialHead
    nearest: Tensor  # (n,) the nearest class

    def choose(self, score: RadialScore, default: ScoreWeights) -> "Choice":
        """Return the score of the head and the weights with the highest AUROC.

        They differ from this score and the default weights only if they are clearly better.
        """
        if not (self.scores[~self.is_novel] > 0).any(0).all():  # such a score has no logarithm
            return Choice(score, default, math.nan)
        other: RadialScore = "distance" if score == "projection" else "projection"
        choices = []
        for each in (score, other):
            rows = self._standardised(each)
            for weights in (default, *CHOICES):
                merged = rows @ rows.new_tensor(weights)
                choices.append(Choice(each, weights, auroc(merged[~self.is_novel], merged[self.is_novel])))
        usual, best = choices[0], max(choices, key=lambda choice: choice.auroc)
        return best if best.auroc > usual.auroc + MARGIN else usual

    def select(self, choice: "Choice") -> "LeftOut":
        """Return the chosen scores: that of the head, and the others whose weight is above 0."""
        columns = self._with_score(choice.score)
        kept = [at for at in range(columns.shape[1]) if at >= 3 or choice.weights[at]]
        return replace(self, scores=columns[:, kept])

    def _with_score(self, score: str) -> Tensor:
        """Return the scores with this one of the head."""
        if score == "distance":
            return self.scores
        return torch.cat([self.projections.unsqueeze(1), self.scores[:, 1:]], 1)

    def _standardised(self, score: str) -> Tensor:
        """Return standardised logarithms of the scores with a weight, as :class:`Combination` adds them."""
        columns = self._with_score(score)[:, :3]
        known = columns[~self.is_novel]
        floor = known.where(known > 0, torch.inf).amin(0)
        logs = columns.clamp_min(floor).log()
        centre, spread = logs[~self.is_novel].mean(0), logs[~self.is_novel].std(0)
        return (logs - centre) / spread.where(spread > 0, torch.inf)


class Choice(NamedTuple):
    """The score of the head, the weights of all scores, and the AUROC on left-out classes."""

    score: RadialScore
    weights: ScoreWeights
    auroc: float


@torch.no_grad()
def leave_classes_out(head: ClosedFormRadialHead, recipe: Recipe, known: FeatureSet, seed: int = 0) -> LeftOut | None:
    """Score known classes by head and all scorers of the recipe without them; None with fewer than six classes.

    The head is fitted on ``known``.
    """
    if head.num_classes < LEAST_CLASSES:
        return None
    scorers = [pair for pair in recipe.make_scorers(head, (1.0, 1.0, 1.0)) if pair[1] is not head]
    is_slow = head.sums.statistics.num_features > WIDE or known.z.shape[1] > WIDE
    rounds = classes_by_round(known.y, head.num_classes, FEW_ROUNDS if is_slow else ROUNDS, seed)
    folds = assign_folds(known.y, FOLDS, known.groups, seed)
    novel = torch.stack([torch.isin(known.y, classes) for classes in rounds])  # (rounds, n)
    out = [each | (folds == fold) for fold, each in enumerate(novel)]  # an empty class is never the nearest one
    result = cross_fit(head, scorers, known, out, seed=seed)
    by_round = result.folds.argsort(stable=True)
    columns = (result.scores, result.labels, novel[result.folds, result.rows], result.projections, result.nearest)
    return LeftOut(*(column[by_round] for column in columns))


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


def choose_rate(model: OpenClassifier, left_out: LeftOut | None, calibrating: int) -> tuple[float, str]:
    """Return the rate whose macro-F1 over known classes and unknown is the highest on left-out classes, and a note.

    ``calibrating`` is the number of examples that set the threshold; a rate that needs more is not tried.
    """
    if left_out is None:
        raise OptionError(
            f"false_reject_rate='auto' is chosen on known classes that are left out: it needs {LEAST_CLASSES} known "
            "classes, and time for that; give a number, such as 0.05"
        )
    scores, usual = _combined(model, left_out), ~left_out.is_novel
    most = min(calibrating, int(usual.sum()))
    values = {}
    for rate in (rate for rate in RATES if examples_needed(rate) <= most):
        rejected = Rejector(rate).fit(scores[usual]).rejects(scores)
        values[rate] = macro_f1(left_out.labels, left_out.nearest, rejected, left_out.is_novel)
    if not values:
        raise OptionError(f"false_reject_rate='auto' has too few examples, {most}, to choose from; give a number")
    best = max(values, key=values.__getitem__)  # the smallest of equal ones
    each = ", ".join(f"{100 * rate:g} % {value:.3f}" for rate, value in values.items())
    reason = "by the macro-F1 of left-out known classes, with as many unknown inputs as known ones"
    return best, f"a false-reject rate of {100 * best:g} % is chosen {reason}: {each}"


def macro_f1(labels: Tensor, nearest: Tensor, rejected: Tensor, is_novel: Tensor) -> float:
    """Return the mean F1 of known classes and of unknown, where novel examples together count as much as known ones.

    >>> labels, nearest, rejected = torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1, 1, 1]), torch.tensor([0, 0, 1, 0])
    >>> round(macro_f1(labels, nearest, rejected.bool(), labels == 2), 3)  # F1 of 1, 2/3 and 2/3
    0.778
    """
    unknown, num_novel = int(max(labels.max(), nearest.max())) + 1, int(is_novel.sum())
    ratio = (len(is_novel) - num_novel) / max(1, num_novel)
    weight = torch.ones(len(is_novel), dtype=torch.float64).masked_fill(is_novel, ratio)
    truth, answer = labels.where(~is_novel, unknown), nearest.where(~rejected, unknown)
    right = weight * (truth == answer)
    pairs = ((truth, right), (truth, weight), (answer, weight))
    hits, actual, predicted = (torch.bincount(*pair, minlength=unknown + 1) for pair in pairs)
    return float((2 * hits / (actual + predicted))[actual > 0].mean())


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


def _combined(model: OpenClassifier, left_out: LeftOut) -> Tensor:
    """Return one score per row, combined as in the model, on the scale of known examples; ``(n,)``."""
    if model.combination is not None:
        model = model.replace(combination=Combination(**model.combination.settings()))
        if fit_combination(model, left_out.scores[~left_out.is_novel]):
            return model.combination.unknown_score(left_out.scores)  # type: ignore[union-attr]
    return left_out.scores[:, 0]
