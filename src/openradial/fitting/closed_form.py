"""Fit a classifier in closed form: the features are not trained, the head is solved, all examples calibrate it."""

import timeit
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from openradial.classifier import OpenClassifier
from openradial.conformal import Rejector
from openradial.conformal.calibration import examples_needed
from openradial.data.progress import current
from openradial.fitting import baseline, cross, novelty
from openradial.fitting.calibration import beta_of, fit_combination
from openradial.fitting.cross import FOLDS, MOST, WIDE, FeatureSet, assign_folds, cross_fit, reference_rows
from openradial.fitting.held_out import too_few
from openradial.fitting.novelty import LeftOut, leave_classes_out
from openradial.fitting.report import Decided
from openradial.heads import ClosedFormRadialHead, Head
from openradial.recipe import OUTPUTS, REFERENCES, Recipe
from openradial.scorers import MahalanobisScorer, NeighbourScorer, NormScorer

SEARCH = 10  # solutions of the head that take as long as the choice of its penalty
FEW_FOLDS = 5  # with wide features, where solving again takes long


def fit_closed_form(
    net: nn.Module,
    recipe: Recipe,
    classes: tuple[str, ...],
    known: FeatureSet,
    seed: int = 0,
    has_time: Callable[[], bool] = lambda: True,
) -> tuple[OpenClassifier, LeftOut | None]:
    """Fit head and scorers on the features of all these examples; the classifier is not calibrated yet.

    Return it with the scores of known classes that were left out: they choose the score of the head and the weights.
    Without time for that, the defaults are used.
    """
    head = recipe.make_closed_form_head(classes, known.z.shape[1], seed).fit(known.z, known.y, known.weights)
    current().advance(cross.work_of(len(known.z), 0, head.sums.statistics.num_features, solutions=SEARCH))
    left_out, weights = leave_classes_out(head, recipe, known, seed) if has_time() else None, recipe.weights
    head.score = recipe.score
    if left_out is not None and recipe.layers:
        choice = left_out.choose(recipe.score, weights)
        head.score, weights, left_out = choice.score, choice.weights, left_out.select(choice)
    return with_scorers(net, head, recipe, known, seed, weights), left_out


def expect(recipe: Recipe, shape: Sequence[int], k: int, *, is_cross: bool = True) -> tuple[float, float]:
    """Return about how many multiplications a fit and its baseline take, and how many seconds each takes here."""
    (n, d), x = shape, torch.ones(512, 512, dtype=torch.float64)
    width, used, references = recipe.random_features or d, min(n, MOST), min(n, REFERENCES)
    rounds, folds = (novelty.FEW_ROUNDS, FEW_FOLDS) if max(width, d) > WIDE else (novelty.ROUNDS, FOLDS)
    left_out = min(novelty.PER_ROUND * n, max(novelty.MOST_ROWS, novelty.SHARE * n) / rounds) + used / FOLDS
    work = cross.work_of(n, 0, width, solutions=SEARCH) + baseline.work_of(n * d * k, is_cross)
    work += (k >= novelty.LEAST_CLASSES) * rounds * cross.work_of(left_out, d, width, references=references)
    references *= recipe.weights[2] > 0
    work += is_cross * folds * cross.work_of(used / folds, d, width, references=references)
    return work, timeit.timeit(lambda: x @ x, number=8) / 8 / len(x) ** 3


def with_scorers(
    net: nn.Module,
    head: ClosedFormRadialHead,
    recipe: Recipe,
    known: FeatureSet,
    seed: int = 0,
    weights: Sequence[float] | None = None,
) -> OpenClassifier:
    """Return a classifier with this fitted head, and with scorers fitted on features of known examples."""
    pairs, kept = recipe.make_scorers(head, weights), reference_rows(len(known.z), seed)
    for layer, scorer in pairs:
        if isinstance(scorer, MahalanobisScorer):
            scorer.fit_statistics(known.statistics_beside(head, layer, scorer.normalise))
        elif isinstance(scorer, NeighbourScorer):
            scorer.fit(known.z[kept], known.y[kept])
    merge = recipe.make_combination(weights) if pairs else None
    far = NormScorer().fit(known.z) if recipe.far_axis else None
    parts: dict[str, Any] = {"scorers": pairs, "combination": merge, "far_axis": far, "far_layer": OUTPUTS}
    return OpenClassifier(net, head, classes=head.classes, **parts)


def calibrate_cross(
    model: OpenClassifier, recipe: Recipe, rate: float, known: FeatureSet, seed: int = 0
) -> tuple[OpenClassifier, Decided]:
    """Calibrate with training examples, up to 5,000 of them, each scored by a classifier without its fold.

    Return the classifier, and decisions on these examples with thresholds from the other folds alone.
    """
    head = model.head
    assert isinstance(head, ClosedFormRadialHead)
    count = FEW_FOLDS if head.sums.statistics.num_features > WIDE else FOLDS
    n = len(known.y) if known.groups is None else len(torch.unique(known.groups))
    left = min(n, MOST) - -(-min(n, MOST) // count)
    if left < examples_needed(rate):
        raise too_few(rate, left, f"of {n} different known examples {left} are outside each of {count} folds")
    folds = assign_folds(known.y, count, known.groups, seed)
    scorers = [pair for pair in model.layer_scorers() if pair[1] is not head]
    result = cross_fit(head, scorers, known, folds, recipe.outliers, seed)
    model = model.replace(rejector=Rejector(rate))
    if not (model.layers and fit_combination(model, result.scores)):
        model = model.replace(scorers=None, combination=None)
    scores = result.scores[:, 0]
    if model.combination is not None:
        scores = model.combination.unknown_score(result.scores)
    if recipe.beta == "fit":
        outliers = result.outlier_distances
        labels = torch.cat([result.labels, outliers.argmax(1)])  # never the nearest: an outlier is always wrong
        head.layer.beta = beta_of(torch.cat([result.distances, outliers]), labels, recipe.scale)
    assert model.rejector is not None
    model.rejector.fit(scores)
    predicted = torch.empty_like(result.labels)
    for here in (result.folds == fold for fold in range(int(result.folds.max()) + 1)):
        predicted[here] = Rejector(rate).fit(scores[~here]).decide(scores[here], result.nearest[here])
    return model, Decided(result.labels, predicted, result.nearest, scores)


def selected_values(head: Head) -> dict[str, Any] | None:
    """Return what was chosen from the data for a head in closed form, as JSON values; None for other heads."""
    if not isinstance(head, ClosedFormRadialHead):
        return None
    width = None if head.features is None else float(head.features.width)
    values = {"alpha": head.fitted_alpha, "random_features": head.random_features, "width": width}
    weight = "sqrt" if head.class_weight == "sqrt" else "balanced"
    return values | {"class_weight": None if head.sums.class_weight is None else weight}
