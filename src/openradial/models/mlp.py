"""Fully connected networks, for points and tables."""

import math
from collections.abc import Sequence

from torch import Tensor, nn

from openradial.errors import ShapeError, check_count
from openradial.models.contract import Network, check_floats, fully_connected


class MLP(Network):
    """Fully connected layers with ReLU: (b, inputs) to (b, num_classes).

    Inputs of more dimensions are flattened. Initialised as in PyTorch, since the paper does not say.

    >>> import torch
    >>> MLP(3, inputs=2, hidden=(50, 50, 2))(torch.zeros(5, 2)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self, num_classes: int, inputs: int, hidden: Sequence[int] = (50, 50, 50), dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_count("inputs", inputs)
        self.inputs = inputs
        self.hidden = fully_connected(inputs, hidden, dropout)
        self.classifier = nn.Linear((inputs, *hidden)[-1], num_classes)

    def forward_features(self, x: Tensor) -> Tensor:
        if x.ndim < 2 or math.prod(x.shape[1:]) != self.inputs:
            raise ShapeError(f"expected inputs of shape (b, {self.inputs}), got {tuple(x.shape)}")
        check_floats(x)
        z: Tensor = self.hidden(x.flatten(1))
        return z
