"""Keras networks as TensorFlow.js keeps them: a ``model.json`` and shards of raw numbers."""

import json
import math
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from openradial.errors import WeightsError
from openradial.models.files import State

STAGES = (3, 4, 6, 3)  # blocks of ResNet-50
BGR_TO_RGB = [2, 1, 0]


@dataclass(frozen=True)
class KerasModel:
    """Layers by name, as configured, and their weights by name, as Keras orders the axes."""

    layers: dict[str, dict[str, Any]]
    weights: State


def read_tfjs(path: Path) -> KerasModel:
    """Read a folder, or a packed package, that holds one ``model.json`` and its shards."""
    try:
        return _parse(_contents(path))
    except (OSError, EOFError, tarfile.TarError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, WeightsError):
            raise
        reason = f"{type(error).__name__}: {error}"
        raise WeightsError(f"{path} is no whole TensorFlow.js model ({reason}); fetch it again") from error


def _contents(path: Path) -> dict[str, bytes]:
    """Description and shards by name; a package is unpacked once, in its own order."""
    if path.is_dir():
        return {file.name: file.read_bytes() for file in path.iterdir() if _is_wanted(file.name)}
    with tarfile.open(path, "r:gz") as archive:
        members = ((Path(member.name).name, archive.extractfile(member)) for member in archive)
        return {name: content.read() for name, content in members if content is not None and _is_wanted(name)}


def _is_wanted(name: str) -> bool:
    return name == "model.json" or name.endswith(".bin")


def _parse(contents: dict[str, bytes]) -> KerasModel:
    model = json.loads(contents["model.json"])
    layers = {layer["name"]: layer["config"] for layer in model["modelTopology"]["model_config"]["config"]["layers"]}
    weights: State = {}
    for group in model["weightsManifest"]:
        numbers = bytearray().join(contents[name] for name in group["paths"])
        weights |= _cut(numbers, group["weights"])
    return KerasModel(layers, weights)


def _cut(numbers: bytearray, entries: list[dict[str, Any]]) -> State:
    """Tensors out of a run of float32 numbers."""
    foreign = [entry for entry in entries if entry["dtype"] != "float32" or "quantization" in entry]
    if foreign:
        raise WeightsError(f"expected float32 weights, but {foreign[0]['name']} is {foreign[0]['dtype']} or quantised")
    sizes = [math.prod(entry["shape"]) for entry in entries]
    if len(numbers) != 4 * sum(sizes):
        raise WeightsError(f"expected {4 * sum(sizes)} bytes in the shards, got {len(numbers)}; fetch them again")
    parts = torch.frombuffer(numbers, dtype=torch.float32).split_with_sizes(sizes)
    return {entry["name"]: part.reshape(entry["shape"]) for entry, part in zip(entries, parts, strict=True)}


def resnet50_state(model: KerasModel, *, std: tuple[float, float, float], norm_eps: float) -> State:
    """The weights of Keras' first ResNet-50 for our ``ResNet(depth=50, stride_in="1x1", norm_eps=norm_eps)``.

    Biases of convolutions go into the means that batch normalisation subtracts. The first kernel takes RGB instead of
    BGR, and numbers divided by ``std`` instead of 0 to 255. The outputs stay the same but for rounding.
    """
    state = _conv_norm(model, "conv1", "bn_conv1", "conv1", "bn1", norm_eps)
    for i, repeats in enumerate(STAGES):
        for j in range(repeats):
            theirs, ours = f"{i + 2}{'abcdef'[j]}_branch", f"layer{i + 1}.{j}"
            for k in (1, 2, 3):
                branch = f"{theirs}2{'abc'[k - 1]}"
                state |= _conv_norm(model, f"res{branch}", f"bn{branch}", f"{ours}.conv{k}", f"{ours}.bn{k}", norm_eps)
            if j == 0:
                names = f"res{theirs}1", f"bn{theirs}1", f"{ours}.downsample.0", f"{ours}.downsample.1"
                state |= _conv_norm(model, *names, norm_eps)
    scale = 255 * torch.tensor(std)[:, None, None]
    state["conv1.weight"] = state["conv1.weight"][:, BGR_TO_RGB] * scale
    state["classifier.weight"] = _weight(model, "fc1000/kernel").T
    state["classifier.bias"] = _weight(model, "fc1000/bias")
    return state


def _conv_norm(model: KerasModel, conv: str, norm: str, our_conv: str, our_norm: str, eps: float) -> State:
    found = model.layers.get(norm, {}).get("epsilon")
    if found != eps:
        raise WeightsError(f"expected {norm} with an epsilon of {eps:g}, the model says {found}")
    return {
        f"{our_conv}.weight": _weight(model, f"{conv}/kernel").permute(3, 2, 0, 1),
        f"{our_norm}.weight": _weight(model, f"{norm}/gamma"),
        f"{our_norm}.bias": _weight(model, f"{norm}/beta"),
        f"{our_norm}.running_mean": _weight(model, f"{norm}/moving_mean") - _weight(model, f"{conv}/bias"),
        f"{our_norm}.running_var": _weight(model, f"{norm}/moving_variance"),
    }


def _weight(model: KerasModel, name: str) -> Tensor:
    if name not in model.weights:
        raise WeightsError(f"expected the weights of Keras' ResNet-50, {name} is missing; fetch them again")
    return model.weights[name]
