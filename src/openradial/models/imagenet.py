"""Networks with published ImageNet weights: ResNet-18, 34 and 50, EfficientNet-Lite0, 1 and 2, and MobileNetV2."""

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import ClassVar, Literal

from torch import Tensor, nn
from torch.nn import functional as TF

from openradial.errors import check_choice, check_count, check_positive
from openradial.models.contract import Network, check_dropout, check_images

DEPTHS: dict[int, tuple[int, int, int, int]] = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}
# of EfficientNet and MobileNetV2: (repeats, kernel size, stride, expansion, output channels)
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
MOBILE_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (3, 3, 2, 6, 32),
    (4, 3, 2, 6, 64),
    (3, 3, 1, 6, 96),
    (3, 3, 2, 6, 160),
    (1, 3, 1, 6, 320),
)
STEM, HEAD = 32, 1280
MIDDLE_STAGE = 3  # of both lists: the first one with a sixteenth of the pixels per side


class ResidualBlock(nn.Module):
    """Convolutions, given as (outputs, kernel size, stride), with batch normalisation and a shortcut around them."""

    def __init__(self, inputs: int, convolutions: Sequence[tuple[int, int, int]], eps: float) -> None:
        super().__init__()
        self.steps = [(f"conv{i}", f"bn{i}") for i in range(1, len(convolutions) + 1)]  # names of torchvision
        width, outputs, stride = inputs, convolutions[-1][0], max(step for _, _, step in convolutions)
        for (conv, norm), (channels, size, step) in zip(self.steps, convolutions, strict=True):
            self.add_module(conv, nn.Conv2d(width, channels, size, step, padding=size // 2, bias=False))
            self.add_module(norm, nn.BatchNorm2d(channels, eps))
            width = channels
        self.relu = nn.ReLU()
        self.downsample: nn.Module | None = None
        if stride > 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs, eps))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        for conv, norm in self.steps[:-1]:
            x = self.relu(self._modules[norm](self._modules[conv](x)))  # type: ignore[misc]
        conv, norm = self.steps[-1]
        return self.relu(self._modules[norm](self._modules[conv](x)) + shortcut)  # type: ignore[misc, no-any-return]


class ResNet(Network):
    """Residual network of 18, 34 or 50 layers (He et al., 2015).

    Layers are named as in torchvision; its weights files can be loaded. Convolutions begin with He's values (fan out).

    Args:
        stem: ``"imagenet"``, a 7 x 7 convolution of stride 2 and a pooling, or ``"small"``, a 3 x 3 convolution that
            keeps the size, for images of 32 or 64 pixels.
        stride_in: the convolution of a bottleneck that halves the image: ``"3x3"`` as in torchvision, ``"1x1"`` as
            published and as in Keras.
        norm_eps: ``eps`` of batch normalisation; the ImageNet weights of Keras need 1e-3.
        width: channels of the first stage.
    """

    renamed_keys = ((r"^fc\.", "classifier."),)

    def __init__(
        self,
        num_classes: int,
        depth: int = 18,
        channels: int = 3,
        stem: Literal["imagenet", "small"] = "imagenet",
        stride_in: Literal["3x3", "1x1"] = "3x3",
        norm_eps: float = 1e-5,
        width: int = 64,
    ) -> None:
        super().__init__()
        check_choice("depth", str(depth), map(str, DEPTHS))
        check_choice("stem", stem, ("imagenet", "small"))
        check_choice("stride_in", stride_in, ("3x3", "1x1"))
        check_positive("norm_eps", norm_eps)
        check_count("channels", channels)
        check_count("width", width)
        self.channels = channels
        size, stride, padding = (7, 2, 3) if stem == "imagenet" else (3, 1, 1)
        self.conv1 = nn.Conv2d(channels, width, size, stride, padding, bias=False)
        self.bn1 = nn.BatchNorm2d(width, norm_eps)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, padding=1) if stem == "imagenet" else nn.Identity()
        inputs, stages = width, []
        for i, repeats in enumerate(DEPTHS[depth]):  # each stage has twice the channels and half the pixels
            blocks: list[nn.Module] = []
            for j in range(repeats):
                maps, stride = width << i, 2 if i > 0 and j == 0 else 1
                first, second = (stride, 1) if depth < 50 or stride_in == "1x1" else (1, stride)
                basic = [(maps, 3, first), (maps, 3, second)]
                bottleneck = [(maps, 1, first), (maps, 3, second), (4 * maps, 1, 1)]
                convolutions = basic if depth < 50 else bottleneck
                blocks.append(ResidualBlock(inputs, convolutions, norm_eps))
                inputs = convolutions[-1][0]
            stages.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.num_middle = 2 * width * (4 if depth >= 50 else 1)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(inputs, num_classes)
        self.apply(self.initialise)

    def forward_features(self, x: Tensor) -> Tensor:
        return self.forward_middle(x)[0]

    def forward_middle(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features ``(b, num_features)``, and the maps of a layer half way, ``(b, num_middle, h, w)``."""
        check_images(x, self.channels)
        middle = self.layer2(self.layer1(self.maxpool(self.relu(self.bn1(self.conv1(x))))))
        return self.avgpool(self.layer4(self.layer3(middle))).flatten(1), middle

    def initialise(self, layer: nn.Module) -> None:
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        else:
            super().initialise(layer)


class SameConv2d(nn.Conv2d):
    """A convolution padded as in TensorFlow: ceil(size / stride) output pixels, odd padding is larger at the end."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, size, stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        missing = [max((math.ceil(side / stride) - 1) * stride + kernel - side, 0) for side in (x.shape[3], x.shape[2])]
        padding = [part for m in missing for part in (m // 2, m - m // 2)]
        return super().forward(TF.pad(x, padding) if any(padding) else x)  # padding with nothing copies x


class Block(nn.Module):
    """Inverted bottleneck: 1 x 1 expansion, depthwise convolution, 1 x 1 projection; a shortcut if shapes agree."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, expansion: int, same: bool = True) -> None:
        super().__init__()
        middle = inputs * expansion
        self.expand = _conv_norm(inputs, middle, 1, same=same) if expansion > 1 else nn.Identity()
        self.depthwise = _conv_norm(middle, middle, size, stride, groups=middle, same=same)
        self.project = _conv_norm(middle, outputs, 1, active=False, same=same)
        self.has_shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + out if self.has_shortcut else out


class EfficientNetLite(Network):
    """EfficientNet without squeeze-and-excitation and with ReLU6 (Tan and Le, 2019; Lite: Liu, 2020).

    Initialised as published: convolutions normal with variance 2 / fan out, the classifier uniform; no drops of blocks.

    Args:
        width: factor of the channels of all stages, rounded to multiples of 8.
        depth: factor of the repeats of all stages but the first and the last, rounded up.
    """

    renamed_keys = (
        (r"^_conv_stem\.", "stem.conv."),
        (r"^_bn0\.", "stem.norm."),
        (r"^_blocks\.(\d+)\._(expand|depthwise|project)_conv\.", r"blocks.\1.\2.conv."),
        (r"^_blocks\.(\d+)\._bn0\.", r"blocks.\1.expand.norm."),
        (r"^_blocks\.(\d+)\._bn1\.", r"blocks.\1.depthwise.norm."),
        (r"^_blocks\.(\d+)\._bn2\.", r"blocks.\1.project.norm."),
        (r"^_conv_head\.", "head.conv."),
        (r"^_bn1\.", "head.norm."),
        (r"^_fc\.", "classifier."),
    )
    stages: ClassVar = STAGES
    same: ClassVar = True  # whether images are padded, and batches normalised, as in TensorFlow

    def __init__(
        self, num_classes: int, channels: int = 3, dropout: float = 0.2, width: float = 1.0, depth: float = 1.0
    ) -> None:
        super().__init__()
        check_count("channels", channels)
        check_dropout(dropout)
        check_positive("width", width)
        check_positive("depth", depth)
        self.channels = channels
        self.stem = _conv_norm(channels, STEM, 3, 2, same=self.same)
        inputs, blocks = STEM, []
        for stage, (repeats, size, stride, expansion, base) in enumerate(self.stages):
            outputs = _rounded(base * width)
            for i in range(repeats if stage in (0, len(self.stages) - 1) else math.ceil(repeats * depth)):
                blocks.append(Block(inputs, outputs, size, stride if i == 0 else 1, expansion, self.same))
                inputs = outputs
            if stage == MIDDLE_STAGE:
                self.num_first, self.num_middle = len(blocks), outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = _conv_norm(inputs, HEAD, 1, same=self.same)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout(dropout)
        self.classifier = nn.Linear(HEAD, num_classes)
        self.apply(self.initialise)

    def forward_features(self, x: Tensor) -> Tensor:
        return self.forward_middle(x)[0]

    def forward_middle(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features ``(b, num_features)``, and the maps of a layer half way, ``(b, num_middle, h, w)``."""
        check_images(x, self.channels)
        middle = self.blocks[: self.num_first](self.stem(x))
        return self.drop(self.pool(self.head(self.blocks[self.num_first :](middle))).flatten(1)), middle

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


class MobileNetV2(EfficientNetLite):
    """MobileNetV2 (Sandler et al., 2018): other stages, padded and normalised as in PyTorch."""

    stages = MOBILE_STAGES
    same = False


def _rounded(channels: float) -> int:
    """Return the nearest multiple of 8 that is at least 0.9 times as many channels."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest


def _conv_norm(
    inputs: int, outputs: int, size: int, stride: int = 1, *, groups: int = 1, active: bool = True, same: bool = True
) -> nn.Sequential:
    layers: OrderedDict[str, nn.Module] = OrderedDict(conv=SameConv2d(inputs, outputs, size, stride, groups))
    layers["norm"] = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)
    if not same:
        layers["conv"] = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
        layers["norm"] = nn.BatchNorm2d(outputs)
    if active:
        layers["relu"] = nn.ReLU6()
    return nn.Sequential(layers)
