"""An estimator in closed form: its head is solved on the standardised columns, and rows are added by arithmetic."""

from typing import TYPE_CHECKING, Any

from sklearn.utils.class_weight import compute_class_weight  # type: ignore[import-untyped]
from torch import nn

from openradial import models
from openradial.classifier import OpenClassifier
from openradial.conformal.inputs import check_rate
from openradial.data.examples import Examples
from openradial.errors import OptionError
from openradial.estimator.labels import Classes, class_names
from openradial.estimator.rows import GroupedExamples, as_batches, scaled
from openradial.fitting.calibration import LabelledBatches, calibrate_fitted
from openradial.fitting.closed_form import FeatureSet, calibrate_cross, cross_beta, fit_closed_form, with_scorers
from openradial.heads import ClosedFormRadialHead
from openradial.recipe import OUTPUTS, Recipe, closed_form_recipe
from openradial.training import limited_threads

if TYPE_CHECKING:
    from openradial.estimator.classifier import RadialClassifier


def make_network(num_features: int) -> nn.Module:
    """Return the network of an estimator in closed form: the standardised columns in float64."""
    return models.build("features", num_features, float64=True)


def make_recipe(estimator: "RadialClassifier", rows: int, has_neighbours: bool) -> Recipe:
    """Return what the parameters ask for, for a number of training rows."""
    options: dict[str, Any] = {name: getattr(estimator, name) for name in ("scale", "beta")}
    if not (isinstance(estimator.random_features, str) and estimator.random_features == "auto"):
        options["random_features"] = estimator.random_features
    weight = _as_weights(estimator.class_weight, estimator.classes_)
    layers = (OUTPUTS,) if has_neighbours else ()
    return closed_form_recipe("table", rows, layers=layers, class_weight=weight, **options)


def fit_rows(estimator: "RadialClassifier", rows: GroupedExamples, recipe: Recipe, is_cross: bool) -> OpenClassifier:
    """Return a classifier that is fitted to all rows, and calibrated on each without its fold if that is wanted."""
    rate, net, seed = estimator.false_reject_rate, estimator.network_, estimator._seed
    known = _features(estimator, rows.examples, rows)
    with limited_threads(known.threads(recipe)):
        model = fit_closed_form(net, recipe, class_names(estimator.classes_), known, seed)
        head = model.head
        assert isinstance(head, ClosedFormRadialHead)
        if is_cross and rate is not None:
            return calibrate_cross(model, recipe, check_rate("false_reject_rate", rate), known, seed)[0]
        if is_cross and recipe.beta == "fit":
            head.layer.beta = cross_beta(head, known, seed)
    return model.replace(scorers=None, combination=None)


def add_rows(
    estimator: "RadialClassifier", head: ClosedFormRadialHead | None, rows: Examples, recipe: Recipe
) -> OpenClassifier:
    """Return a classifier with these rows added to the head, or to a new one, whose random features they choose."""
    known = _features(estimator, rows)
    with limited_threads(known.threads(recipe)):
        if head is None:
            head = recipe.make_closed_form_head(class_names(estimator.classes_), known.z.shape[1], estimator._seed)
            if head.random_features:
                chosen = head.fit(known.z, known.y).features
                assert chosen is not None
                head.width = float(chosen.width)
                head.reset()  # alpha is chosen from all rows, of this call and later ones
        return OpenClassifier(estimator.network_, head.partial_fit(known.z, known.y))


def calibrate_head(
    net: nn.Module,
    head: ClosedFormRadialHead,
    recipe: Recipe,
    false_reject_rate: float,
    *,
    train: LabelledBatches,
    combination: LabelledBatches | None,
    calibration: LabelledBatches,
) -> OpenClassifier:
    """Calibrate as :func:`openradial.fitting.calibrate` does; the head stays, ``train`` are rows for the neighbours."""
    model = OpenClassifier(net, head)
    if combination is not None and recipe.layers:
        model = with_scorers(net, head, recipe, FeatureSet.of(net, train))
    return calibrate_fitted(model, recipe, false_reject_rate, combination, calibration)


def _features(estimator: "RadialClassifier", rows: Examples, grouped: GroupedExamples | None = None) -> FeatureSet:
    net, inputs = estimator.network_, scaled(rows, estimator.scaler_).inputs
    return FeatureSet.of(net, as_batches(inputs, rows.labels, net), None if grouped is None else grouped.groups)


def _as_weights(class_weight: Any, classes: Classes) -> Any:
    """Return weights of labels as one per class; others as they are."""
    if not isinstance(class_weight, dict):
        return class_weight
    return tuple(map(float, compute_class_weight(class_weight, classes=classes, y=classes)))


def check_weights_are_known(class_weight: Any) -> None:
    """Raise if the weights of the classes follow from all labels, which no single part has."""
    if isinstance(class_weight, str):
        raise OptionError(
            f"class_weight={class_weight!r} needs all labels at once; give partial_fit a dict of weights"
        )
