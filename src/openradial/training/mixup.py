"""Mixup: train on weighted means of two examples, with the target between their prototypes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from openradial.errors import check_positive
from openradial.nn.objective import Loss, Metric, correct


@dataclass(frozen=True)
class MixupObjective:
    r"""A loss on :math:`\lambda x_i + (1 - \lambda) x_j` (Zhang et al., 2018).

    :math:`\lambda` is drawn from Beta(alpha, alpha) for each batch. The loss is
    :math:`\lambda L(o, y_i) + (1 - \lambda) L(o, y_j)`: for cross-entropy that of the mixed target; for the squared
    distance, up to a constant, the squared distance to the point between the prototypes. In evaluation mode this is the
    plain loss. Random numbers come from torch's global generator.
    """

    loss: Loss
    alpha: float = 0.2
    metrics: Mapping[str, Metric] = field(default_factory=lambda: {"accuracy": correct})

    def __post_init__(self) -> None:
        check_positive("alpha", self.alpha)

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if not model.training:
            o = model(x)
            return self.loss(o, y), o
        share = float(torch.distributions.Beta(self.alpha, self.alpha).sample())
        order = torch.randperm(len(y), device=y.device)
        o = model(share * x + (1 - share) * x[order])
        return share * self.loss(o, y) + (1 - share) * self.loss(o, y[order]), o
