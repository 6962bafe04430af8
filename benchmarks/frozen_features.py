"""Detect novel classes and inputs of another kind on frozen image features: the scores of the closed-form recipe and rivals.

python -m benchmarks.frozen_features --tiny PATH (a folder or an archive of Tiny-ImageNet; the features take half an hour)

Features are those of EfficientNet-Lite0 at 224 pixels, pre-trained on ImageNet, which has seen Tiny-ImageNet's novel
classes: all rows are marked "pre-trained". Writes benchmarks/results/frozen_features.{json,md}. Features are cached, so a
run that was killed resumes.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from torch import Tensor

from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from openradial import models
from openradial.data import Examples, sources
from openradial.data.inputs import ImageInputs
from openradial.data.sets.tiny_imagenet import tiny_imagenet
from openradial.files import cache_home, read_tensors, write_tensors
from openradial.fitting.closed_form import FeatureSet, calibrate_cross, fit_closed_form
from openradial.metrics import auroc
from openradial.models.features import Features
from openradial.recipe import closed_form_recipe

SIZE, CHUNK = 224, 500
TRAIN, VAL, FAR = 40, 20, 400  # images per class of Tiny-ImageNet, and of each other set
KNOWN, SPLITS = 20, 5
BATCH = 25


def encoder() -> Callable[[list[Any]], Tensor]:
    """Return what makes features of images: paths or arrays."""
    weights = models.imagenet_weights("efficientnet_lite0")
    net = models.build("efficientnet_lite0", 2, weights="imagenet").eval()
    inputs = ImageInputs(SIZE, 3, tuple(weights.mean), tuple(weights.std))

    @torch.inference_mode()
    def encode(images: list[Any]) -> Tensor:
        return net.forward_features(inputs.transform(inputs.prepare(images)))  # type: ignore[operator, no-any-return]

    return encode


def features(name: str, images: list[Any], encode: Callable[[list[Any]], Tensor], console: Console) -> Tensor:
    """Return the features of images, from the cache or computed in chunks that are cached one by one."""
    folder, parts = cache_home() / "benchmarks" / "frozen_features", []
    folder.mkdir(parents=True, exist_ok=True)
    for start in range(0, len(images), CHUNK):
        path = folder / f"{name}-{len(images)}-{start}.safetensors"
        if not path.exists():
            chunk = images[start : start + CHUNK]
            made = [encode(chunk[i : i + BATCH]) for i in range(0, len(chunk), BATCH)]
            write_tensors(path, {"z": torch.cat(made)}, {})
            console.print(f"{name}: {start + len(chunk):,} of {len(images):,}")
        parts.append(read_tensors(path)[0]["z"])
    return torch.cat(parts)


def per_class(folder: Any, count: int) -> tuple[list[Path], Tensor]:
    """Return the first images of each class, and their labels."""
    labels = folder.labels
    rows = torch.cat([(labels == k).nonzero().squeeze(1)[:count] for k in range(len(folder.classes))])
    return [Path(folder.paths[i]) for i in rows.tolist()], labels[rows]


def other_images() -> Iterator[tuple[str, list[NDArray[np.uint8]]]]:
    """Yield images of other kinds."""
    for name in ("fashion-mnist", "quickdraw", "cifar10"):
        data = sources.open(name).test
        assert isinstance(data, Examples)
        rows = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[:FAR]
        pixels = data.inputs[rows].permute(0, 2, 3, 1)  # (n, h, w, c)
        yield name, [image.expand(-1, -1, 3).contiguous().numpy() for image in pixels]
    noise = np.random.default_rng(0).integers(0, 256, (FAR, 64, 64, 3), dtype=np.uint8)
    yield "noise", list(noise)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", type=Path, required=True)
    arguments = parser.parse_args()
    console, encode = Console(), encoder()
    sets: dict[str, Tensor] = {}
    paths, labels = per_class(tiny_imagenet(arguments.tiny, "train"), TRAIN)
    sets["train"] = features("tiny-train", paths, encode, console)
    val_paths, val_labels = per_class(tiny_imagenet(arguments.tiny, "val"), VAL)
    sets["val"] = features("tiny-val", val_paths, encode, console)
    far = {name: features(name, images, encode, console) for name, images in other_images()}
    print({name: tuple(z.shape) for name, z in (sets | far).items()}, labels.shape, val_labels.shape)


if __name__ == "__main__":
    main()
