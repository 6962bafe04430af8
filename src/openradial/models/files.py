"""Read weights from safetensors and PyTorch files, never anything that can run code."""

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
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can raise almost anything
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        if "weights_only" in str(error) or "Weights only" in str(error):
            reason = "it holds more than tensors, and reading that could run code"
        raise WeightsError(
            f"{path} is no whole safetensors or PyTorch file of tensors ({reason}); copy or download it again, or save "
            "model.state_dict() alone"
        ) from error


def _tensors(loaded: Any, path: Path) -> Mapping[str, Tensor]:
    if isinstance(loaded, Mapping):
        nested = next((loaded[key] for key in NESTED if isinstance(loaded.get(key), Mapping)), loaded)
        if nested and all(isinstance(name, str) and isinstance(value, Tensor) for name, value in nested.items()):
            return nested
    raise WeightsError(
        f"{path} holds a {type(loaded).__name__}, expected a dict from names to tensors; save model.state_dict()"
    )
