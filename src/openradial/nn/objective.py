"""What training minimises, on what batches, and the metrics that it reports."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from openradial.errors import check_positive

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


@dataclass(frozen=True)
class MixupObjective(Objective):
    r"""A loss on :math:`\lambda x_i + (1 - \lambda) x_j` (Zhang et al., 2018).

    :math:`\lambda` is drawn from Beta(alpha, alpha) for each batch. The loss is
    :math:`\lambda L(o, y_i) + (1 - \lambda) L(o, y_j)`: for cross-entropy that of the mixed target; for the squared
    distance, up to a constant, the squared distance to the point between the prototypes. In evaluation mode this is the
    plain loss. Random numbers come from torch's global generator.
    """

    alpha: float = 0.2

    def __post_init__(self) -> None:
        check_positive("alpha", self.alpha)

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if not model.training:
            return super().__call__(model, x, y)
        share = float(torch.distributions.Beta(self.alpha, self.alpha).sample())
        order = torch.randperm(len(y), device=y.device)
        o = model(share * x + (1 - share) * x[order])
        return share * self.loss(o, y) + (1 - share) * self.loss(o, y[order]), o
