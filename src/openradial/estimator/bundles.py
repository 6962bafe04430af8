"""An estimator as a model that can be saved, exported and served, and back."""

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]
from torch import nn

from openradial.bundle import load
from openradial.classifier import OpenClassifier
from openradial.conformal import Rejector
from openradial.data.inputs import TableInputs
from openradial.data.table_encoder import NumberFeature, TableEncoder
from openradial.errors import BundleError, OptionError
from openradial.estimator.labels import class_names
from openradial.estimator.rows import Seen
from openradial.heads import ClosedFormRadialHead, RadialHead
from openradial.models import MLP
from openradial.models.features import Features
from openradial.scorers import NeighbourScorer

if TYPE_CHECKING:
    from openradial.estimator.classifier import RadialClassifier

LABELS = "label_dtype"  # in the metadata


def to_model(estimator: "RadialClassifier", rejector: Rejector | None) -> OpenClassifier:
    """Return the classifier of a fitted estimator with its columns and classes."""
    net = estimator.network_
    if not isinstance(net, Features) and (estimator.module is not None or not isinstance(net, MLP)):
        raise OptionError(
            "a bundle builds its network again by name, and this estimator has its own module; fit it with "
            "hidden=(...), or build an openradial.OpenClassifier with the name of a network"
        )
    n, scaler = estimator.n_features_in_, estimator.scaler_
    names = [str(name) for name in getattr(estimator, "feature_names_in_", [f"x{i}" for i in range(n)])]
    if len(set(names)) < n:
        raise OptionError("a bundle finds columns by name, and two columns of this estimator have the same; rename one")
    shifts, scales = (np.zeros(n), np.ones(n)) if scaler is None else (scaler.mean_, scaler.scale_)
    columns = zip(names, estimator.means_.tolist(), shifts.tolist(), scales.tolist(), strict=True)
    features = tuple(NumberFeature(*column) for column in columns)
    classes = class_names(estimator.classes_)
    network: tuple[str, dict[str, Any]] = ("features", {"float64": getattr(net, "float64", False)})
    if isinstance(net, MLP):
        network = ("mlp", {"inputs": n, "hidden": _widths(net)})
    if rejector is not None:  # the rate of the estimator may have been changed since its calibration
        record = rejector.to_dict()
        settings = record["settings"] | {"false_reject_rate": estimator.false_reject_rate}
        rejector = Rejector.from_dict(record | {"settings": settings})
        rejector.threshold()  # raises if the calibration is too small for the rate
    return estimator.classifier_.replace(
        rejector=rejector,
        classes=classes,
        preprocessing=TableInputs(TableEncoder(features, classes, missing="mean")),
        network=network,
        metadata={**estimator.classifier_.metadata, LABELS: estimator.classes_.dtype.str},
    )


def estimator_state(path: Path | str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters and the fitted attributes of an estimator from a bundle."""
    model = load(path)
    inputs, net, head = model.preprocessing, model.net, model.head
    columns = inputs.encoder.features if isinstance(inputs, TableInputs) else ()
    numbers = [column for column in columns if isinstance(column, NumberFeature)]
    is_closed = isinstance(net, Features) and isinstance(head, ClosedFormRadialHead)
    is_number = bool(numbers) and len(numbers) == len(columns)
    if not is_number or not isinstance(head, RadialHead) or not (is_closed or isinstance(net, MLP)):
        raise BundleError(
            "an estimator needs a bundle of a table of numbers with the network mlp and a radial head, or with a head "
            f"in closed form, and {path} is not one; use openradial.load({str(path)!r})"
        )
    names = [column.name for column in numbers]
    shifts, scales = (np.array([getattr(column, name) for column in numbers]) for name in ("shift", "scale"))
    scaler = None
    if shifts.any() or (scales != 1).any():
        scaler = StandardScaler().fit(shifts[None])
        scaler.mean_, scaler.scale_, scaler.var_ = shifts, scales, scales**2
    classes, kind = np.array(model.classes), str(model.metadata.get(LABELS))  # the labels of other models are strings
    if kind == "|b1":
        classes = classes == "True"
    params: dict[str, Any] = {
        "beta": float(head.layer.beta),
        "scale": float(getattr(head.layer.prototypes, "scale", 1.0)),
        "loss": head.loss_name,
        "standardise": scaler is not None,
        "false_reject_rate": None if model.rejector is None else model.rejector.false_reject_rate,
        "neighbours": model.rejector is None or bool(model.layers),
    }
    state: dict[str, Any] = {
        "classes_": classes.astype(kind) if kind[1:2] in tuple("iufOb") else classes,
        "n_features_in_": len(names),
        "means_": np.array([column.mean for column in numbers]),
        "scaler_": scaler,
        "head_": head,
        "network_": copy.deepcopy(net).float(),  # it predicts in float64 and is trained in float32
        "classifier_": model,
        "history_": [],
    }
    if isinstance(net, MLP):
        params["hidden"] = tuple(_widths(net))
    if isinstance(head, ClosedFormRadialHead):
        weight: Any = head.class_weight
        if isinstance(weight, tuple):
            weight = dict(zip(state["classes_"].tolist(), weight, strict=True))
        params |= {"method": "closed-form", "random_features": head.random_features, "class_weight": weight}
        neighbours = [scorer for _, scorer in model.layer_scorers() if isinstance(scorer, NeighbourScorer)]
        if neighbours:  # in closed form it holds training rows
            state["_seen"] = Seen.among(neighbours[0].references.float(), int(head.counts.sum()))
    if names != [f"x{i}" for i in range(len(names))]:
        state["feature_names_in_"] = np.array(names, dtype=object)
    return params, state


def _widths(net: MLP) -> list[int]:
    return [layer.out_features for layer in net.hidden if isinstance(layer, nn.Linear)]
