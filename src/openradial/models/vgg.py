"""VGG-19 with batch normalisation: as published, as in the paper's supplement, and for small images."""

from collections.abc import Sequence

from torch import Tensor, nn

from openradial.errors import check_count, check_positive
from openradial.models.contract import Network, check_images, fully_connected

STAGES = ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512))  # (convolutions, channels), a pooling after each
LEAST = 2 ** len(STAGES)


class VGG19(Network):
    """Sixteen 3 x 3 convolutions with batch normalisation, then fully connected layers (Simonyan and Zisserman, 2014).

    The last feature map is averaged to ``pool`` x ``pool`` pixels. ``width`` scales the number of channels, for small
    images. The defaults give torchvision's ``vgg19_bn`` layer by layer; its weights files can be loaded. Initialised as
    in torchvision: He's normal distribution (fan out) for convolutions, standard deviation 0.01 for fully connected
    layers, biases of zero.
    """

    renamed_keys = (
        (r"^features\.", "convolutions."),
        (r"^classifier\.0\.", "hidden.fc1."),
        (r"^classifier\.3\.", "hidden.fc2."),
        (r"^classifier\.6\.", "classifier."),
    )

    def __init__(
        self,
        num_classes: int,
        channels: int = 3,
        hidden: Sequence[int] = (4096, 4096),
        dropout: float = 0.5,
        pool: int = 7,
        width: float = 1.0,
    ) -> None:
        super().__init__()
        check_count("channels", channels)
        check_count("pool", pool)
        check_positive("width", width)
        self.channels = channels
        self.convolutions = nn.Sequential(*_convolutions(channels, width))
        self.pool = nn.AdaptiveAvgPool2d(pool)
        flat = _scaled(STAGES[-1][1], width) * pool * pool
        self.hidden = fully_connected(flat, hidden, dropout)
        self.classifier = nn.Linear((flat, *hidden)[-1], num_classes)
        self.apply(self.initialise)

    def forward_features(self, x: Tensor) -> Tensor:
        check_images(x, self.channels, LEAST)
        z: Tensor = self.hidden(self.pool(self.convolutions(x)).flatten(1))
        return z

    def initialise(self, layer: nn.Module) -> None:
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=0.01)
        else:
            return super().initialise(layer)
        assert layer.bias is not None
        nn.init.zeros_(layer.bias)


def _convolutions(inputs: int, width: float) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for repeats, channels in STAGES:
        outputs = _scaled(channels, width)
        for _ in range(repeats):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
            inputs = outputs
        layers.append(nn.MaxPool2d(2))
    return layers


def _scaled(channels: int, width: float) -> int:
    return max(1, round(channels * width))
