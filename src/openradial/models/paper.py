"""The networks of the paper: fully connected ones, the one for MNIST, AlexNet and VGG-19 with batch normalisation."""

import math
from collections.abc import Sequence

from torch import Tensor, nn

from openradial.errors import OptionError, ShapeError, check_count, check_positive
from openradial.models.contract import Network, check_dropout, check_floats, check_images, fully_connected

MNIST_LEAST = 16  # two 5 x 5 convolutions and two halvings leave one pixel
STAGES = ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512))  # of VGG: (convolutions, channels), a pooling after each


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
        self.hidden = fully_connected(flat, hidden, dropout, drop_first=self.drop_first)
        self.classifier = nn.Linear((flat, *hidden)[-1], num_classes)

    def forward_features(self, x: Tensor) -> Tensor:
        check_images(x, self.channels, self.least)
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
        check_count("channels", channels)
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
        check_count("channels", channels)
        check_count("pool", pool)
        check_positive("width", width)
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
