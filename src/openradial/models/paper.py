"""The small networks of the paper: fully connected ones, and the one for MNIST."""

import math
from collections.abc import Sequence

from torch import Tensor, nn

from openradial.errors import OptionError, ShapeError, check_count
from openradial.models.contract import Network, check_dropout, check_floats, check_images, fully_connected

MNIST_LEAST = 16  # two 5 x 5 convolutions and two halvings leave one pixel


class MLP(Network):
    """Fully connected layers with ReLU: (b, inputs) to (b, num_classes).

    Inputs of more dimensions are flattened. Initialised as in PyTorch: the paper gives no initialisation.

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
        return self.hidden(x.flatten(1))  # type: ignore[no-any-return]


class MnistCNN(Network):
    """Conv5-10, Conv5-20, FC-100, FC-100 and the outputs, as in the paper's table for MNIST.

    ``dropout`` acts after the second convolution and after the first fully connected layer: the table's third column
    has 0.5 there. Initialised as in PyTorch.

    >>> import torch
    >>> MnistCNN(10)(torch.zeros(5, 1, 28, 28)).shape
    torch.Size([5, 10])
    """

    def __init__(
        self, num_classes: int, channels: int = 1, size: int | tuple[int, int] = 28, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_count("channels", channels)
        check_dropout(dropout)
        sides = tuple(size) if isinstance(size, tuple | list) else (size, size)
        if len(sides) != 2 or not all(isinstance(side, int) and side >= MNIST_LEAST for side in sides):
            raise OptionError(f"size must be a whole number of at least {MNIST_LEAST} pixels, or two, got {size!r}")
        self.channels, self.size = channels, sides
        self.conv1, self.conv2 = nn.Conv2d(channels, 10, 5), nn.Conv2d(10, 20, 5)
        self.pool, self.relu, self.drop = nn.MaxPool2d(2), nn.ReLU(), nn.Dropout(dropout)
        left = [((side - 4) // 2 - 4) // 2 for side in self.size]
        self.fc1, self.fc2 = nn.Linear(20 * left[0] * left[1], 100), nn.Linear(100, 100)
        self.classifier = nn.Linear(100, num_classes)

    def forward_features(self, x: Tensor) -> Tensor:
        check_images(x, self.channels, MNIST_LEAST)
        if tuple(x.shape[2:]) != self.size:
            raise ShapeError(
                f"the network was built for images of {self.size[0]} x {self.size[1]} pixels, got {x.shape[2]} x "
                f"{x.shape[3]}; build it with size=({x.shape[2]}, {x.shape[3]})"
            )
        x = self.relu(self.pool(self.conv1(x)))  # (b, 10, 12, 12) for 28 pixels
        x = self.relu(self.pool(self.drop(self.conv2(x))))  # (b, 20, 4, 4)
        x = self.drop(self.relu(self.fc1(x.flatten(1))))
        return self.relu(self.fc2(x))  # type: ignore[no-any-return]
