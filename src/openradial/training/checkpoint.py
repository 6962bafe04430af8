"""A training run as one file: tensors as safetensors, facts as JSON in its header, written at once or not at all."""

import errno
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from openradial.errors import TrainingError
from openradial.files import Failure, read_tensors, write_tensors

FORMAT = 1
LAST, BEST = "last.safetensors", "best.safetensors"


def save(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write a checkpoint. Whatever happens meanwhile, the path holds the old one or the new one, whole."""
    try:
        write_tensors(path, tensors, {"format": str(FORMAT), "facts": json.dumps(facts)})
    except Failure as error:
        raise TrainingError(_message(path, error)) from error


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and facts of a checkpoint."""
    try:
        tensors, header = read_tensors(path)
    except FileNotFoundError as error:
        raise TrainingError(f"there is no checkpoint {path}; leave --resume out to start anew") from error
    except Failure as error:
        raise TrainingError(
            f"{path} is not a whole checkpoint ({error}); delete it to start anew, or put a copy in its place"
        ) from error
    if header.get("format") != str(FORMAT) or "facts" not in header:
        raise TrainingError(
            f"{path} must be a checkpoint of format {FORMAT}, got format {header.get('format')!r}; "
            "it was written by something else or by another version of openradial"
        )
    return tensors, json.loads(header["facts"])


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with ``prefix.``, without it."""
    return {name[len(prefix) + 1 :]: tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")}


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def optimiser_tensors(optimiser: Optimizer) -> dict[str, Tensor]:
    """What an optimiser remembers, as tensors named ``parameter.quantity``; plain numbers become tensors too."""
    state = optimiser.state_dict()["state"]
    return {
        f"{index}.{name}": value if isinstance(value, Tensor) else torch.tensor(value)
        for index, values in state.items()
        for name, value in values.items()
        if value is not None
    }


def load_optimiser(optimiser: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimiser back what :func:`optimiser_tensors` took from it."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, _, quantity = name.partition(".")
        state.setdefault(int(index), {})[quantity] = tensor.clone()
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def _message(path: Path, error: Exception) -> str:
    kept = f"; the checkpoint before it is whole: {path}" if path.exists() else ""
    full = (isinstance(error, OSError) and error.errno == errno.ENOSPC) or "No space left" in str(error)
    if full:
        free = shutil.disk_usage(path.parent).free
        return f"the disk of {path.parent} is full ({free / 1e6:.0f} MB left): no checkpoint was written{kept}"
    return f"{path} cannot be written ({error}){kept}"
