"""A baseline beside a model in closed form: logistic regression on the same features and the same examples."""

import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openradial.errors import MissingError, require
from openradial.fitting.cross import OUTSIDE, FeatureSet, assign_folds
from openradial.fitting.report import Baseline
from openradial.metrics import auroc

NAME = "logistic regression"
FOLDS = 5  # pairs of those that the calibration uses
STEPS = 100  # of the optimiser, which need not converge completely
ONE_FOLD, MOST = 3e7, 4e8  # examples x features x classes: from here on one fold is measured, or none


def fit_baseline(
    known: FeatureSet, report: FeatureSet | None = None, novel: FeatureSet | None = None, seed: int = 0
) -> tuple[Baseline | None, tuple[str, ...]]:
    """Return the baseline on examples for a report, or out of fold; or why there is none, as a note."""
    size = known.z.numel() * len(torch.unique(known.y))
    folds = assign_folds(known.y, FOLDS, known.groups, seed) if report is None else torch.full_like(known.y, OUTSIDE)
    masks = [folds == fold for fold in range(max(1, int(folds.max()) + 1) if size < ONE_FOLD else 1)]
    try:
        require("sklearn.linear_model", "sklearn", NAME)
    except MissingError as error:
        return None, (f"no baseline: {error}",)
    if size > MOST:
        return None, (f"no baseline: {NAME} on so many examples, features and classes would take too long",)
    if any(len(torch.unique(known.y[~here])) < 2 for here in masks):
        return None, (f"no baseline: {NAME} needs two classes in every fold; add examples",)
    right, usual, unusual = [], [], []
    for here in masks:
        test = FeatureSet(known.z[here], known.y[here]) if report is None else report
        parts = [test.z, *([] if novel is None else [novel.z])]
        (nearest, scores), *others = _predictions(known.z[~here], known.y[~here], parts)
        right.append(nearest == test.y.numpy())
        usual.append(scores)
        unusual += [other for _, other in others]
    separated = auroc(np.concatenate(usual), np.concatenate(unusual)) if unusual else None
    correct = np.concatenate(right)
    return Baseline(NAME, float(correct.mean()), separated, len(correct)), ()


def _predictions(z: Tensor, y: Tensor, inputs: list[Tensor]) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Fit on standardised features; return the class of each input, and its negative maximum logit."""
    mean, std = z.double().mean(0), z.double().std(0, correction=0)
    scale = std.where(std > 0, 1.0)
    model = require("sklearn.linear_model", "sklearn", NAME).LogisticRegression(max_iter=STEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about convergence, and about classes with few examples
        model.fit(((z - mean) / scale).float(), y)
    logits = [model.decision_function(((each - mean) / scale).float()) for each in inputs]
    logits = [np.stack([-each, each], 1) if each.ndim == 1 else each for each in logits]  # two classes have one column
    return [(model.classes_[each.argmax(1)], -each.max(1)) for each in logits]
