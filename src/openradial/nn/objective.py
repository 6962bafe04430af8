"""What training minimises, on what batches, and the metrics that it reports."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor, nn

Loss = Callable[[Tensor, Tensor], Tensor]
Metric = Callable[[Tensor, Tensor], Tensor]


class BatchSource(Protocol):
    """Batches that can start at any index, such as :class:`openradial.data.Batches`; each process has its part."""

    labels: Tensor

    def __len__(self) -> int: ...
    def epoch(self, epoch: int, *, start_batch: int = 0) -> Iterator[tuple[Tensor, Tensor]]: ...


def correct(o: Tensor, y: Tensor) -> Tensor:
    """Return 1 where the target's output is the largest, else 0; ``(n, k), (n,) -> (n,)``."""
    return (o.argmax(-1) == y).float()


@dataclass(frozen=True)
class Objective:
    """A loss of outputs and targets, averaged over the examples, and metrics of one number per example.

    Networks whose loss needs more than their outputs, such as Bayesian ones, have their own objective with the same two
    members: ``metrics``, and a call that returns the loss and the outputs.
    """

    loss: Loss
    metrics: Mapping[str, Metric] = field(default_factory=lambda: {"accuracy": correct})

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        o = model(x)
        return self.loss(o, y), o
