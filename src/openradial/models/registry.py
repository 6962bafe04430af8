"""Networks by name."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from torch import nn

from openradial.errors import OptionError, check_count
from openradial.models.alexnet import AlexNet
from openradial.models.efficientnet import EfficientNetLite0
from openradial.models.factories import call_factory, import_factory
from openradial.models.mlp import MLP
from openradial.models.mnist import MnistCNN
from openradial.models.pretrained import imagenet_weights
from openradial.models.recurrent import SequenceClassifier
from openradial.models.resnet import ResNet
from openradial.models.text import TextCNN, TextRNN
from openradial.models.vgg import VGG19
from openradial.models.weights import Reset, load_state, load_weights


@dataclass(frozen=True)
class Entry:
    """A network class with settings that its name stands for, and others that are only a start."""

    network: Callable[..., nn.Module]
    fixed: Mapping[str, object] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)

    def options(self) -> dict[str, object]:
        """What may be set, with its default; ``inspect.Parameter.empty`` for what must be."""
        parameters = list(inspect.signature(self.network).parameters.values())[1:]
        return {p.name: p.default for p in parameters if p.name not in self.fixed} | dict(self.defaults)

    def build(self, num_classes: int, options: Mapping[str, object]) -> nn.Module:
        return self.network(num_classes, **{**self.fixed, **self.defaults, **options})


NETWORKS: Mapping[str, Entry] = {
    "spiral_softmax": Entry(MLP, fixed={"inputs": 2, "hidden": (50, 50, 2), "dropout": 0.0}),
    "spiral_radial": Entry(MLP, fixed={"inputs": 2, "hidden": (50, 50, 50), "dropout": 0.0}),
    "mlp": Entry(MLP),
    "mnist_softmax": Entry(MnistCNN, fixed={"dropout": 0.0}),
    "mnist_radial": Entry(MnistCNN, fixed={"dropout": 0.0}),
    "mnist_radial_dropout": Entry(MnistCNN, defaults={"dropout": 0.5}),
    "alexnet": Entry(AlexNet),
    "vgg19_bn": Entry(VGG19),
    "vgg19_bn_fc8192": Entry(VGG19, fixed={"hidden": (8192, 8192), "dropout": 0.0, "pool": 7, "width": 1.0}),
    "vgg19_bn_small": Entry(VGG19, defaults={"hidden": (512, 512), "dropout": 0.0, "pool": 1, "width": 0.5}),
    "resnet18": Entry(ResNet, fixed={"depth": 18}),
    "resnet34": Entry(ResNet, fixed={"depth": 34}),
    "resnet50": Entry(ResNet, fixed={"depth": 50}),
    "efficientnet_lite0": Entry(EfficientNetLite0),
    "gru": Entry(SequenceClassifier, fixed={"cell": "gru"}),
    "lstm": Entry(SequenceClassifier, fixed={"cell": "lstm"}),
    "text_gru": Entry(TextRNN, fixed={"cell": "gru"}),
    "text_lstm": Entry(TextRNN, fixed={"cell": "lstm"}),
    "text_cnn": Entry(TextCNN),
}


def names() -> list[str]:
    """Names of all networks that :func:`build` knows.

    >>> names()[:3]
    ['spiral_softmax', 'spiral_radial', 'mlp']
    """
    return list(NETWORKS)


def options(name: str) -> dict[str, object]:
    """Settings of a network and their defaults; ``inspect.Parameter.empty`` for what must be given.

    >>> options("mnist_radial_dropout")
    {'channels': 1, 'size': 28, 'dropout': 0.5}
    """
    return _entry(name).options()


def build(
    name: str,
    num_classes: int,
    *,
    weights: Path | str | None = None,
    reset: Reset = "fully_connected",
    **options: object,
) -> nn.Module:
    """A network by its name, or any other as ``"package.module:factory"``, which is called with ``num_classes``.

    ``num_classes`` is the number of outputs: one less than the number of classes with simplex prototypes. ``options``
    are those of the network, see :func:`options`.

    Args:
        weights: a safetensors or PyTorch file, or ``"imagenet"`` for published weights (EfficientNet-Lite0, ResNet-50).
        reset: layers that start anew in spite of ``weights``: as in the paper all that are fully connected, or
            ``"classifier"``, the last one, or ``"none"``. See :func:`load_weights`.

    >>> build("mnist_radial", 10).classifier
    Linear(in_features=100, out_features=10, bias=True)
    """
    check_count("num_classes", num_classes)
    if weights == "imagenet":
        return _build_pretrained(name, num_classes, reset, options)
    model = _build(name, num_classes, options)
    return model if weights is None else load_weights(model, weights, reset=reset)


def _build(name: str, num_classes: int, options: Mapping[str, object]) -> nn.Module:
    if ":" in name:
        return call_factory(import_factory(name), name, num_classes, options)
    entry = _entry(name)
    _check_options(name, entry.options(), options)
    return entry.build(num_classes, options)


def _build_pretrained(name: str, num_classes: int, reset: Reset, options: Mapping[str, object]) -> nn.Module:
    weights = imagenet_weights(name)
    for option, needed in weights.options.items():
        if options.get(option, needed) != needed:
            raise OptionError(f"the ImageNet weights of {name} need {option}={needed!r}, got {options[option]!r}")
    model = _build(name, num_classes, {**options, **weights.options})
    return load_state(model, weights.state(), reset=reset, origin=weights.source.title)


def _entry(name: str) -> Entry:
    if name not in NETWORKS:
        raise OptionError(f"there is no network {name!r}{_nearest(name, NETWORKS)}; or give package.module:factory")
    return NETWORKS[name]


def _check_options(name: str, known: Mapping[str, object], given: Mapping[str, object]) -> None:
    for option in given:
        if option not in known:
            raise OptionError(f"the network {name!r} has no option {option!r}{_nearest(option, known)}")
    missing = [option for option, value in known.items() if value is inspect.Parameter.empty and option not in given]
    if missing:
        raise OptionError(
            f"the network {name!r} needs the option {missing[0]!r}; call build({name!r}, ..., {missing[0]}=...)"
        )


def _nearest(name: str, known: Iterable[str]) -> str:
    known = list(known)
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    meant = f"; did you mean {' or '.join(map(repr, near))}" if near else ""
    return meant or f"; known are {', '.join(known) or 'none'}"
