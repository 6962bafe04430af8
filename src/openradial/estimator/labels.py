"""Labels of a user's as places in ``classes``, and back with a label for what is unknown."""

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
    """Raise unless there is something to tell apart, and a label left for "unknown" where that may be answered."""
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
    """The classes and after them "unknown", so that place -1 finds it.

    >>> with_unknown(np.array(["cat", "dog"]))[[1, -1]]
    array(['dog', 'unknown'], dtype='<U7')
    >>> with_unknown(np.array([3, 5], dtype=np.uint8))
    array([ 3,  5, -1])
    """
    return np.append(classes, "unknown" if classes.dtype.kind in "OU" else -1)


def as_places(y: Classes, classes: Classes) -> Tensor:
    """The place of each label in ``classes``, ``(n,)`` int64."""
    place = {label: k for k, label in enumerate(classes.tolist())}
    places = torch.tensor([place.get(label, -1) for label in y.tolist()])
    if (places < 0).any():
        strange = np.unique(y[places.numpy() < 0])
        raise TargetError(
            f"labels must be among the classes {_listed(classes)}, got {_listed(strange)}; "
            "fit a new classifier to add classes"
        )
    return places


def as_classes(given: ArrayLike | None) -> Classes:
    """The classes that the first call of ``partial_fit`` must name."""
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


def as_labels(places: Tensor, classes: Classes) -> Classes:
    """The class at each place."""
    labels: Classes = classes[places.numpy()]
    return labels


def as_examples(X: NDArray[Any], y: Classes, classes: Classes) -> Examples:
    """Rows and labels as tensors."""
    return Examples(torch.tensor(X), as_places(y, classes), tuple(map(str, range(len(classes)))))


def class_weights(wish: Any, classes: Classes, y: Tensor) -> Tensor | None:
    """How much an example of each class counts, ``(k,)``; None for all alike."""
    if wish is None:
        return None
    weights = compute_class_weight(wish, classes=classes, y=classes[y.numpy()])
    return torch.tensor(weights, dtype=torch.float32)


def _listed(classes: Classes) -> str:
    return listed([repr(label) for label in classes.tolist()])
