"""The data of a comparison: known examples for training, calibration and test, and novel ones for the test alone."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from openradial.data import load, sources
from openradial.data.examples import Examples
from openradial.data.readers.idx import read_idx
from openradial.data.splits import divide, random_split, train_test_split
from openradial.data.transforms import Normalise
from openradial.errors import DataError, OptionError, check_choice

SETS = ("digits", "mnist", "cifar10")
KNOWN = 6
LEFT_OUT = 2  # of the six, to choose a recipe
CALIBRATION = {"digits": 0.3, "mnist": 1 / 12, "cifar10": 0.1}  # share of the known training data that no network sees
NOISE_SEED = 20_301


@dataclass(frozen=True)
class Protocol:
    """Known data in three parts without a common example, and novel inputs by name."""

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


def shortened(protocol: Protocol, most: int) -> Protocol:
    """Return the protocol with at most ``most`` test examples, and as many novel inputs of each set."""
    novel = {name: inputs[_evenly(len(inputs), most)] for name, inputs in protocol.novel.items()}
    return replace(protocol, test=protocol.test.select(_evenly(len(protocol.test), most)), novel=novel)


def _evenly(count: int, most: int) -> Tensor:
    kept = min(count, most)
    return torch.arange(kept) * count // kept


def all_known(data: str, files: Mapping[str, Path] | None = None) -> Protocol:
    """Return a protocol in which all classes are known; novel inputs come from other data sets. MNIST has three."""
    check_choice("data", data, SETS)
    if data != "mnist" and not files:
        raise OptionError(f"all classes of {data} are known: name a novel set, as in --novel NAME=FILE")
    train, novel = load(data), {}
    shape = tuple(train.inputs.shape[1:])
    if data == "mnist":
        generator = torch.Generator().manual_seed(NOISE_SEED)
        novel["Fashion-MNIST"] = load("fashion-mnist", "test").inputs
        novel["QuickDraw"] = load("quickdraw", "test").inputs
        novel["noise"] = torch.randint(0, 256, (10_000, *shape), dtype=torch.uint8, generator=generator)
    novel |= {name: read_novel(path, shape) for name, path in (files or {}).items()}
    return _protocol(data, data, train, load(data, "test"), novel)


def class_split(data: str, seed: int) -> Protocol:
    """Return a protocol in which six classes, drawn with a seed, are known and the others novel."""
    check_choice("data", data, SETS)
    train = load(data)
    split = random_split(train.classes, KNOWN, seed)
    known, _ = divide(train, split)
    test, novel = divide(load(data, "test"), split)
    return _protocol(f"{data}, split {seed}", data, known, test, {"other classes": novel.inputs})


def left_out(data: str, seed: int) -> Protocol:
    """Return a protocol to choose a recipe on: the known training data of a split, with two of its classes as novel.

    It contains neither test data nor the novel classes of the split.
    """
    known = class_split(data, seed).train
    split = random_split(known.classes, len(known.classes) - LEFT_OUT, seed)
    others, left = divide(known, split)
    kept, test = train_test_split(others, 1 / 6, seed=2)
    return _protocol(f"{data}, classes left out, split {seed}", data, kept, test, {"left-out classes": left.inputs})


def read_novel(path: Path, shape: tuple[int, ...]) -> Tensor:
    """Read novel images from a file that :func:`openradial.data.sources.open` opens, or from an idx file."""
    if not path.exists():
        raise DataError("there is no such file", path=path)
    if path.suffix == ".npz":
        data = sources.open(path, labelled=False).train
        images = data.inputs if isinstance(data, Examples) else torch.empty(0)
    else:
        images = torch.from_numpy(read_idx(path))
    if images.ndim == len(shape):
        images = images.unsqueeze(1)  # grey images without a channel
    if tuple(images.shape[1:]) != shape or not len(images) or images.dtype != torch.uint8:
        expected = f"uint8 images of shape (n, {', '.join(map(str, shape))})"
        actual = f"{images.dtype} of shape {tuple(images.shape)}"
        raise DataError(f"expected {expected}, as the known ones, got {actual}", path=path)
    return images


def _protocol(name: str, data: str, train: Examples, test: Examples, novel: dict[str, Tensor]) -> Protocol:
    kept, held_out = train_test_split(train, CALIBRATION[data], seed=0)
    pixels, dims = kept.inputs.double() / 255, (0, 2, 3)
    normalise = Normalise(pixels.mean(dims).tolist(), pixels.std(dims).clamp_min(1e-6).tolist())
    return Protocol(name, data, kept, held_out, test, novel, normalise)
