"""A baseline beside a model in closed form: logistic regression on the same features and the same examples."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openradial.data.progress import current
from openradial.errors import MissingError, require
from openradial.fitting.cross import OUTSIDE, FeatureSet, assign_folds
from openradial.fitting.report import Baseline
from openradial.metrics import auroc

NAME, PACKAGES = "logistic regression", ("scipy.optimize", "threadpoolctl")
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
        _ = [require(name, "sklearn", NAME) for name in PACKAGES]
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
        current().advance(work_of(size, False))
    separated = auroc(np.concatenate(usual), np.concatenate(unusual)) if unusual else None
    correct = np.concatenate(right)
    return Baseline(NAME, float(correct.mean()), separated, len(correct)), ()


def work_of(size: int, in_folds: bool) -> float:
    """Return about how many multiplications a baseline takes for examples x features x classes."""
    return 0 if size > MOST else 4 * STEPS * size * (FOLDS if in_folds and size < ONE_FOLD else 1)


def _predictions(z: Tensor, y: Tensor, inputs: list[Tensor]) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Fit on standardised features; return the class of each input, and its negative maximum logit."""
    mean, std = z.double().mean(0), z.double().std(0, correction=0)
    scale = std.where(std > 0, 1.0)
    classes, labels = torch.unique(y, return_inverse=True)
    weights = logistic_regression(((z - mean) / scale).float(), labels).double()
    logits = [torch.addmm(weights[:, -1], (each - mean) / scale, weights[:, :-1].T) for each in inputs]
    return [(classes[each.argmax(1)].numpy(), -each.amax(1).numpy()) for each in logits]


def logistic_regression(x: Tensor, y: Tensor) -> Tensor:
    """Return weights and intercepts, ``(k, d + 1)``, as scikit-learn, which takes long to import and has no float32."""
    n, k, d = len(x), int(y.max()) + 1, x.shape[1]
    penalty = (2 if k == 2 else 1) / n  # two classes have one weight vector there, the difference of these
    rows, target = torch.arange(n), torch.zeros(n, k).scatter_(1, y.unsqueeze(1), 1.0)

    def loss(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights, narrow = (torch.from_numpy(flat).view(k, d + 1).to(kind) for kind in (torch.float64, torch.float32))
        log_probs = torch.addmm(narrow[:, -1], x, narrow[:, :-1].T).log_softmax(1)
        errors = (log_probs.exp() - target) / n  # (n, k)
        gradient = torch.cat([errors.T @ x, errors.sum(0).unsqueeze(1)], 1).double()
        gradient[:, :-1] += penalty * weights[:, :-1]
        value = -log_probs[rows, y].double().mean() + penalty / 2 * weights[:, :-1].square().sum()
        return float(value), gradient.flatten().numpy()

    options = {"maxiter": STEPS, "maxls": 50, "gtol": 1e-4, "ftol": 64 * np.finfo(float).eps}
    optimize, threads = (require(name, "sklearn", NAME) for name in PACKAGES)
    with threads.threadpool_limits(1, "blas"):  # its products are short: other threads would only wait, on a busy core
        solution = optimize.minimize(loss, np.zeros(k * (d + 1)), method="L-BFGS-B", jac=True, options=options)
    return torch.from_numpy(solution.x).view(k, d + 1)
