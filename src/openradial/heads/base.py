"""The contract of a head: outputs in, log-probabilities, an unknown score and a class out."""

from abc import abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor

from openradial.errors import check_count
from openradial.functional.probabilities import check_kind, note_kind
from openradial.scorers.base import Scorer, check_known, check_labels, check_rows

RESULTS = {"log_probs": "log-probabilities", "probs": "probabilities", "distances": "distances"}  # notes on results


class HeadOutput(NamedTuple):
    """Everything a head computes for a batch of outputs."""

    log_probs: Tensor  # (b, k)
    unknown_score: Tensor  # (b,)
    labels: Tensor  # (b,) the most probable class, whatever the unknown score
    distances: Tensor | None  # (b, k) to the prototypes of the classes, None for a head without prototypes


class Head(Scorer):
    """A scorer that also classifies: outputs ``o`` to log-probabilities, an unknown score and a class.

    A head has no ``forward``: networks return outputs, losses and heads take them, and probabilities are computed on
    request, by :meth:`log_probs` or :meth:`probs`. :meth:`compute` gives all results at once. Each result carries a
    note of its kind, so that no loss takes it for outputs.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in vars(cls).keys() & {*RESULTS, "compute"}:
            setattr(cls, name, _noting(name, vars(cls)[name]))

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        check_count("num_classes", num_classes)
        self.num_classes = int(num_classes)

    @property
    def num_outputs(self) -> int:
        """Number of outputs per input."""
        return self.num_classes

    @abstractmethod
    def log_probs(self, o: Tensor) -> Tensor:
        """Return the log-probabilities of the classes, ``(b, k) -> (b, k)``; they need not sum to 1."""

    @abstractmethod
    def loss(self, o: Tensor, y: Tensor) -> Tensor:
        """Return the loss that trains a network for this head, averaged over the batch; ``(b, k), (b,) -> ()``."""

    def probs(self, o: Tensor) -> Tensor:
        """Return the probabilities of the classes, ``(b, k) -> (b, k)``."""
        return note_kind(self.log_probs(o).exp(), RESULTS["probs"])

    def predict(self, o: Tensor) -> Tensor:
        """Return the most probable class, whatever the unknown score; ``(b, k) -> (b,)``."""
        return self.log_probs(o).argmax(-1)

    def compute(self, o: Tensor) -> HeadOutput:
        """Return log-probabilities, unknown score, class and distances of a batch, each computed once."""
        return HeadOutput(self.log_probs(o), self.unknown_score(o), self.predict(o), None)

    @property
    def missing_classes(self) -> list[int]:
        """The classes without examples in :meth:`fit`, or without correctly classified ones where only those count."""
        self._check_fitted()
        counts: Tensor | None = getattr(self, "counts", None)  # (k,)
        return [] if counts is None else torch.nonzero(counts == 0).flatten().tolist()

    def _known(self, o: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return known data to learn from: outputs without gradient, and int64 labels."""
        self._check(o, y)
        check_known("outputs", o)
        return o.detach(), y.long()

    def _check(self, o: Tensor, y: Tensor | None = None) -> None:
        check_rows("outputs", o, self.num_outputs)
        check_kind(o)
        if y is not None:
            check_labels(y, len(o), self.num_classes)


def _noting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of a head that notes on its results what they are."""

    @wraps(method)
    def noting(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        parts = result._asdict() if isinstance(result, HeadOutput) else {name: result}
        for part, kind in RESULTS.items():
            if parts.get(part) is not None:
                note_kind(parts[part], kind)
        return result

    return noting
