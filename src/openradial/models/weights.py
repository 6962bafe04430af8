"""Read weights files, never anything that can run code, and load them into networks after checking every tensor."""

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from openradial.errors import WeightsError, check_choice, listed
from openradial.models.contract import Network

Reset = Literal["none", "classifier", "fully_connected"]
State = dict[str, Tensor]
SHOWN = 4  # names in a message
NESTED = ("state_dict", "model_state_dict", "model")  # keys under which training programs store the state
WRAPPERS = ("module.", "_orig_mod.")  # prefixes of DataParallel and torch.compile
CHECKPOINT = ("model.", "average.", "optimiser.", "random.")  # prefixes in a checkpoint of openradial.training


def load_weights(model: nn.Module, path: Path | str, *, reset: Reset = "none") -> nn.Module:
    """Load a safetensors or PyTorch file into ``model``, modify it and return it.

    Names of torchvision are translated as the ``renamed_keys`` of the network say; prefixes of ``DataParallel`` and
    ``torch.compile`` are removed. PyTorch files are read with ``weights_only=True``: they cannot run code. After a
    :class:`~openradial.errors.WeightsError` the model is unchanged.

    Args:
        reset: layers that are initialised again instead of loaded: ``"none"``, the last linear layer
            (``"classifier"``), or all linear layers (``"fully_connected"``), which the paper calls pre-trained.
    """
    return load_state(model, read_state(path), reset=reset, origin=str(path))


def load_state(model: nn.Module, state: Mapping[str, Tensor], *, reset: Reset = "none", origin: str) -> nn.Module:
    """Load tensors by name into ``model``; messages name ``origin`` as their source."""
    check_choice("reset", reset, ("none", "classifier", "fully_connected"))
    fresh = _layers_to_reset(model, reset)
    expected = {name: value for name, value in model.state_dict().items() if _layer(name) not in fresh}
    pairs: Any = getattr(model, "renamed_keys", ())
    given = {
        next((re.sub(old, new, name) for old, new in pairs if re.match(old, name)), name): value
        for name, value in state.items()
    }
    given = {name: value for name, value in given.items() if _layer(name) not in fresh}
    if reset == "fully_connected":
        linear = {_layer(name) for name, value in given.items() if name.endswith(".weight") and value.ndim == 2}
        given = {name: value for name, value in given.items() if name in expected or _layer(name) not in linear}
    if not expected:
        raise WeightsError(
            f"nothing of {origin} would be used: all layers of {type(model).__name__} are fully connected and are "
            "reset; use reset='classifier' or 'none'"
        )
    _check_fit(expected, given, origin)
    with torch.no_grad():
        for name, value in given.items():
            expected[name].copy_(value)
    for layer in fresh.values():
        model.initialise(layer) if isinstance(model, Network) else layer.reset_parameters()
    return model


def read_state(path: Path | str) -> State:
    """Read the tensors of a safetensors or PyTorch file by name; the contents decide which format it is."""
    path = Path(path).expanduser()
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise WeightsError(f"expected a weights file, but {path} {what}; pass a safetensors or PyTorch file")
    with path.open("rb") as file:
        start = file.read(9)
    if not start:
        raise WeightsError(f"{path} is empty; copy or download it again")
    # A safetensors file starts with the length of its header, then a JSON object.
    is_safetensors = path.suffix == ".safetensors" or (len(start) == 9 and start[8:] == b"{")
    loaded = _read_safetensors(path) if is_safetensors else _read_torch(path, start)
    return _unwrapped(_tensors(loaded, path))


def _unwrapped(state: Mapping[str, Tensor]) -> State:
    """Remove the prefixes that wrappers put before every name."""
    state = dict(state)
    if all(name.startswith(CHECKPOINT) for name in state):
        state = {name.removeprefix("model."): value for name, value in state.items() if name.startswith("model.")}
    for prefix in WRAPPERS * 2:  # either may be outside
        if state and all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): value for name, value in state.items()}
    return state


def _read_safetensors(path: Path) -> Any:
    try:
        return load_file(path)
    except (SafetensorError, ValueError, OverflowError) as error:
        raise WeightsError(f"{path} is not a complete safetensors file ({error}); copy or download it again") from error


def _read_torch(path: Path, start: bytes) -> Any:
    if start[:2] != b"PK" and start[:1] != b"\x80":  # a zip archive, or before PyTorch 1.6 a pickle
        raise WeightsError(f"{path} is neither a safetensors nor a PyTorch file; save model.state_dict() as one")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{path} holds more than tensors, and reading that could run code; save model.state_dict() alone"
        ) from error
    except Exception as error:  # a damaged file can raise almost anything
        reason = str(error).partition(". ")[0].partition("\n")[0] or type(error).__name__
        raise WeightsError(f"{path} is not a complete PyTorch file ({reason}); copy or download it again") from error


def _tensors(loaded: Any, path: Path) -> Mapping[str, Tensor]:
    if not isinstance(loaded, Mapping):
        raise WeightsError(f"{path} holds a {type(loaded).__name__}, not names and tensors; save model.state_dict()")
    nested = next((loaded[key] for key in NESTED if isinstance(loaded.get(key), Mapping)), loaded)
    other = [name for name, value in nested.items() if not (isinstance(name, str) and isinstance(value, Tensor))]
    if other or not nested:
        what = f"{other[0]!r} is not a tensor" if other else "it holds none"
        raise WeightsError(f"{path} should hold nothing but tensors by name, but {what}; save model.state_dict()")
    return nested


def _layers_to_reset(model: nn.Module, reset: Reset) -> dict[str, nn.Linear]:
    linear = {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    if reset == "classifier" and "classifier" not in linear:
        raise WeightsError(
            f"reset='classifier' needs a linear layer of this name, and {type(model).__name__} has none; its linear "
            f"layers are {listed(list(linear), SHOWN)}; name the last one classifier or use reset='fully_connected'"
        )
    names = {"none": (), "classifier": ("classifier",), "fully_connected": tuple(linear)}[reset]
    return {name: linear[name] for name in names}


def _check_fit(expected: State, given: State, origin: str) -> None:
    """Raise unless the given tensors have the names and shapes of the expected ones, and finite values."""
    # Files from before 2018 do not count the batches; evaluation does not need the number.
    missing = [name for name in expected if name not in given and not name.endswith(".num_batches_tracked")]
    unknown = [name for name in given if name not in expected]
    problems = [f"it lacks {listed(missing, SHOWN)}"] if missing else []
    problems += [f"it has {listed(unknown, SHOWN)}, which the network does not have"] if unknown else []
    wrong = [name for name in expected if name in given and expected[name].shape != given[name].shape]
    for name in wrong[:SHOWN]:
        wanted, shape = tuple(expected[name].shape), tuple(given[name].shape)
        problems.append(f"{name} should have the shape {wanted} and has {shape}")
    if problems:
        raise WeightsError(
            f"{origin} does not fit the network: {'; '.join(problems)}; build the network that the file was saved "
            "from, or leave layers out with reset='classifier' or 'fully_connected'"
        )
    for name, value in given.items():
        if expected[name].is_floating_point() and not (value.is_floating_point() and bool(value.isfinite().all())):
            raise WeightsError(
                f"{origin} does not fit the network: {name} should hold finite floating-point numbers and holds "
                f"{'NaN or infinity' if value.is_floating_point() else value.dtype}; use another file"
            )


def _layer(name: str) -> str:
    return name.rpartition(".")[0]
