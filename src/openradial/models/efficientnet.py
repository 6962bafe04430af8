"""EfficientNet-Lite0."""

import math
from collections import OrderedDict

from torch import Tensor, nn
from torch.nn import functional as TF

from openradial.errors import check_count
from openradial.models.contract import Network, check_dropout, check_images

# (repeats, kernel size, stride, expansion, output channels)
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
STEM, HEAD = 32, 1280


class SameConv2d(nn.Conv2d):
    """A convolution padded as in TensorFlow: ceil(size / stride) output pixels, odd padding is larger at the end."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, size, stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = (_padding(x.shape[i], self.kernel_size[0], self.stride[0]) for i in (2, 3))
        return super().forward(TF.pad(x, columns + rows))


class Block(nn.Module):
    """Inverted bottleneck: 1 x 1 expansion, depthwise convolution, 1 x 1 projection; a shortcut if shapes agree."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, expansion: int) -> None:
        super().__init__()
        middle = inputs * expansion
        self.expand = _conv_norm(inputs, middle, 1) if expansion > 1 else nn.Identity()
        self.depthwise = _conv_norm(middle, middle, size, stride, groups=middle)
        self.project = _conv_norm(middle, outputs, 1, active=False)
        self.has_shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + out if self.has_shortcut else out


class EfficientNetLite0(Network):
    """EfficientNet-B0 without squeeze-and-excitation and with ReLU6 (Tan and Le, 2019; Lite: Liu, 2020).

    Initialised as published: convolutions normal with variance 2 / fan out, the classifier uniform. Published training
    also drops blocks at random (stochastic depth); this network does not.
    """

    renamed_keys = (
        (r"^_conv_stem\.", "stem.conv."),
        (r"^_bn0\.", "stem.norm."),
        (r"^_blocks\.(\d+)\._expand_conv\.", r"blocks.\1.expand.conv."),
        (r"^_blocks\.(\d+)\._bn0\.", r"blocks.\1.expand.norm."),
        (r"^_blocks\.(\d+)\._depthwise_conv\.", r"blocks.\1.depthwise.conv."),
        (r"^_blocks\.(\d+)\._bn1\.", r"blocks.\1.depthwise.norm."),
        (r"^_blocks\.(\d+)\._project_conv\.", r"blocks.\1.project.conv."),
        (r"^_blocks\.(\d+)\._bn2\.", r"blocks.\1.project.norm."),
        (r"^_conv_head\.", "head.conv."),
        (r"^_bn1\.", "head.norm."),
        (r"^_fc\.", "classifier."),
    )

    def __init__(self, num_classes: int, channels: int = 3, dropout: float = 0.2) -> None:
        super().__init__()
        check_count("channels", channels)
        check_dropout(dropout)
        self.channels = channels
        self.stem = _conv_norm(channels, STEM, 3, 2)
        self.blocks = nn.Sequential(*_blocks())
        self.head = _conv_norm(STAGES[-1][-1], HEAD, 1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout(dropout)
        self.classifier = nn.Linear(HEAD, num_classes)
        self.apply(self.initialise)

    def forward_features(self, x: Tensor) -> Tensor:
        check_images(x, self.channels)
        return self.drop(self.pool(self.head(self.blocks(self.stem(x)))).flatten(1))  # type: ignore[no-any-return]

    def initialise(self, layer: nn.Module) -> None:
        if isinstance(layer, nn.Conv2d):
            fan_out = layer.kernel_size[0] * layer.kernel_size[1] * layer.out_channels // layer.groups
            nn.init.normal_(layer.weight, std=math.sqrt(2 / fan_out))
        elif isinstance(layer, nn.Linear):
            bound = 1 / math.sqrt(layer.out_features)
            nn.init.uniform_(layer.weight, -bound, bound)
            nn.init.zeros_(layer.bias)
        else:
            super().initialise(layer)


def _blocks() -> list[Block]:
    inputs, blocks = STEM, []
    for repeats, size, stride, expansion, outputs in STAGES:
        for i in range(repeats):
            blocks.append(Block(inputs, outputs, size, stride if i == 0 else 1, expansion))
            inputs = outputs
    return blocks


def _conv_norm(
    inputs: int, outputs: int, size: int, stride: int = 1, *, groups: int = 1, active: bool = True
) -> nn.Sequential:
    layers: OrderedDict[str, nn.Module] = OrderedDict(conv=SameConv2d(inputs, outputs, size, stride, groups))
    layers["norm"] = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)
    if active:
        layers["relu"] = nn.ReLU6()
    return nn.Sequential(layers)


def _padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    missing = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
    return missing // 2, missing - missing // 2
