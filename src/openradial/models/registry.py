"""Networks by name, and your own as ``"package.module:factory"``."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from openradial.errors import OptionError, check_count, nearest
from openradial.models.fast_cnn import FastCNN
from openradial.models.features import Features
from openradial.models.imagenet import EfficientNetLite, MobileNetV2, ResNet
from openradial.models.paper import MLP, MnistCNN
from openradial.models.pretrained import imagenet_weights
from openradial.models.sequences import SequenceClassifier, TextCNN
from openradial.models.weights import Reset, load_state, load_weights


@dataclass(frozen=True)
class Entry:
    """A network class, with the options that its name fixes and other defaults."""

    network: Callable[..., nn.Module]
    fixed: Mapping[str, object] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)


NETWORKS: Mapping[str, Entry] = {
    "spiral_softmax": Entry(MLP, fixed={"inputs": 2, "hidden": (50, 50, 2), "dropout": 0.0}),
    "spiral_radial": Entry(MLP, fixed={"inputs": 2, "hidden": (50, 50, 50), "dropout": 0.0}),
    "mlp": Entry(MLP),
    "mnist_softmax": Entry(MnistCNN, fixed={"dropout": 0.0}),
    "mnist_radial": Entry(MnistCNN, fixed={"dropout": 0.0}),
    "mnist_radial_dropout": Entry(MnistCNN, defaults={"dropout": 0.5}),
    "fast_cnn": Entry(FastCNN),
    "resnet18": Entry(ResNet, fixed={"depth": 18}),
    "resnet34": Entry(ResNet, fixed={"depth": 34}),
    "resnet50": Entry(ResNet, fixed={"depth": 50}),
    "efficientnet_lite0": Entry(EfficientNetLite, fixed={"width": 1.0, "depth": 1.0}),
    "efficientnet_lite1": Entry(EfficientNetLite, fixed={"width": 1.0, "depth": 1.1}),
    "efficientnet_lite2": Entry(EfficientNetLite, fixed={"width": 1.1, "depth": 1.2}, defaults={"dropout": 0.3}),
    "mobilenetv2": Entry(MobileNetV2, fixed={"width": 1.0, "depth": 1.0}),
    "gru": Entry(SequenceClassifier, fixed={"cell": "gru"}),
    "lstm": Entry(SequenceClassifier, fixed={"cell": "lstm"}),
    "text_cnn": Entry(TextCNN),
    "features": Entry(Features),
}


def names() -> list[str]:
    """Return the names of all networks that :func:`build` knows.

    >>> names()[:3]
    ['spiral_softmax', 'spiral_radial', 'mlp']
    """
    return list(NETWORKS)


def options(name: str) -> dict[str, object]:
    """Return the options of a network with their defaults; a required one has ``inspect.Parameter.empty``.

    >>> options("mnist_radial_dropout")
    {'channels': 1, 'size': 28, 'dropout': 0.5}
    """
    entry = _entry(name)
    parameters = list(inspect.signature(entry.network).parameters.values())[1:]
    return {p.name: p.default for p in parameters if p.name not in entry.fixed} | dict(entry.defaults)


def build(
    name: str,
    num_classes: int,
    *,
    weights: Path | str | None = None,
    reset: Reset = "fully_connected",
    **options: object,
) -> nn.Module:
    """Build a network by its name, or your own as ``"package.module:factory"``, called with ``num_classes``.

    ``num_classes`` is the number of outputs: one less than the number of classes with simplex prototypes. ``options``
    are those of the network, see :func:`options`.

    Args:
        weights: a safetensors or PyTorch file, or ``"imagenet"`` for published weights, see :func:`imagenet_weights`.
        reset: layers that are initialised again despite ``weights``: as in the paper all fully connected ones, or
            ``"classifier"``, the last one, or ``"none"``. See :func:`load_weights`.

    >>> build("mnist_radial", 10).classifier
    Linear(in_features=100, out_features=10, bias=True)
    """
    check_count("num_classes", num_classes)
    if weights != "imagenet":
        model = _build(name, num_classes, options)
        return model if weights is None else load_weights(model, weights, reset=reset)
    published = imagenet_weights(name)
    for option, needed in published.options.items():
        if options.get(option, needed) != needed:
            raise OptionError(f"the ImageNet weights of {name} need {option}={needed!r}, got {options[option]!r}")
    model = _build(name, num_classes, {**options, **published.options})
    return load_state(model, published.state(), reset=reset, origin=published.source.title)


def _build(name: str, num_classes: int, options: Mapping[str, object]) -> nn.Module:
    if ":" in name:
        return _call_factory(import_factory(name), name, num_classes, options)
    entry = _entry(name)
    for option, value in checked_options(name, options).items():
        if value is inspect.Parameter.empty and option not in options:
            call = f"build({name!r}, ..., {option}=...)"
            raise OptionError(f"the network {name!r} needs the option {option!r}; call {call}")
    return entry.network(num_classes, **{**entry.fixed, **entry.defaults, **options})


def checked_options(name: str, given: Iterable[str]) -> dict[str, object]:
    """Return the options of a network with their defaults; raise for a given one that it does not have."""
    known = options(name)
    for option in given:
        if option not in known:
            hint = nearest(option, list(known)) or f"; its options are: {', '.join(known) or 'none'}"
            raise OptionError(f"the network {name!r} has no option {option!r}{hint}")
    return known


def _entry(name: str) -> Entry:
    if name not in NETWORKS:
        hint = nearest(name, names()) or f"; the networks are: {', '.join(NETWORKS)}"
        raise OptionError(f"there is no network {name!r}{hint}; your own is named package.module:factory")
    return NETWORKS[name]


def import_factory(name: str) -> Callable[..., Any]:
    """Return the function or class that ``"package.module:factory"`` names."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise OptionError(f"expected a factory as package.module:factory, got {name!r}")
    module = _import(module_name)
    try:
        factory = attrgetter(attribute)(module)
    except AttributeError as error:
        public = sorted(n for n, value in vars(module).items() if callable(value) and not n.startswith("_"))
        raise OptionError(
            f"{module_name!r} has no {attribute!r}; it has: {', '.join(public) or 'nothing callable'}"
        ) from error
    if not callable(factory):
        kind = type(factory).__name__
        raise OptionError(f"expected {name!r} to be a function or class that returns a network, got a value of {kind}")
    return factory  # type: ignore[no-any-return]


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError as error:
        reason = f"{name!r} cannot be imported: {error}"
        if isinstance(error, ModuleNotFoundError):
            reason += "; install what it needs"
            if f"{name}.".startswith(f"{error.name}."):
                reason = f"there is no module {name!r}; install its package, or add its folder to PYTHONPATH"
        raise OptionError(reason) from error
    except TypeError as error:  # a relative name
        raise OptionError(f"expected a factory as package.module:factory, got {name!r} for the module") from error


def _call_factory(factory: Callable[..., Any], name: str, num_classes: int, options: Mapping[str, object]) -> nn.Module:
    """Call a factory with ``num_classes`` (the first argument, whatever its name) and options."""
    arguments: tuple[object, ...] = ()
    keywords: dict[str, object] = {"num_classes": num_classes, **options}
    try:
        signature = inspect.signature(factory)
    except ValueError:  # a function written in C may have none
        pass
    else:
        if not any(p.name == "num_classes" or p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
            arguments, keywords = (num_classes,), dict(options)
        try:
            signature.bind(*arguments, **keywords)
        except TypeError as error:
            raise OptionError(f"{name!r} cannot be called with these options: {error}; it takes {signature}") from error
    model = factory(*arguments, **keywords)
    if not isinstance(model, nn.Module):
        raise OptionError(f"expected {name!r} to return an nn.Module, it returned a {type(model).__name__}")
    return model
