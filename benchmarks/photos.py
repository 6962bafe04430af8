"""Photographs for measurements: fit features of an encoder as openradial.fit does; and files of ILSVRC's usual size.

The files are made from the two photographs that scikit-learn ships: crops, mirrored, as JPEG.
"""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import Tensor

from openradial import OpenClassifier
from openradial.fitting.closed_form import calibrate_cross, fit_closed_form
from openradial.fitting.cross import FeatureSet
from openradial.fitting.novelty import LeftOut
from openradial.metrics import auroc
from openradial.models.features import NUM_BANDS, Features
from openradial.recipe import FEW_CLASSES, closed_form_recipe

RATE = 0.05
CLASSES = 10
SHAPES = ((500, 375), (375, 500), (500, 333))


def split_layers(z: Tensor, num_features: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the features of the last layer, and those of the other layers by name."""
    return z[:, :num_features], {"middle": z[:, num_features:-NUM_BANDS], "bands": z[:, -NUM_BANDS:]}


def published(z: Tensor, num_features: int) -> Tensor:
    """Return the features of the last layer as published, of length 1: openradial takes their square roots."""
    return torch.nn.functional.normalize(z[:, :num_features].square())


def fit_photographs(
    z: Tensor, y: Tensor, num_features: int, seed: int, squares: bool | None = None
) -> tuple[OpenClassifier, LeftOut | None]:
    """Fit as openradial.fit does: closed form, calibrated at 5 %; features of all layers of an encoder, and labels."""
    last, layers = split_layers(z, num_features)
    count, known = int(y.max()) + 1, FeatureSet(last, y, layers=layers)
    squares = count >= FEW_CLASSES if squares is None else squares
    recipe = closed_form_recipe("images", len(z), count, layers=("outputs", *layers), squares=squares)
    net = Features(z.shape[1], num_middle=z.shape[1] - num_features)
    model, left_out = fit_closed_form(net, recipe, tuple(map(str, range(count))), known, seed)
    return calibrate_cross(model, recipe, RATE, known, seed)[0], left_out


def measure_photographs(
    z: Tensor, y: Tensor, x: Tensor, t: Tensor, num_features: int, seed: int, squares: bool | None = None
) -> dict[str, float]:
    """Return accuracy, AUROC and rates on test features ``x`` with labels ``t``, -1 for novel classes."""
    answer, is_known = fit_photographs(z, y, num_features, seed, squares)[0].decide(x), t >= 0
    return {
        "accuracy": float((answer.nearest == t)[is_known].double().mean()),
        "AUROC": auroc(answer.unknown_score[is_known], answer.unknown_score[~is_known]),
        "called unknown": float((answer.labels < 0)[is_known].double().mean()),
        "detected": float((answer.labels < 0)[~is_known].double().mean()),
    }


def write_photos(root: Path, count: int, seed: int = 0, classes: int = CLASSES) -> Path:
    """Write ``count`` varied photographs in class folders; files that are there stay."""
    originals = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    random = np.random.default_rng(seed)
    for number in range(count):
        photo = _varied(originals[number % len(originals)], random)
        path = root / f"class{number % classes}" / f"{number:05}.JPEG"
        quality = int(random.integers(80, 97))
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            photo.save(path, quality=quality)
    return root


def _varied(photo: Image.Image, random: np.random.Generator) -> Image.Image:
    shape = SHAPES[random.choice(len(SHAPES), p=(0.6, 0.2, 0.2))]
    largest = min(photo.width / shape[0], photo.height / shape[1])
    scale = random.uniform(0.6, 1.0) * largest
    width, height = scale * shape[0], scale * shape[1]
    left, top = random.uniform(0, photo.width - width), random.uniform(0, photo.height - height)
    box = (left, top, left + width, top + height)
    cut = photo.resize(shape, Image.Resampling.BICUBIC, box=box)
    return cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else cut
