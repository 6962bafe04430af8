"""Photographs of ILSVRC's usual size, made from the two that scikit-learn ships: crops, mirrored, as JPEG."""

from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

CLASSES = 10
SHAPES = ((500, 375), (375, 500), (500, 333))


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
