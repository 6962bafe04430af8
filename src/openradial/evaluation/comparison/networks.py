"""One network per way of training, made by the project's loop and kept, so that a stopped comparison goes on."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from openradial import models
from openradial.data.batches import Batches
from openradial.errors import TrainingError
from openradial.evaluation.comparison.protocols import Protocol
from openradial.files import write_text
from openradial.heads import CACHead, DOCHead, Head, RadialHead, SoftmaxHead
from openradial.nn import hidden_layers
from openradial.training import Objective, Settings, fit
from openradial.training.outliers import DEFAULTS, OutlierObjective

PLACES = {  # what scorers look at besides the outputs, by network
    "mnist_radial": {"fully connected": "fc2:input", "convolution": "fc1:input"},
    "mlp": {"fully connected": "hidden.fc2:input"},
}
CHUNK = 1024
SECONDS = "core_seconds.txt"


@dataclass(frozen=True)
class Training:
    """How the networks of a comparison are made."""

    model: str
    options: Mapping[str, Any]
    settings: Settings

    @property
    def places(self) -> dict[str, str]:
        """Names of hidden layers and where they are found."""
        return PLACES.get(self.model, {}) | {"last hidden": "classifier:input"}


@dataclass(frozen=True)
class Network:
    """A way of training: a head with its loss, kinds of outliers if any, and settings that differ from the usual."""

    head: Callable[[int], Head]
    outliers: tuple[str, ...] = ()
    weight: float = 0.3
    settings: Mapping[str, Any] = field(default_factory=dict)

    def objective(self, num_classes: int) -> Objective | OutlierObjective:
        loss = self.head(num_classes).loss
        return OutlierObjective(loss, self.outliers, self.weight) if self.outliers else Objective(loss)


def squared(num_classes: int) -> RadialHead:
    return RadialHead(num_classes, loss="squared")


NETWORKS: dict[str, Network] = {
    "softmax": Network(SoftmaxHead),
    "DOC": Network(DOCHead),
    "CAC": Network(CACHead),
    "radial": Network(RadialHead),
    "radial, squared": Network(squared),
    "radial, squared, outliers": Network(squared, DEFAULTS["images"]),
}


def trained(
    network: Network, protocol: Protocol, training: Training, seed: int, folder: Path, show: bool = True
) -> nn.Module:
    """The network of a way of training for a seed: trained, or read from ``folder`` where it was trained before."""
    torch.manual_seed(seed)
    net = models.build(training.model, protocol.num_classes, **training.options)
    settings = replace(training.settings, seed=seed, **network.settings)
    batches = Batches(protocol.train, settings.batch_size, shuffle=True, seed=seed, transform=protocol.normalise)
    objective = network.objective(protocol.num_classes)
    before, began = core_seconds(folder), time.process_time()
    history = fit(net, objective, batches, settings=settings, folder=folder, resume=True, show_progress=show)
    write_text(folder / SECONDS, f"{before + time.process_time() - began:.3f}\n")
    if not history.finished:
        raise TrainingError(f"stopped by {history.stopped_by}; the same command with --resume goes on")
    return net.eval()


def core_seconds(folder: Path) -> float:
    """How long the training of a network took, in seconds of all cores together: whatever else they had to do."""
    return float((folder / SECONDS).read_text()) if (folder / SECONDS).exists() else 0.0


@torch.no_grad()
def layers_of(net: nn.Module, inputs: Tensor, protocol: Protocol, places: Mapping[str, str]) -> dict[str, Tensor]:
    """Outputs and hidden layers of many inputs, by name; ``(n, ...) -> (n, d)`` each."""
    parts = []
    generator = torch.Generator()
    for start in range(0, len(inputs), CHUNK):
        x = protocol.normalise(inputs[start : start + CHUNK], generator)
        parts.append(hidden_layers(net, x, ["outputs", *places.values()]))
    names = {"outputs": "outputs", **places}
    return {name: torch.cat([part[place] for part in parts]).clone() for name, place in names.items()}
