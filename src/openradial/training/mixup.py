"""Mixup: train on weighted means of two examples, with the target between their prototypes."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from openradial.errors import check_positive
from openradial.nn.objective import Objective


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
