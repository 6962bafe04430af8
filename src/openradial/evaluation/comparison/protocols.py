"""What is compared on: known examples to train, to calibrate and to test on, and novel ones that only the test sees."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from openradial.data import load
from openradial.data.examples import Examples
from openradial.data.readers.idx import read_idx
from openradial.data.readers.table_files import read_arrays
from openradial.data.splits import divide, random_split, train_test_split
from openradial.data.transforms import Normalise
from openradial.errors import DataError, OptionError, check_choice

SETS = ("digits", "mnist", "cifar10")
SPLITS = 5  # drawn with the seeds 0 to 4; `openradial train --known random:6 --split-seed 0` has the first of them
KNOWN = 6
LEFT_OUT = 2  # of the six, where a recipe is chosen
CALIBRATION = {"digits": 0.3, "mnist": 1 / 12, "cifar10": 0.1}  # share of the known training data that no network sees
NOISE_SEED = 20_301


@dataclass(frozen=True)
class Protocol:
    """Known data in three parts that have no example in common, and sets of novel inputs by name."""

    name: str
    data: str
    train: Examples
    calibration: Examples
    test: Examples
    novel: Mapping[str, Tensor]
    normalise: Normalise

    @property
    def num_classes(self) -> int:
        return len(self.train.classes)


def glance(protocol: Protocol, most: int) -> Protocol:
    """The same with at most so many test examples, and novel inputs of each set, taken evenly."""
    novel = {name: inputs[_evenly(len(inputs), most)] for name, inputs in protocol.novel.items()}
    return replace(protocol, test=protocol.test.select(_evenly(len(protocol.test), most)), novel=novel)


def _evenly(count: int, most: int) -> Tensor:
    kept = min(count, most)
    return torch.arange(kept) * count // kept


def whole_set(data: str, files: Mapping[str, Path] | None = None) -> Protocol:
    """All classes are known; novel inputs come from other sets. For MNIST: clothes, drawings and noise."""
    check_choice("data", data, SETS)
    if data != "mnist" and not files:
        raise OptionError(f"all classes of {data} are known: name a novel set, as in --novel NAME=FILE")
    train, test = load(data, "train"), load(data, "test")
    shape = tuple(train.inputs.shape[1:])
    novel = _sets_beside_mnist(shape) if data == "mnist" else {}
    novel |= {name: read_novel(path, shape) for name, path in (files or {}).items()}
    return _protocol(data, data, train, test, novel)


def class_split(data: str, seed: int, files: Mapping[str, Path] | None = None) -> Protocol:
    """Six classes drawn with a seed are known, the others novel."""
    check_choice("data", data, SETS)
    train, test = load(data, "train"), load(data, "test")
    split = random_split(train.classes, KNOWN, seed)
    known, _ = divide(train, split)
    test_known, test_novel = divide(test, split)
    shape = tuple(train.inputs.shape[1:])
    novel = {"other classes": test_novel.inputs}
    novel |= {name: read_novel(path, shape) for name, path in (files or {}).items()}
    return _protocol(f"{data}, split {seed}", data, known, test_known, novel)


def left_out(data: str, seed: int) -> Protocol:
    """What a recipe may be chosen on: a split's known training data, with two of its classes as if they were novel.

    Neither test data nor the split's novel classes are in it.
    """
    known = class_split(data, seed).train
    split = random_split(known.classes, len(known.classes) - LEFT_OUT, seed)
    others, left = divide(known, split)
    kept, test = train_test_split(others, 1 / 6, seed=2)
    return _protocol(f"{data}, classes left out, split {seed}", data, kept, test, {"left-out classes": left.inputs})


def read_novel(path: Path, shape: tuple[int, ...]) -> Tensor:
    """Images of a novel set from an NPZ (its only or its first array of fitting shape) or an idx file."""
    if not path.exists():
        raise DataError(f"there is no file {path}")
    found = _from_npz(path, shape) if path.suffix == ".npz" else torch.from_numpy(read_idx(path))
    if found.ndim == len(shape):
        found = found.unsqueeze(1)  # grey images without a channel
    if tuple(found.shape[1:]) != shape or not len(found) or found.dtype != torch.uint8:
        raise DataError(
            f"{path} must hold uint8 images of shape {_shown(shape)}, as the known ones, got {found.dtype} of shape "
            f"{tuple(found.shape)}"
        )
    return found


def _from_npz(path: Path, shape: tuple[int, ...]) -> Tensor:
    arrays = read_arrays(path)
    for array in arrays.values():
        if array.dtype == np.uint8 and array.shape[1:] in (shape, shape[1:]):
            return torch.from_numpy(array)
    found = ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in arrays.items()) or "no array"
    raise DataError(f"{path} must hold uint8 images of shape {_shown(shape)}, got {found}")


def _shown(shape: tuple[int, ...]) -> str:
    return f"(n, {', '.join(map(str, shape))})"


def _sets_beside_mnist(shape: tuple[int, ...]) -> dict[str, Tensor]:
    noise = torch.randint(
        0, 256, (10_000, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(NOISE_SEED)
    )
    return {
        "Fashion-MNIST": load("fashion-mnist", "test").inputs,
        "QuickDraw": load("quickdraw", "test").inputs,
        "noise": noise,
    }


def _protocol(name: str, data: str, train: Examples, test: Examples, novel: dict[str, Tensor]) -> Protocol:
    kept, held = train_test_split(train, CALIBRATION[data], seed=0)
    pixels = kept.inputs.double() / 255
    dims = (0, 2, 3)
    normalise = Normalise(pixels.mean(dims).tolist(), pixels.std(dims).clamp_min(1e-6).tolist())
    return Protocol(name, data, kept, held, test, novel, normalise)
