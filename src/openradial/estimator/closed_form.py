"""An estimator in closed form: its head is solved on the standardised columns, and rows are added by arithmetic."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sklearn.utils.class_weight import compute_class_weight  # type: ignore[import-untyped]
from torch import Tensor, nn

from openradial import models
from openradial.classifier import OpenClassifier
from openradial.conformal.inputs import check_rate
from openradial.data.examples import Examples
from openradial.errors import OptionError
from openradial.estimator.gradient import private_random_numbers
from openradial.estimator.labels import class_names
from openradial.estimator.rows import GroupedExamples, as_batches, fit_scaler, scaled
from openradial.fitting.calibration import closed_world_beta_of
from openradial.fitting.closed_form import calibrate_cross, fit_closed_form
from openradial.fitting.cross import FeatureSet, assign_folds, cross_fit
from openradial.heads import ClosedFormRadialHead
from openradial.heads.random_features import median_distance
from openradial.recipe import OUTPUTS, Recipe, closed_form_recipe
from openradial.training import limited_threads

if TYPE_CHECKING:
    from openradial.estimator.classifier import RadialClassifier


def make_recipe(estimator: "RadialClassifier", rows: int, has_neighbours: bool) -> Recipe:
    """Return what the parameters ask for, for a number of training rows."""
    options: dict[str, Any] = {name: getattr(estimator, name) for name in ("scale", "beta")}
    if not (isinstance(estimator.random_features, str) and estimator.random_features == "auto"):
        options["random_features"] = estimator.random_features
    weight: Any = estimator.class_weight
    if isinstance(weight, dict):  # of labels; the recipe has one per class
        classes = estimator.classes_
        weight = tuple(map(float, compute_class_weight(weight, classes=classes, y=classes)))
    layers = (OUTPUTS,) if has_neighbours else ()
    return closed_form_recipe("table", rows, layers=layers, class_weight=weight, **options)


def solve_rows(estimator: "RadialClassifier", rows: GroupedExamples, *, is_cross: bool) -> None:
    """Fit an estimator to all rows; calibrate it on each without its fold if that is wanted."""
    rate, seed = estimator.false_reject_rate, estimator._seed
    net, recipe = _begin(estimator, rows.examples)
    known = replace(_features(net, estimator, rows.examples), groups=rows.groups, weights=rows.weights)
    with private_random_numbers("cpu"), limited_threads(known.threads(recipe)):
        model, _ = fit_closed_form(net, recipe, class_names(estimator.classes_), known, seed)
        head = model.head
        assert isinstance(head, ClosedFormRadialHead)
        if is_cross and rate is not None:
            model, _ = calibrate_cross(model, recipe, check_rate("false_reject_rate", rate), known, seed)
        else:  # neighbours do not count without a calibration
            model = model.replace(scorers=None, combination=None)
        if is_cross and rate is None and recipe.beta == "fit":  # as in closed_world_beta, each row without its fold
            folds = assign_folds(known.y, groups=known.groups, seed=seed)
            if not folds.any():
                raise OptionError("beta='fit' needs at least 2 different rows, got 1; add rows, or use beta='safe'")
            head.layer.beta = closed_world_beta_of(cross_fit(head, [], known, folds).distances, known.y)
    _finish(estimator, model, recipe, known)


def add_rows(estimator: "RadialClassifier", rows: Examples, weights: Tensor | None) -> None:
    """Add rows to the head of an estimator, or to a new one; the first rows choose the width of random features."""
    begins = not hasattr(estimator, "network_")
    net, recipe = _begin(estimator, rows) if begins else (estimator.network_, estimator._recipe(estimator.network_))
    known = replace(_features(net, estimator, rows), weights=weights)
    with private_random_numbers("cpu"), limited_threads(known.threads(recipe)):
        head = _first_head(estimator, recipe, known) if begins else estimator.head_
        assert isinstance(head, ClosedFormRadialHead)
        head.partial_fit(known.z, known.y, known.weights)
    _finish(estimator, OpenClassifier(net, head, classes=head.classes), recipe, known)


def _begin(estimator: "RadialClassifier", rows: Examples) -> tuple[nn.Module, Recipe]:
    """Set the scaler; return the network, which is float64 so that a prediction does not depend on other rows."""
    estimator.scaler_ = fit_scaler(rows.inputs.numpy()) if estimator.standardise else None
    net = models.build("features", rows.inputs.shape[1], float64=True)
    return net, estimator._recipe(net, len(rows))


def _features(net: nn.Module, estimator: "RadialClassifier", rows: Examples) -> FeatureSet:
    return FeatureSet.of(net, as_batches(scaled(rows, estimator.scaler_).inputs, rows.labels, net))


def _first_head(estimator: "RadialClassifier", recipe: Recipe, known: FeatureSet) -> ClosedFormRadialHead:
    """Return a head without examples; these choose the width of its random features."""
    head = recipe.make_closed_form_head(class_names(estimator.classes_), known.z.shape[1], estimator._seed)
    if head.random_features:
        # rows of one class are predicted well with any width
        selected = head.fit(known.z, known.y, known.weights).features if known.y.min() < known.y.max() else None
        head.width = median_distance(known.z, head.seed) if selected is None else float(selected.width)
        head.reset()  # alpha follows from the rows of all calls
    return head


def _finish(estimator: "RadialClassifier", model: OpenClassifier, recipe: Recipe, known: FeatureSet) -> None:
    assert isinstance(model.head, ClosedFormRadialHead)
    estimator.classifier_, estimator.head_, estimator.network_ = model, model.head, model.net
    estimator._remember(recipe, known.z.float())
