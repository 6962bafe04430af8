"""Turn a trained network into an open-world classifier: fit scorers, combination and beta, calibrate the decision."""

from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor, nn

from openradial.classifier import OpenClassifier
from openradial.conformal import Rejector, fit_beta
from openradial.data.progress import current
from openradial.errors import HeadError, OptionError, ShapeError
from openradial.functional import safe_beta
from openradial.heads import Head, RadialHead, SoftmaxHead
from openradial.recipe import MIN_COMBINATION, Recipe
from openradial.scorers import Combination, NeighbourScorer, NormScorer
from openradial.training import make_outliers

EQUAL = 1e-9  # of the largest feature: examples that are not farther apart differ by rounding alone


class LabelledBatches(Iterable[tuple[Tensor, Tensor]], Protocol):
    """Batches of inputs ready for the network with their labels; the same at every iteration."""


def calibrate(
    net: nn.Module,
    head: Head,
    recipe: Recipe,
    false_reject_rate: float,
    *,
    train: LabelledBatches,
    combination: LabelledBatches | None,
    calibration: LabelledBatches,
) -> OpenClassifier:
    """Return a classifier whose parts are fitted on different known data.

    Without examples for a combination, or without hidden layers in the recipe, the score of the head alone decides. A
    head that is fitted already stays as it is.
    """
    net.eval()
    model = OpenClassifier(net, head)
    if combination is not None and recipe.layers:
        model = model.replace(scorers=recipe.make_scorers(head), combination=recipe.make_combination())
    if model.layers or not head.is_fitted:
        model.fit_scorers(inputs_of(train), labels_of(train), fits_head=not head.is_fitted)
    if recipe.far_axis and isinstance(head, RadialHead):
        first = next((x for x, _ in train), torch.empty(0))
        if len(first) and first.is_floating_point() and first.ndim != 3:  # neither texts nor sequences have rays
            model = model.replace(far_axis=NormScorer().fit_batches(lambda: (x.flatten(1) for x, _ in train)))
    return calibrate_fitted(model, recipe, false_reject_rate, combination, calibration)


def calibrate_fitted(
    model: OpenClassifier,
    recipe: Recipe,
    false_reject_rate: float,
    combination: LabelledBatches | None,
    calibration: LabelledBatches,
) -> OpenClassifier:
    """Return a classifier with fitted head and scorers, calibrated on held-out data.

    Without examples for a combination the score of the head alone decides.
    """
    if model.layers and (combination is None or not fit_combination(model, model.layer_scores(inputs_of(combination)))):
        model = model.replace(scorers=None, combination=None)
    head = model.head
    if isinstance(head, RadialHead) and recipe.beta == "fit":
        # beta changes no order of distances, so the calibration is unaffected by what beta is fitted on
        held_out = calibration if combination is None else combination
        head.layer.beta = calibrated_beta(model.net, head, recipe, held_out)
    return model.replace(rejector=Rejector(false_reject_rate)).calibrate(inputs_of(calibration))


@torch.no_grad()
def calibrated_beta(net: nn.Module, head: RadialHead, recipe: Recipe, held_out: LabelledBatches) -> float:
    """Return the beta that calibrates probabilities where every second input is an outlier made from held-out ones.

    Known inputs alone would make it so small that far-away inputs get high probabilities too.
    """
    distances, labels = [], []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for x, y in held_out:
            distances.append(head.distances(net(x)).cpu())
            labels.append(y.cpu())
            outliers = make_outliers(x, y, recipe.outliers) if recipe.outliers else x[:0]
            if len(outliers):
                distances.append(head.distances(net(outliers)).cpu())
                labels.append(distances[-1].argmax(1))  # never the nearest: always wrong
    return beta_of(torch.cat(distances), torch.cat(labels), recipe.scale)


def beta_of(distances: Tensor, labels: Tensor, scale: float) -> float:
    """Return the beta that calibrates the probabilities of these distances, or a safe one if there is no best."""
    try:
        return fit_beta(distances, labels).beta
    except ShapeError:  # nothing is classified wrongly, not even an outlier
        return safe_beta(distances.shape[1], scale)


@torch.no_grad()
def closed_world_beta(net: nn.Module, head: RadialHead, held_out: LabelledBatches) -> float:
    """Return the beta of a softmax over ``-beta * d`` under which held-out examples are most likely."""
    distances = torch.cat([head.distances(net(x)).cpu() for x, _ in held_out])
    return closed_world_beta_of(distances, labels_of(held_out).cpu())


def closed_world_beta_of(distances: Tensor, labels: Tensor) -> float:
    """Return the beta of :func:`closed_world_beta` from the distances to the prototypes, ``(n, k), (n,)``."""
    try:
        softmax = SoftmaxHead(distances.shape[1], temperature="fit").fit(-distances, labels)
    except (HeadError, ShapeError) as error:
        raise OptionError(
            f"beta='fit' needs held-out rows of which some are predicted wrongly, and found no best beta in "
            f"{len(labels)} rows; add rows, hold out more of them (calibration_fraction), or use beta='safe'"
        ) from error
    return 1 / float(softmax.fitted_temperature)  # type: ignore[arg-type]


def inputs_of(batches: LabelledBatches) -> Iterable[Tensor]:
    """Return the inputs alone."""
    for x, _ in batches:
        yield x
        current().advance(len(x))  # about as long as training on them: scores search neighbours


def labels_of(batches: LabelledBatches) -> Tensor:
    """Return all labels, ``(n,)``."""
    return torch.cat([y for _, y in batches])


def fit_combination(model: OpenClassifier, scores: Tensor) -> bool:
    """Fit the combination to scores of held-out examples, ``(n, m)``, or one of p-values where it cannot be fitted.

    Return whether that was possible.
    """
    apart = torch.ones(len(scores), dtype=torch.bool, device=scores.device)
    for column, scorer in zip(scores.T, model.scorers, strict=True):
        if isinstance(scorer, NeighbourScorer):
            # an example that equals a training example has distance 0, which has no logarithm
            apart &= column > EQUAL * scorer.references.abs().max()
    for merge, rows in ((model.combination, scores[apart]), (Combination("fisher"), scores)):
        if len(rows) < MIN_COMBINATION or merge is None:
            continue
        try:
            model.combination = merge.fit(rows)
        except OptionError:  # a network that does not tell examples apart gives all of them the same score
            continue
        return True
    return False
