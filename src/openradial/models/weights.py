"""Put weights from a file into a network; anything that does not fit is named before a single number is copied."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from openradial.errors import WeightsError, check_choice
from openradial.models.contract import Network
from openradial.models.files import State, read_state

Reset = Literal["none", "classifier", "fully_connected"]
SHOWN = 4  # names in a message


def load_weights(model: nn.Module, path: Path | str, *, reset: Reset = "none") -> nn.Module:
    """Fill ``model`` with the weights of a safetensors or PyTorch file, in place, and return it.

    Names of torchvision are translated for our AlexNet, VGG and ResNet, and prefixes of ``DataParallel`` and
    ``torch.compile`` are taken off. PyTorch files are read with ``weights_only=True``: they cannot run code. After a
    :class:`~openradial.errors.WeightsError` the model is as it was.

    Args:
        reset: layers that start anew whatever the file says: ``"none"``, the last affine layer (``"classifier"``), or
            all affine layers (``"fully_connected"``), which is what the paper calls pre-trained.
    """
    return load_state(model, read_state(path), reset=reset, origin=str(path))


def load_state(model: nn.Module, state: Mapping[str, Tensor], *, reset: Reset = "none", origin: str) -> nn.Module:
    """Fill ``model`` with tensors by name; ``origin`` says in messages where they come from."""
    check_choice("reset", reset, ("none", "classifier", "fully_connected"))
    fresh = _fresh_layers(model, reset)
    own = {name: value for name, value in model.state_dict().items() if _layer(name) not in fresh}
    given = {name: value for name, value in _translated(model, state).items() if _layer(name) not in fresh}
    if reset == "fully_connected":
        given = {name: value for name, value in given.items() if name in own or not _is_affine(name, given)}
    if not own:
        raise WeightsError(
            f"nothing of {origin} would be used: all layers of {type(model).__name__} are fully connected and start "
            "anew; use reset='classifier' or 'none'"
        )
    _check_names(own, given, origin)
    _check_values(own, given, origin)
    with torch.no_grad():
        for name, value in given.items():
            own[name].copy_(value)
    for layer in fresh.values():
        _start_anew(model, layer)
    return model


def _fresh_layers(model: nn.Module, reset: Reset) -> dict[str, nn.Module]:
    affine: dict[str, nn.Module] = {
        name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Linear)
    }
    if reset == "classifier" and "classifier" not in affine:
        raise WeightsError(
            f"reset='classifier' needs an affine layer of this name, and {type(model).__name__} has none; its affine "
            f"layers are {_listed(affine)}; name the last one classifier or use reset='fully_connected'"
        )
    kept = {"none": (), "classifier": ("classifier",), "fully_connected": tuple(affine)}[reset]
    return {name: affine[name] for name in kept}


def _translated(model: nn.Module, state: Mapping[str, Tensor]) -> State:
    pairs = model.foreign_names if isinstance(model, Network) else ()
    return {_translate(name, pairs): value for name, value in state.items()}


def _translate(name: str, pairs: Iterable[tuple[str, str]]) -> str:
    for pattern, replacement in pairs:
        if re.match(pattern, name):
            return re.sub(pattern, replacement, name)
    return name


def _check_names(own: State, given: State, origin: str) -> None:
    # Files from before 2018 do not count the batches; evaluation does not need the number.
    missing = [name for name in own if name not in given and not name.endswith(".num_batches_tracked")]
    unknown = [name for name in given if name not in own]
    if not missing and not unknown:
        return
    parts = [f"it lacks {_listed(missing)}"] if missing else []
    parts += [f"it has {_listed(unknown)}, which the network does not know"] if unknown else []
    raise WeightsError(
        f"{origin} does not fit the network: {' and '.join(parts)}; build the network that the file was saved from, or "
        "leave layers out with reset='classifier' or 'fully_connected'"
    )


def _check_values(own: State, given: State, origin: str) -> None:
    wrong = [
        f"{name} should have the shape {tuple(own[name].shape)} and has {tuple(value.shape)}"
        for name, value in given.items()
        if own[name].shape != value.shape
    ]
    if wrong:
        raise WeightsError(
            f"{origin} does not fit the network: {_listed(wrong, '; ')}; build the network with the settings of the "
            "file, or leave layers out with reset='classifier' or 'fully_connected'"
        )
    for name, value in given.items():
        if own[name].is_floating_point() and not (value.is_floating_point() and bool(value.isfinite().all())):
            raise WeightsError(
                f"{origin} does not fit the network: {name} should hold finite floating-point numbers and holds "
                f"{'NaN or infinity' if value.is_floating_point() else value.dtype}; take another file"
            )


def _start_anew(model: nn.Module, layer: nn.Module) -> None:
    if isinstance(model, Network):
        model.initialise(layer)
    else:
        assert isinstance(layer, nn.Linear)
        layer.reset_parameters()


def _is_affine(name: str, state: State) -> bool:
    weight = state.get(f"{_layer(name)}.weight")
    return weight is not None and weight.ndim == 2


def _layer(name: str) -> str:
    return name.rpartition(".")[0]


def _listed(names: Iterable[str], joint: str = ", ") -> str:
    names = list(names)
    more = f"{joint}and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (joint.join(names[:SHOWN]) or "none") + more
