"""The small convolutional network of the paper."""

from torch import Tensor, nn

from openradial.errors import OptionError, ShapeError, check_count
from openradial.models.contract import Network, check_dropout, check_images

LEAST = 16  # two 5 x 5 convolutions and two halvings leave one pixel


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
        self.channels, self.size = channels, _pair(size)
        self.conv1 = nn.Conv2d(channels, 10, 5)
        self.conv2 = nn.Conv2d(10, 20, 5)
        self.pool = nn.MaxPool2d(2)
        self.relu = nn.ReLU()
        self.drop = nn.Dropout(dropout)
        left = [((side - 4) // 2 - 4) // 2 for side in self.size]
        self.fc1 = nn.Linear(20 * left[0] * left[1], 100)
        self.fc2 = nn.Linear(100, 100)
        self.classifier = nn.Linear(100, num_classes)

    def forward_features(self, x: Tensor) -> Tensor:
        check_images(x, self.channels, LEAST)
        if tuple(x.shape[2:]) != self.size:
            raise ShapeError(
                f"the network was built for images of {self.size[0]} x {self.size[1]} pixels, got {x.shape[2]} x "
                f"{x.shape[3]}; build it with size=({x.shape[2]}, {x.shape[3]})"
            )
        x = self.relu(self.pool(self.conv1(x)))  # (b, 10, 12, 12) for 28 pixels
        x = self.relu(self.pool(self.drop(self.conv2(x))))  # (b, 20, 4, 4)
        x = self.drop(self.relu(self.fc1(x.flatten(1))))
        z: Tensor = self.relu(self.fc2(x))
        return z


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    sides = tuple(size) if isinstance(size, tuple | list) else (size, size)
    if len(sides) != 2 or not all(isinstance(side, int) and side >= LEAST for side in sides):
        raise OptionError(f"size must be a whole number of at least {LEAST} pixels, or two, got {size!r}")
    return sides[0], sides[1]
