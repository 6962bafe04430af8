"""The networks of a comparison: one per recipe, trained by the training loop and kept, so that a run can be resumed."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from openradial import models
from openradial.data.batches import Batches
from openradial.errors import TrainingError
from openradial.evaluation.comparison.methods import CONVOLUTION, FULLY, LAST, RECIPE
from openradial.evaluation.comparison.protocols import Protocol
from openradial.files import write_text
from openradial.nn import hidden_layers
from openradial.recipe import LAYERS, Recipe
from openradial.training import Settings, fit
from openradial.training.outliers import DEFAULTS

LAYER_NAMES = (FULLY, CONVOLUTION)  # of the layers that the recipe lists for a network
CHUNK = 1024
SECONDS = "core_seconds.txt"


@dataclass(frozen=True)
class NetworkSettings:
    """The architecture and the training settings that all networks of a comparison share."""

    model: str
    options: Mapping[str, Any]
    settings: Settings

    @property
    def layers(self) -> dict[str, str]:
        """The layers that scorers may read, by the name that methods use."""
        prefix = next((start for start in LAYERS if self.model.startswith(start)), None)
        names = [f"{layer}:input" for layer in LAYERS[prefix]] if prefix else []
        return dict(zip(LAYER_NAMES, names, strict=False)) | {LAST: "classifier:input"}


@dataclass(frozen=True)
class Contender:
    """A way to train a network: a recipe, and settings that differ from the shared ones."""

    recipe: Recipe
    settings: Mapping[str, Any] = field(default_factory=dict)


NETWORKS: dict[str, Contender] = {
    "softmax": Contender(Recipe("softmax")),
    "DOC": Contender(Recipe("doc")),
    "CAC": Contender(Recipe("cac")),
    "radial": Contender(Recipe(loss="distance", beta=1.0)),
    "radial, squared": Contender(Recipe(beta=1.0)),
    RECIPE: Contender(Recipe(beta=1.0, outliers=DEFAULTS["images"])),
}


def trained(
    contender: Contender, protocol: Protocol, training: NetworkSettings, seed: int, folder: Path, show: bool = True
) -> nn.Module:
    """Return the network for a seed: trained, or read from ``folder`` if it was trained before."""
    torch.manual_seed(seed)
    net = models.build(training.model, protocol.num_classes, **training.options)
    settings = replace(training.settings, seed=seed, **contender.settings)
    batches = Batches(protocol.train, settings.batch_size, shuffle=True, seed=seed, transform=protocol.normalise)
    objective = contender.recipe.make_objective(contender.recipe.make_head(protocol.num_classes))
    before, began = core_seconds(folder), time.process_time()
    history = fit(net, objective, batches, settings=settings, folder=folder, resume=True, show_progress=show)
    write_text(folder / SECONDS, f"{before + time.process_time() - began:.3f}\n")
    if not history.finished:
        raise TrainingError(f"stopped by {history.stopped_by}; run the same command with --resume")
    return net.eval()


def core_seconds(folder: Path) -> float:
    """Return how long the training of a network took, in CPU seconds of all cores."""
    return float((folder / SECONDS).read_text()) if (folder / SECONDS).exists() else 0.0


@torch.no_grad()
def layers_of(net: nn.Module, inputs: Tensor, protocol: Protocol, layers: Mapping[str, str]) -> dict[str, Tensor]:
    """Return outputs and hidden layers of many inputs by name, ``(n, ...) -> (n, d)`` each."""
    parts = []
    generator = torch.Generator()
    for start in range(0, len(inputs), CHUNK):
        x = protocol.normalise(inputs[start : start + CHUNK], generator)
        parts.append(hidden_layers(net, x, ["outputs", *layers.values()]))
    names = {"outputs": "outputs", **layers}
    return {name: torch.cat([part[layer] for part in parts]).clone() for name, layer in names.items()}
