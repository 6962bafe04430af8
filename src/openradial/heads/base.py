"""The contract of a head: outputs in, log-probabilities and an unknown score out."""

from abc import abstractmethod

from torch import Tensor

from openradial.errors import check_count
from openradial.scorers.base import Scorer, check_labels, check_rows


class Head(Scorer):
    """A scorer that also says which class: :meth:`forward` gives log-probabilities."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        check_count("num_classes", num_classes)
        self.num_classes = int(num_classes)

    @property
    def num_outputs(self) -> int:
        """How many outputs per input this head takes."""
        return self.num_classes

    @abstractmethod
    def forward(self, o: Tensor) -> Tensor:
        """Log-probabilities of the classes, ``(b, k) -> (b, k)``; their sum over classes need not be 1."""

    @abstractmethod
    def loss(self, o: Tensor, y: Tensor) -> Tensor:
        """The loss that trains a network for this head, averaged over the batch; ``(b, k), (b,) -> ()``."""

    def predict(self, o: Tensor) -> Tensor:
        """The most probable class, whatever the unknown-score says; ``(b, k) -> (b,)``."""
        log_probs: Tensor = self(o)
        return log_probs.argmax(-1)

    def _check(self, o: Tensor, y: Tensor | None = None) -> None:
        check_rows("outputs", o, self.num_outputs)
        if y is not None:
            check_labels(y, len(o), self.num_classes)
