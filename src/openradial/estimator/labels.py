"""Labels as indices into ``classes``, and back with a label for unknown rows."""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.class_weight import compute_class_weight  # type: ignore[import-untyped]
from torch import Tensor

from openradial.data.examples import Examples
from openradial.errors import DataError, OptionError, TargetError, listed

Classes = NDArray[Any]


def check_classes(classes: Classes, *, rejects: bool) -> None:
    """Raise unless there are two classes, and a label is free for "unknown" where rows may be rejected."""
    if len(classes) < 2:
        raise DataError(
            f"a classifier needs at least 2 classes, got 1 class: {_listed(classes)}; add examples of another"
        )
    unknown = with_unknown(classes).tolist()[-1]
    if rejects and unknown in classes:
        raise OptionError(
            f"the label {unknown!r} means unknown where rows may be rejected, but it is one of the classes; "
            "rename that class, or set false_reject_rate=None"
        )


def with_unknown(classes: Classes) -> Classes:
    """Return the classes followed by "unknown", so that index -1 is unknown.

    >>> with_unknown(np.array(["cat", "dog"]))[[1, -1]]
    array(['dog', 'unknown'], dtype='<U7')
    >>> with_unknown(np.array([3, 5], dtype=np.uint8))
    array([ 3,  5, -1])
    """
    return np.append(classes, "unknown" if classes.dtype.kind in "OU" else -1)


def as_indices(y: Classes, classes: Classes) -> Tensor:
    """Return the index of each label in ``classes``, ``(n,)`` int64."""
    index = {label: k for k, label in enumerate(classes.tolist())}
    indices = torch.tensor([index.get(label, -1) for label in y.tolist()])
    if (indices < 0).any():
        wrong = np.unique(y[indices.numpy() < 0])
        raise TargetError(
            f"labels must be among the classes {_listed(classes)}, got {_listed(wrong)}; "
            "fit a new classifier to add classes"
        )
    return indices


def as_classes(given: ArrayLike | None) -> Classes:
    """Return the classes, which the first call of ``partial_fit`` must name."""
    if given is None:
        raise OptionError("the first call of partial_fit must name all classes: pass classes=[...]")
    return np.unique(np.asarray(given))


def check_same(given: Classes, classes: Classes) -> None:
    """Raise unless the classes are those of the first call."""
    if not np.array_equal(given, classes):
        raise OptionError(
            f"classes must be those of the first call, {_listed(classes)}, got {_listed(given)}; "
            "fit a new classifier for other classes"
        )


def as_labels(indices: Tensor, classes: Classes) -> Classes:
    """Return the class at each index."""
    labels: Classes = classes[indices.numpy()]
    return labels


def as_examples(X: NDArray[Any], y: Classes, classes: Classes) -> Examples:
    """Return rows and labels as tensors."""
    return Examples(torch.tensor(X), as_indices(y, classes), tuple(map(str, range(len(classes)))))


def class_weights(weight: Any, classes: Classes, y: Tensor) -> Tensor | None:
    """Return the weight of each class, ``(k,)``; None for equal weights."""
    if weight is None:
        return None
    weights = compute_class_weight(weight, classes=classes, y=classes[y.numpy()])
    return torch.tensor(weights, dtype=torch.float32)


def _listed(classes: Classes) -> str:
    return listed([repr(label) for label in classes.tolist()])
