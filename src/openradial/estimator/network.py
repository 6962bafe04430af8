"""A network for a table of numbers: made, trained by the one loop, asked for outputs."""

import copy
import math
import signal as signals
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from openradial.data.batches import Batches
from openradial.data.examples import Examples
from openradial.errors import OptionError, ShapeError, TrainingError, check_choice
from openradial.models import MLP
from openradial.training import Devices, History, Objective, Settings, fit
from openradial.training.outliers import DEFAULTS, OutlierObjective

DEVICES = ("cpu", "cuda", "mps")
ROWS = 1024  # at a time, where outputs are asked for

DRAWING = threading.Lock()

Factory = Callable[[int, int], nn.Module]


def make_network(module: nn.Module | Factory | None, hidden: Sequence[int], features: int, classes: int) -> nn.Module:
    """A copy of the given network, what the factory makes, or hidden layers of the given widths."""
    if module is None:
        return MLP(classes, inputs=features, hidden=hidden)
    if isinstance(module, nn.Module):
        return copy.deepcopy(module)
    if not callable(module):
        raise OptionError(
            f"module must be None, an nn.Module or a function (num_features, num_classes) -> nn.Module, got {module!r}"
        )
    _check_takes_two(module)
    made: object = module(features, classes)
    if not isinstance(made, nn.Module):
        raise OptionError(f"module must return an nn.Module, it returned a {type(made).__name__}")
    return made


def _check_takes_two(factory: Factory) -> None:
    try:
        signature(factory).bind("num_features", "num_classes")
    except TypeError as error:
        raise OptionError(
            f"module must be a function (num_features, num_classes) -> nn.Module, but it cannot be called with two "
            f"numbers: {error}"
        ) from error
    except ValueError:  # some compiled functions do not say what they take
        pass


@torch.no_grad()
def check_network(net: nn.Module, x: Tensor, classes: int) -> None:
    """Raise unless the network has something to train, takes these rows and gives one output per class."""
    if not any(parameter.requires_grad for parameter in net.parameters()):
        raise OptionError("module must have at least one parameter to train, got none that requires a gradient")
    try:
        o: Any = net.eval()(x)
    except Exception as error:  # a network of the user's may fail with anything
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


def make_objective(loss: nn.Module, outliers: float) -> Objective | OutlierObjective:
    """The loss of the rows; and of outliers made from them, if these have a weight."""
    if not isinstance(outliers, Real) or isinstance(outliers, bool) or not 0 <= outliers < math.inf:
        raise OptionError(f"outliers must be a finite number of at least 0, got {outliers!r}; 0 makes none")
    return OutlierObjective(loss, DEFAULTS["table"], float(outliers)) if outliers else Objective(loss)


def train(
    net: nn.Module,
    objective: Objective | OutlierObjective,
    known: Examples,
    watched: Examples | None,
    settings: Settings,
    *,
    device: str,
    show_progress: bool,
) -> History:
    """Train in place; a signal that stops the training is passed on when everything is in order again."""
    size = settings.batch_size
    history = fit(
        net,
        objective,
        Batches(known, size, shuffle=True, seed=settings.seed),
        Batches(watched, size) if watched is not None else None,
        settings=settings,
        devices=Devices(settings, accelerator=device, devices=1),
        show_progress=show_progress,
    )
    net.cpu().eval()
    if history.stopped_by is not None:
        signals.raise_signal(signals.Signals[history.stopped_by])
        raise TrainingError(f"training was stopped by {history.stopped_by} before its end; fit again")
    return history


class Answering:
    """A trained network on the device and in the precision that it answers with.

    Our own networks answer in float64 where the device has it: in float32 the sums in a layer depend on how many rows
    are asked at once, by as much as the distance of a row close to its prototype.
    """

    def __init__(self, net: nn.Module, device: str) -> None:
        self.device, self.dtype = device, torch.float32
        if isinstance(net, MLP) and device == "cpu":
            self.dtype = torch.float64
        is_as_kept = self.dtype == torch.float32 and device == "cpu"  # to be loaded anywhere
        self.net = net if is_as_kept else copy.deepcopy(net).to(device, self.dtype)

    def parts(self, x: Tensor) -> list[Tensor]:
        """The rows as the network takes them, so many at a time, ``(n, d) -> (b, d)`` each."""
        return [rows.to(self.device, self.dtype) for rows in torch.split(x, ROWS)]

    @torch.no_grad()
    def outputs(self, x: Tensor) -> Tensor:
        """Outputs of all rows on the CPU, ``(n, d) -> (n, k)``."""
        return torch.cat([self.net(rows).cpu() for rows in self.parts(x)])


@contextmanager
def own_random_numbers(device: str) -> Iterator[None]:
    """Leave torch's random numbers as they were. All threads share them, so only one may draw at a time."""
    check_choice("device", device, DEVICES)
    with DRAWING, torch.random.fork_rng(devices=[0] if device == "cuda" and torch.cuda.is_available() else []):
        yield
