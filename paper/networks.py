"""AlexNet and the paper's VGG-19 for ILSVRC-2012: too large to train here, ready for those who have the data.

``openradial fit --model paper.networks:vgg19_bn_fc8192`` trains one from the root of the repository.
"""

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from torch import Tensor, nn

from openradial.errors import ShapeError
from openradial.models import Network

STAGES = ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512))  # of VGG: (convolutions, channels), a pooling after each


class _Convolutional(Network):
    """Convolutional layers, a pooling to ``pool`` x ``pool`` pixels, and fully connected layers."""

    least: int  # pixels of an image on its smaller side
    drop_first = False  # whether dropout comes before or after a hidden layer

    def __init__(
        self, num_classes: int, layers: list[nn.Module], pool: int, hidden: Sequence[int], dropout: float
    ) -> None:
        super().__init__()
        convolutions = [layer for layer in layers if isinstance(layer, nn.Conv2d)]
        flat = convolutions[-1].out_channels * pool * pool
        self.channels = convolutions[0].in_channels
        self.convolutions = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(pool)
        self.hidden = _fully_connected(flat, hidden, dropout, drop_first=self.drop_first)
        self.classifier = nn.Linear((flat, *hidden)[-1], num_classes)

    def forward_features(self, x: Tensor) -> Tensor:
        if x.ndim != 4 or x.shape[1] != self.channels or min(x.shape[2:]) < self.least:
            wanted = f"(b, {self.channels}, h, w) of at least {self.least} x {self.least} pixels"
            raise ShapeError(f"expected images {wanted}, got {tuple(x.shape)}; enlarge them or use another network")
        return self.hidden(self.pool(self.convolutions(x)).flatten(1))  # type: ignore[no-any-return]


class AlexNet(_Convolutional):
    """Five convolutions and two wide fully connected layers (Krizhevsky, "One weird trick", 2014).

    The network of torchvision layer by layer; its weights files can be loaded. Initialised as in PyTorch.
    """

    least = 63  # the last of three 3 x 3 poolings still sees three pixels
    drop_first = True
    renamed_keys = (
        (r"^features\.", "convolutions."),
        (r"^classifier\.1\.", "hidden.fc1."),
        (r"^classifier\.4\.", "hidden.fc2."),
        (r"^classifier\.6\.", "classifier."),
    )

    def __init__(
        self, num_classes: int, channels: int = 3, hidden: Sequence[int] = (4096, 4096), dropout: float = 0.5
    ) -> None:
        layers: list[nn.Module] = []
        for inputs, outputs, size, stride, padding, is_pooled in (
            (channels, 64, 11, 4, 2, True),
            (64, 192, 5, 1, 2, True),
            (192, 384, 3, 1, 1, False),
            (384, 256, 3, 1, 1, False),
            (256, 256, 3, 1, 1, True),
        ):
            layers += [nn.Conv2d(inputs, outputs, size, stride, padding), nn.ReLU()]
            layers += [nn.MaxPool2d(3, 2)] if is_pooled else []
        super().__init__(num_classes, layers, 6, hidden, dropout)


class VGG19(_Convolutional):
    """Sixteen 3 x 3 convolutions with batch normalisation, then fully connected layers (Simonyan and Zisserman, 2014).

    The last feature map is averaged to ``pool`` x ``pool`` pixels. ``width`` scales the number of channels, for small
    images. The defaults give torchvision's ``vgg19_bn`` layer by layer; its weights files can be loaded. Initialised as
    in torchvision: He's normal distribution (fan out) for convolutions, standard deviation 0.01 for fully connected
    layers, biases of zero.
    """

    least = 2 ** len(STAGES)
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
        layers: list[nn.Module] = []
        inputs = channels
        for repeats, unscaled in STAGES:
            outputs = max(1, round(unscaled * width))
            for _ in range(repeats):
                layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
                inputs = outputs
            layers.append(nn.MaxPool2d(2))
        super().__init__(num_classes, layers, pool, hidden, dropout)
        self.apply(self.initialise)

    def initialise(self, layer: nn.Module) -> None:
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=0.01)
        else:
            return super().initialise(layer)
        assert layer.bias is not None
        nn.init.zeros_(layer.bias)


vgg19_bn_fc8192 = partial(VGG19, hidden=(8192, 8192), dropout=0.0)  # of the supplement
vgg19_bn_small = partial(VGG19, hidden=(512, 512), dropout=0.0, pool=1, width=0.5)  # for small images


def _fully_connected(inputs: int, widths: Sequence[int], dropout: float, *, drop_first: bool) -> nn.Sequential:
    """Build layers ``fc1, fc2, ...`` with ReLU, and dropout after each of them or before it."""
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for i, (before, width) in enumerate(pairwise((inputs, *widths)), start=1):
        drop = {f"drop{i}": nn.Dropout(dropout)} if dropout else {}
        layers |= drop if drop_first else {}
        layers |= {f"fc{i}": nn.Linear(before, width), f"relu{i}": nn.ReLU()}
        layers |= {} if drop_first else drop
    return nn.Sequential(layers)
