"""An estimator as a model that can be saved, exported and served, and back."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]

from openradial.bundle import load
from openradial.classifier import OpenClassifier
from openradial.data.inputs import TableInputs
from openradial.data.table_encoder import NumberFeature, TableEncoder
from openradial.errors import BundleError, OptionError
from openradial.heads import RadialHead
from openradial.models import MLP

if TYPE_CHECKING:
    from openradial.estimator.classifier import RadialClassifier

INTEGERS = "integers"  # kind of labels, in the metadata


def to_model(estimator: "RadialClassifier") -> OpenClassifier:
    """Return the classifier of a fitted estimator with its columns and classes."""
    net = estimator.network_
    if not isinstance(net, MLP) or estimator.module is not None:
        raise OptionError(
            "a bundle builds its network again by name, and this estimator has its own module; fit it with "
            "hidden=(...), or build an openradial.OpenClassifier with the name of a network"
        )
    names = getattr(estimator, "feature_names_in_", [f"x{i}" for i in range(estimator.n_features_in_)])
    scaler = estimator.scaler_
    shifts = np.zeros(len(names)) if scaler is None else scaler.mean_
    scales = np.ones(len(names)) if scaler is None else scaler.scale_
    columns = zip(map(str, names), shifts.tolist(), scales.tolist(), strict=True)
    classes = tuple(map(str, estimator.classes_.tolist()))
    return estimator.classifier_.replace(
        classes=classes,
        preprocessing=TableInputs(
            TableEncoder(tuple(NumberFeature(name, shift, shift, scale) for name, shift, scale in columns), classes)
        ),
        network=("mlp", {"inputs": int(estimator.n_features_in_), "hidden": list(map(int, estimator.hidden))}),
        metadata={"labels": INTEGERS if estimator.classes_.dtype.kind in "iu" else "strings"},
    )


def estimator_state(path: Path | str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters and the fitted attributes of an estimator from a bundle."""
    model = load(path)
    inputs, network = model.preprocessing, model.network
    columns = inputs.encoder.features if isinstance(inputs, TableInputs) else ()
    is_numeric = bool(columns) and all(isinstance(column, NumberFeature) for column in columns)
    if not is_numeric or not isinstance(model.head, RadialHead) or not isinstance(model.net, MLP):
        raise BundleError(
            f"an estimator needs a bundle of a table of numbers with the network mlp and a radial head, and {path} is "
            f"not one; use openradial.load({str(path)!r})"
        )
    scaler = StandardScaler()
    scaler.mean_ = np.array([column.shift for column in columns])  # type: ignore[union-attr]
    scaler.scale_ = np.array([column.scale for column in columns])  # type: ignore[union-attr]
    scaler.var_, scaler.n_features_in_, scaler.n_samples_seen_ = scaler.scale_**2, len(columns), 0
    labels = np.array(model.classes)
    names = [column.name for column in columns]
    params = {
        "hidden": tuple(network[1]["hidden"]),
        "false_reject_rate": None if model.rejector is None else model.rejector.false_reject_rate,
        "beta": float(model.head.layer.beta),
    }
    state = {
        "classes_": labels.astype(np.int64) if model.metadata.get("labels") == INTEGERS else labels,
        "n_features_in_": len(columns),
        "scaler_": scaler,
        "head_": model.head,
        "network_": model.net,
        "classifier_": model,
        "history_": [],
    }
    if names != [f"x{i}" for i in range(len(names))]:
        state["feature_names_in_"] = np.array(names, dtype=object)
    return params, state
