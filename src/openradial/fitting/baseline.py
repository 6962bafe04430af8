"""A baseline beside a model in closed form: logistic regression on the same features and the same examples."""

import warnings
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from openradial.fitting.closed_form import FeatureSet
from openradial.fitting.cross import assign_folds
from openradial.fitting.report import Baseline
from openradial.metrics import auroc

NAME = "logistic regression"
FOLDS = 5  # pairs of those that the calibration uses
STEPS = 100  # of the optimiser
MOST = 2e8  # examples x features x classes: more takes seconds per fold


def fit_baseline(
    known: FeatureSet, report: FeatureSet | None, novel: FeatureSet | None, seed: int = 0
) -> tuple[Baseline | None, tuple[str, ...]]:
    """Return the baseline on examples for a report, or else out of fold; and notes about what could not be done."""
    num_classes = int(known.y.max()) + 1
    if find_spec("sklearn") is None:
        return None, (f"no baseline: {NAME} needs scikit-learn; run: pip install 'openradial[sklearn]'",)
    if known.z.numel() * num_classes > MOST:
        return None, (f"no baseline: {NAME} on so many examples, features and classes takes longer than the fit",)
    folds = assign_folds(known.y, FOLDS, known.groups, seed)
    if report is None and any(len(known.y[folds != fold].unique()) < 2 for fold in range(FOLDS)):
        return None, (f"no baseline: {NAME} needs two classes in each fold",)
    complete = _fitted(known.z, known.y) if report is not None or novel is not None else None
    if report is not None:
        labels, (nearest, scores) = report.y.numpy(), _predicted(complete, report.z)
    else:
        parts = [(folds == fold, _fitted(known.z[folds != fold], known.y[folds != fold])) for fold in range(FOLDS)]
        labels = np.concatenate([known.y[here].numpy() for here, _ in parts])
        pairs = [_predicted(model, known.z[here]) for here, model in parts if here.any()]
        nearest, scores = (np.concatenate(column) for column in zip(*pairs, strict=True))
    separated = None if novel is None else auroc(scores, _predicted(complete, novel.z)[1])
    return Baseline(NAME, float((nearest == labels).mean()), separated), ()


def _fitted(z: Tensor, y: Tensor) -> Any:
    """Return logistic regression on standardised features; it need not converge completely."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return make_pipeline(StandardScaler(), LogisticRegression(max_iter=STEPS)).fit(z.double().numpy(), y.numpy())


def _predicted(model: Any, z: Tensor) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the predicted classes, and the negative maximum logit as the unknown score."""
    logits = model.decision_function(z.double().numpy())
    logits = np.stack([-logits, logits], 1) if logits.ndim == 1 else logits  # one column for two classes
    return model.classes_[logits.argmax(1)], -logits.max(1)
