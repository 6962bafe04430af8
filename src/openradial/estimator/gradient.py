"""An estimator with a network that is trained: built, checked, trained, and copied for predictions."""

import copy
import signal as signals
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.utils.class_weight import compute_class_weight  # type: ignore[import-untyped]
from torch import Tensor, nn

from openradial.classifier import OpenClassifier
from openradial.data.batches import Batches
from openradial.data.examples import Examples
from openradial.errors import OptionError, ShapeError, TrainingError, check_choice
from openradial.estimator.rows import as_rows, fit_scaler, scaled
from openradial.heads import RadialHead
from openradial.models import MLP
from openradial.recipe import Recipe, hidden_layer_names
from openradial.training import DEFAULTS, Devices, Settings, fit

if TYPE_CHECKING:
    from openradial.estimator.classifier import RadialClassifier


DRAWING = threading.Lock()
Factory = Callable[[int, int], nn.Module]


def make_settings(
    estimator: "RadialClassifier", epochs: int, schedule: str = "constant", patience: int | None = None
) -> Settings:
    """Return the settings of a training."""
    values = {name: getattr(estimator, name) for name in ("batch_size", "optimiser", "learning_rate", "weight_decay")}
    values |= {"epochs": epochs, "schedule": schedule, "patience": patience, "seed": estimator._seed}
    # a search over parameters gives NumPy's numbers
    return Settings(**{name: v.item() if isinstance(v, np.generic) else v for name, v in values.items()})


def make_recipe(estimator: "RadialClassifier", net: nn.Module, has_neighbours: bool) -> Recipe:
    """Return what the parameters ask for, with neighbours in the first hidden layer if the network has one."""
    options: dict[str, Any] = {"loss": estimator.loss, "scale": estimator.scale, "beta": estimator.beta}
    if isinstance(estimator.class_weight, str):
        options["class_weight"] = estimator.class_weight
    if has_neighbours and isinstance(net, MLP) and len(net.hidden):
        options["layers"] = hidden_layer_names(net, "mlp")
        if hasattr(estimator, "classifier_") and estimator.classifier_.layers and not hasattr(estimator, "_seen"):
            message = "neighbours are searched among the training rows, which a bundle does not hold"
            raise OptionError(f"{message}; fit again, or call set_params(neighbours=False) first")
    return Recipe(outliers=DEFAULTS["table"], outlier_weight=estimator.outliers, **options)


def train_rows(estimator: "RadialClassifier", known: Examples, validation: Examples | None, settings: Settings) -> None:
    """Train the network of an estimator, or a new one, and set what follows from it."""
    with private_random_numbers(estimator.device):
        torch.manual_seed(settings.seed)
        network = estimator.network_ if hasattr(estimator, "network_") else _new_network(estimator, known)
        recipe, head = estimator._recipe(network), estimator.head_
        estimator.classifier_ = OpenClassifier(network, head)  # an earlier calibration no longer holds
        known = scaled(known, estimator.scaler_)
        weight, classes = None, estimator.classes_
        if (rule := estimator.class_weight) is not None:
            given = "balanced" if isinstance(rule, str) else rule
            weight = compute_class_weight(given, classes=classes, y=classes[known.labels.numpy()])
            weight = torch.tensor(weight ** (0.5 if rule == "sqrt" else 1.0)).float()
        history = fit(
            network,
            recipe.make_objective(head, weight),
            Batches(known, settings.batch_size, shuffle=True, seed=settings.seed),
            None if validation is None else Batches(scaled(validation, estimator.scaler_), settings.batch_size),
            settings=settings,
            devices=Devices(settings, accelerator=estimator.device, devices=1),
            show_progress=bool(estimator.verbose),
        )
        network.cpu().eval()
        if history.stopped_by is not None:  # by a signal, which is raised again
            signals.raise_signal(signals.Signals[history.stopped_by])
            raise TrainingError(f"training was stopped by {history.stopped_by} before its end; fit again")
    estimator.history_ += history.records
    estimator.network_ = network
    estimator.classifier_ = OpenClassifier(inference_copy(network, estimator.device), head)
    estimator._remember(recipe, known.inputs)


def _new_network(estimator: "RadialClassifier", known: Examples) -> nn.Module:
    """Return a network with its initial weights; set the scaler and the head that belong to it."""
    k, X = len(estimator.classes_), known.inputs.numpy()
    estimator.scaler_ = fit_scaler(X) if estimator.standardise else None
    network = make_network(estimator.module, estimator.hidden, as_rows(X[:2], estimator.scaler_), k)
    head = estimator._recipe(network).make_head(k)
    assert isinstance(head, RadialHead)
    estimator.head_ = head
    return network


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
        message = f"the network must give one output per class, of shape (b, {classes}), got {got} for b = {len(x)}"
        raise ShapeError(f"{message}; make its last layer {classes} wide")


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
