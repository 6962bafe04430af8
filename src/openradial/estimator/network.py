"""The network of an estimator: built, checked, copied for predictions."""

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from openradial.errors import OptionError, ShapeError, check_choice
from openradial.models import MLP

DRAWING = threading.Lock()
Factory = Callable[[int, int], nn.Module]


def make_network(module: nn.Module | Factory | None, hidden: Sequence[int], x: Tensor, classes: int) -> nn.Module:
    """Return a copy of the given network, what the factory makes, or hidden layers; ``x`` are two rows to try it."""
    if module is None:
        net: object = MLP(classes, inputs=x.shape[1], hidden=hidden)
    elif isinstance(module, nn.Module):
        net = copy.deepcopy(module)
    elif callable(module):
        try:
            signature(module).bind("num_features", "num_classes")
        except TypeError as error:
            raise OptionError(
                "module must be a function (num_features, num_classes) -> nn.Module, but it cannot be called with two "
                f"numbers: {error}"
            ) from error
        except ValueError:  # some compiled functions do not say what they take
            pass
        net = module(x.shape[1], classes)
    else:
        raise OptionError(
            f"module must be None, an nn.Module or a function (num_features, num_classes) -> nn.Module, got {module!r}"
        )
    if not isinstance(net, nn.Module):
        raise OptionError(f"module must return an nn.Module, it returned a {type(net).__name__}")
    _check_network(net, x, classes)
    return net


@torch.no_grad()
def _check_network(net: nn.Module, x: Tensor, classes: int) -> None:
    """Raise unless the network has something to train, takes these rows and gives one output per class."""
    if not any(parameter.requires_grad for parameter in net.parameters()):
        raise OptionError("module must have at least one parameter to train, got none that requires a gradient")
    try:
        o: Any = net.eval()(x)
    except Exception as error:  # a user's network may raise anything
        raise ShapeError(
            f"module must take rows of shape (b, {x.shape[1]}) and give outputs of shape (b, {classes}), "
            f"but for b = {len(x)} it failed: {str(error).strip() or type(error).__name__}"
        ) from error
    if not isinstance(o, Tensor) or o.shape != (len(x), classes):
        got = tuple(o.shape) if isinstance(o, Tensor) else f"a {type(o).__name__}"
        raise ShapeError(
            f"the network must give one output per class, of shape (b, {classes}), got {got} for b = {len(x)}; "
            f"make its last layer {classes} wide"
        )


def inference_copy(net: nn.Module, device: str) -> nn.Module:
    """Return a trained network on the device and in the precision that it predicts with.

    Our own networks predict in float64 where the device has it: in float32 the sums in a layer depend on the number of
    rows in the batch, by as much as the distance of a row close to its prototype.
    """
    dtype = torch.float64 if isinstance(net, MLP) and device == "cpu" else torch.float32
    is_as_stored = dtype == torch.float32 and device == "cpu"
    return (net if is_as_stored else copy.deepcopy(net).to(device, dtype)).eval()


@contextmanager
def private_random_numbers(device: str) -> Iterator[None]:
    """Leave torch's random numbers unchanged. All threads share them, so only one may draw at a time."""
    check_choice("device", device, ("cpu", "cuda", "mps"))
    with DRAWING, torch.random.fork_rng(devices=[0] if device == "cuda" and torch.cuda.is_available() else []):
        yield
