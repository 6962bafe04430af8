"""Labels as indices into ``classes``, with a label for unknown rows, and probabilities of the classes."""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from openradial.data.examples import Examples
from openradial.errors import DataError, OptionError, TargetError, listed

Classes = NDArray[Any]


def check_classes(classes: Classes, *, rejects: bool) -> Classes:
    """Return the classes: at least two, and where rows may be rejected, none of them with the label of "unknown"."""
    if len(classes) < 2:
        raise DataError(f"at least 2 classes are needed, got 1 class: {_listed(classes)}; add examples of another")
    unknown = with_unknown(classes).tolist()[-1]
    if rejects and unknown in classes:
        message = f"the label {unknown!r} means unknown where rows may be rejected, but it is one of the classes"
        raise OptionError(f"{message}; rename that class, or set false_reject_rate=None")
    return classes


def with_unknown(classes: Classes) -> Classes:
    """Return the classes followed by "unknown", so that index -1 is unknown.

    >>> with_unknown(np.array(["cat", "dog"]))[[1, -1]]
    array(['dog', 'unknown'], dtype='<U7')
    >>> with_unknown(np.array([3, 5], dtype=np.uint8))
    array([ 3,  5, -1])
    """
    unknown = "unknown" if classes.dtype.kind in "OU" else -1
    if classes.dtype == np.uint64:  # which NumPy would turn into floats together with -1
        classes = classes.astype(np.int64 if classes.max() < 2**63 else object)
    return np.append(classes, unknown)


def class_names(classes: Classes) -> tuple[str, ...]:
    """Return the classes as texts."""
    return tuple(map(str, classes.tolist()))


def as_classes(given: ArrayLike | None, classes: Classes | None) -> Classes:
    """Return the classes that ``partial_fit`` names: all of them at its first call, none or the same later."""
    if given is None:
        if classes is None:
            raise OptionError("the first call of partial_fit must name all classes: pass classes=[...]")
        return classes
    names = np.unique(np.asarray(given))
    if classes is not None and not np.array_equal(names, classes):
        message = f"classes must be those of the first call, {_listed(classes)}, got {_listed(names)}"
        raise OptionError(f"{message}; fit a new classifier for other classes")
    return names


def as_examples(X: NDArray[Any], y: Classes, classes: Classes) -> Examples:
    """Return rows as a tensor, and labels as indices into ``classes``."""
    index = {label: k for k, label in enumerate(classes.tolist())}
    indices = torch.tensor([index.get(label, -1) for label in y.tolist()])
    if (indices < 0).any():
        wrong = _listed(np.unique(y[indices.numpy() < 0]))
        message = f"labels must be among the classes {_listed(classes)}, got {wrong}"
        raise TargetError(f"{message}; fit a new classifier to add classes")
    return Examples(torch.tensor(X), indices, tuple(map(str, range(len(classes)))))


def open_world(log_probs: Tensor) -> Tensor:
    """Return probabilities of rows that may belong to none of the classes, ``(n, k) -> (n, k)``: sums are at most 1.

    The nearest class has its radial probability. The others have theirs too, or less where that is more than is left.

    >>> open_world(torch.tensor([[0.0, -1.0], [-0.5, -1.0], [-8.0, -9.0]]))
    tensor([[1.0000e+00, 0.0000e+00],
            [6.0653e-01, 3.6788e-01],
            [3.3546e-04, 1.2341e-04]])
    """
    probs, index = log_probs.exp(), log_probs.argmax(-1, keepdim=True)  # several probabilities may round to 1
    best = probs.gather(-1, index)
    others = probs.scatter(-1, index, 0.0)
    total = others.sum(-1, keepdim=True)
    share = ((1 - best) / total.clamp_min(torch.finfo(total.dtype).tiny)).clamp_max(1)
    return (others * share).scatter(-1, index, best)


def _listed(classes: Classes) -> str:
    return listed([repr(label) for label in classes.tolist()])
