"""Small sets that the tests of fitting share."""

import csv
import os
from functools import cache

import numpy as np
import pytest
from PIL import Image

from openradial import encoders
from openradial.errors import FetchError, MissingError

WORDS = ("red", "green", "blue")


def write_table(path, rows=180, classes=3, seed=0):
    """A table of well separated classes ``c0``, ``c1`` ... with numbers, words and a gap."""
    random = np.random.default_rng(seed)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["length", "width", "colour", "kind"])
        for i in range(rows):
            k = i % classes
            length, width = random.normal([3 * k, 5 - 2 * k], 0.5)
            writer.writerow([f"{length:.3f}", "" if i == 7 else f"{width:.3f}", WORDS[k % 3], f"c{k}"])
    return path


def write_images(root, classes=("dot", "bar", "ring"), each=30, size=12, seed=0, grey=True):
    """A folder of images per class: each class is a pattern of its own with noise."""
    random = np.random.default_rng(seed)
    for k, name in enumerate(classes):
        pattern = np.zeros((size, size))
        pattern[k * 2 : k * 2 + 4, k : size - k] = 200
        (root / name).mkdir(parents=True)
        for i in range(each):
            pixels = (pattern + random.uniform(0, 50, (size, size))).clip(0, 255).astype(np.uint8)
            image = Image.fromarray(pixels)
            (image if grey else image.convert("RGB")).save(root / name / f"{i:03}.png")
    return root


@cache  # an encoder is frozen, and loading it takes long
def had(name):
    """Skip the test if the encoder is not here; in CI it must be."""
    try:
        return encoders.load(name)
    except (FetchError, MissingError) as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"the encoder {name} cannot be had here: {error}")
