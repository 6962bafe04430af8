"""Rotations: train on images that are turned by quarters, with a prototype for each class and turn."""

import torch
from torch import Tensor, nn

from openradial.nn.objective import Objective


class RotationObjective(Objective):
    """A loss on images that are turned by a random number of quarters, class and turn being learned together.

    In training mode the network has four outputs per class, ``4 k + t`` for class k and t quarters to the left
    (Lee et al., 2020). In evaluation mode it has one per class, and this is the plain loss. Random numbers come from
    torch's global generator.
    """

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if not model.training:
            return super().__call__(model, x, y)
        turns = torch.randint(4, y.shape, device=y.device)
        o = model(turned(x, turns))  # (b, 4 k)
        of_turn = torch.take_along_dim(o.unflatten(1, (-1, 4)), turns[:, None, None], 2).squeeze(2)  # (b, k)
        return self.loss(o, 4 * y + turns), of_turn


def turned(x: Tensor, turns: Tensor) -> Tensor:
    """Turn each image to the left by its number of quarters.

    >>> turned(torch.arange(4).view(1, 1, 2, 2), torch.tensor([1]))
    tensor([[[[1, 3],
              [0, 2]]]])
    """
    turned = x.clone()
    for count in range(1, 4):
        turned[turns == count] = x[turns == count].rot90(count, (2, 3))
    return turned
