"""AlexNet in its single-column form."""

from collections.abc import Sequence

from torch import Tensor, nn

from openradial.errors import check_count
from openradial.models.contract import Network, check_images, fully_connected

LEAST = 63  # the last of three 3 x 3 poolings still sees three pixels


class AlexNet(Network):
    """Five convolutions and two wide fully connected layers (Krizhevsky, "One weird trick", 2014).

    The network of torchvision layer by layer; its weights files can be loaded. Initialised as in PyTorch.
    """

    renamed_keys = (
        (r"^features\.", "convolutions."),
        (r"^classifier\.1\.", "hidden.fc1."),
        (r"^classifier\.4\.", "hidden.fc2."),
        (r"^classifier\.6\.", "classifier."),
    )

    def __init__(
        self, num_classes: int, channels: int = 3, hidden: Sequence[int] = (4096, 4096), dropout: float = 0.5
    ) -> None:
        super().__init__()
        check_count("channels", channels)
        self.channels = channels
        self.convolutions = nn.Sequential(
            *_convolution(channels, 64, 11, stride=4, padding=2),
            nn.MaxPool2d(3, 2),
            *_convolution(64, 192, 5, padding=2),
            nn.MaxPool2d(3, 2),
            *_convolution(192, 384, 3, padding=1),
            *_convolution(384, 256, 3, padding=1),
            *_convolution(256, 256, 3, padding=1),
            nn.MaxPool2d(3, 2),
        )
        self.pool = nn.AdaptiveAvgPool2d(6)
        self.hidden = fully_connected(256 * 6 * 6, hidden, dropout, drop_first=True)
        self.classifier = nn.Linear((256 * 6 * 6, *hidden)[-1], num_classes)

    def forward_features(self, x: Tensor) -> Tensor:
        check_images(x, self.channels, LEAST)
        z: Tensor = self.hidden(self.pool(self.convolutions(x)).flatten(1))
        return z


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1, padding: int = 0) -> tuple[nn.Module, ...]:
    return nn.Conv2d(inputs, outputs, size, stride, padding), nn.ReLU()
