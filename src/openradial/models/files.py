"""Read weights from safetensors and PyTorch files, never anything that can run code."""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from openradial.errors import WeightsError

State = dict[str, Tensor]
NESTED = ("state_dict", "model_state_dict", "model")  # where training programs keep the state inside a checkpoint
WRAPPED = ("module.", "_orig_mod.")  # what DataParallel and torch.compile put before each name
CHECKPOINT = ("model.", "average.", "optimiser.", "random.")  # what the names in a checkpoint of training begin with


def read_state(path: Path | str) -> State:
    """The tensors of a safetensors or PyTorch file, by name; the format is told by the contents."""
    path = Path(path).expanduser()
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise WeightsError(f"expected a weights file, but {path} {what}; pass a safetensors or PyTorch file")
    if path.stat().st_size == 0:
        raise WeightsError(f"{path} is empty; copy or download it again")
    loaded = _read_safetensors(path) if _is_safetensors(path) else _read_torch(path)
    return unwrapped(_tensors(loaded, path))


def unwrapped(state: Mapping[str, Tensor]) -> State:
    """The state without the prefixes that wrappers put before every name."""
    state = dict(state)
    if all(name.startswith(CHECKPOINT) for name in state):  # one of ours: the weights beside what training needs
        state = {name.removeprefix("model."): value for name, value in state.items() if name.startswith("model.")}
    for prefix in WRAPPED * 2:  # either may be outside
        if state and all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): value for name, value in state.items()}
    return state


def _is_safetensors(path: Path) -> bool:
    """Whether the file starts like one: the length of its header, then a JSON object."""
    with path.open("rb") as file:
        start = file.read(9)
    return path.suffix == ".safetensors" or (len(start) == 9 and start[8:] == b"{")


def _read_safetensors(path: Path) -> Any:
    try:
        return load_file(path)
    except (SafetensorError, ValueError, OverflowError) as error:
        raise WeightsError(f"{path} is no whole safetensors file ({error}); copy or download it again") from error


def _read_torch(path: Path) -> Any:
    with path.open("rb") as file:
        start = file.read(2)
    if start != b"PK" and start[:1] != b"\x80":  # a zip archive, or before PyTorch 1.6 a pickle
        raise WeightsError(f"{path} is neither a safetensors nor a PyTorch file; save model.state_dict() as one")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{path} holds more than tensors, and reading that could run code; save model.state_dict() alone"
        ) from error
    except Exception as error:  # a damaged file can raise almost anything
        reason = str(error).partition(". ")[0].partition("\n")[0] or type(error).__name__
        raise WeightsError(f"{path} is no whole PyTorch file ({reason}); copy or download it again") from error


def _tensors(loaded: Any, path: Path) -> Mapping[str, Tensor]:
    if not isinstance(loaded, Mapping):
        raise WeightsError(f"{path} holds a {type(loaded).__name__}, not names and tensors; save model.state_dict()")
    nested = next((loaded[key] for key in NESTED if isinstance(loaded.get(key), Mapping)), loaded)
    other = [name for name, value in nested.items() if not (isinstance(name, str) and isinstance(value, Tensor))]
    if other or not nested:
        what = f"{other[0]!r} is no tensor" if other else "there is none"
        raise WeightsError(f"{path} should hold nothing but tensors by name, and {what}; save model.state_dict()")
    return nested
