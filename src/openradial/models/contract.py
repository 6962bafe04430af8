"""The contract of every network, named as in timm: ``forward_features(x) -> z``, then ``classifier(z) -> o``."""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from numbers import Integral, Real
from typing import ClassVar

from torch import Tensor, nn

from openradial.errors import DTypeError, OptionError, ShapeError, check_count


class Network(nn.Module, ABC):
    """A network that ends in one linear layer: ``forward(x)`` is ``classifier(forward_features(x))``.

    It returns outputs ``o``, as PyTorch classifiers return logits; a head computes probabilities from them.
    """

    classifier: nn.Linear

    #: Pairs (pattern, replacement) that rename the keys of published weights files; the first match is used.
    renamed_keys: ClassVar[tuple[tuple[str, str], ...]] = ()

    @abstractmethod
    def forward_features(self, x: Tensor) -> Tensor:
        """Return the last hidden layer ``z`` of shape (b, num_features)."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs ``o`` of shape (b, num_classes)."""
        return self.classifier(self.forward_features(x))  # type: ignore[no-any-return]

    @property
    def num_features(self) -> int:
        """Width of the last hidden layer."""
        return self.classifier.in_features

    def get_classifier(self) -> nn.Linear:
        """Return the last layer."""
        return self.classifier

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the last layer by a newly initialised one for ``num_classes`` outputs."""
        check_count("num_classes", num_classes)
        weight = self.classifier.weight
        self.classifier = nn.Linear(self.num_features, num_classes, device=weight.device, dtype=weight.dtype)
        self.initialise(self.classifier)

    def initialise(self, layer: nn.Module) -> None:
        """Initialise one layer: here as PyTorch does, in a subclass as its network was published."""
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()  # type: ignore[operator]


def fully_connected(inputs: int, widths: Sequence[int], dropout: float) -> nn.Sequential:
    """Build layers ``fc1, fc2, ...`` with ReLU, and dropout after each of them."""
    check_counts("hidden", widths)
    check_dropout(dropout)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for i, (before, width) in enumerate(pairwise((inputs, *widths)), start=1):
        layers |= {f"fc{i}": nn.Linear(before, width), f"relu{i}": nn.ReLU()}
        layers |= {f"drop{i}": nn.Dropout(dropout)} if dropout else {}
    return nn.Sequential(layers)


def check_counts(name: str, values: Sequence[int]) -> None:
    """Raise unless ``values`` is a sequence of positive whole numbers."""
    is_sequence = isinstance(values, Sequence) and not isinstance(values, str)
    if not (is_sequence and all(isinstance(v, Integral) and not isinstance(v, bool) and v > 0 for v in values)):
        raise OptionError(f"{name} must be a tuple of whole numbers of at least 1, got {values!r}")


def check_dropout(value: float) -> None:
    """Raise unless ``value`` is a probability below one."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value < 1:
        raise OptionError(f"dropout must be at least 0 and below 1, got {value!r}")


def check_images(x: Tensor, channels: int, least: int = 1) -> None:
    """Raise unless ``x`` are float images (b, channels, h, w) of at least ``least`` x ``least`` pixels."""
    if x.ndim != 4 or x.shape[1] != channels:
        hint = "; add the batch with x[None]" if x.ndim == 3 else ""
        raise ShapeError(f"expected images of shape (b, {channels}, h, w), got {tuple(x.shape)}{hint}")
    if min(x.shape[2:]) < least:
        message = f"the network needs images of at least {least} x {least} pixels, got {x.shape[2]} x {x.shape[3]}"
        raise ShapeError(f"{message}; enlarge them or use a network for small images")
    check_floats(x)


def check_floats(x: Tensor) -> None:
    """Raise unless ``x`` has real floating-point elements."""
    if not x.is_floating_point():
        raise DTypeError(f"expected floating-point inputs, got {x.dtype}; convert them with x.float()")
