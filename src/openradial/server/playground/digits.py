"""The two digit classifiers that come with the package, and drawings converted to the form of MNIST."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import interpolate

from openradial.bundle import load
from openradial.classifier import UNKNOWN, OpenClassifier
from openradial.errors import DataError

MODELS = Path(__file__).parent / "models"
NAMES = ("softmax", "radial")
SIDE, BOX = 28, 20  # pixels of an MNIST image, and of the box that its digit is scaled to
CENTRE = 14.5  # centre of mass of MNIST images: the middle of pixel 14
GreyImage = NDArray[np.uint8]  # (h, w)


@cache
def digit_model(name: str) -> OpenClassifier:
    """Load one of the two classifiers; its weights are stored in half precision."""
    return load(MODELS / name)


def like_mnist(ink: GreyImage) -> GreyImage:
    """Convert a drawing to the form of MNIST, ``(h, w) -> (28, 28)``, both bright on black.

    The drawing is scaled to a box of 20 x 20 with its aspect ratio, then moved so that its centre of mass is in the
    middle of pixel 14, 14.

    >>> drawing = np.zeros((100, 100), np.uint8)
    >>> drawing[10:90, 5:25] = np.linspace(100, 255, 80)[:, None]
    >>> image = like_mnist(drawing)
    >>> np.flatnonzero(image.any(1))[[0, -1]], np.flatnonzero(image.any(0))[[0, -1]]
    (array([ 3, 22]), array([12, 16]))
    """
    rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
    if not len(rows):
        raise DataError("the drawing is empty; draw something first")
    cut = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    factor = BOX / max(cut.shape)
    size = [max(1, round(side * factor)) for side in cut.shape]
    values = torch.from_numpy(cut.astype(np.float32))[None, None]
    small = interpolate(values, size, mode="bilinear", align_corners=False, antialias=True)[0, 0].numpy()
    image = np.zeros((SIDE, SIDE), np.uint8)
    top, left = (_start(small, axis) for axis in (0, 1))
    image[top : top + size[0], left : left + size[1]] = small.round().clip(0, 255)
    return image


def _start(values: NDArray[np.float32], axis: int) -> int:
    """Return the first row or column of an image whose centre of mass is that of MNIST, within the borders."""
    mass = values.sum(1 - axis)
    centre = float((mass * (np.arange(len(mass)) + 0.5)).sum() / max(float(mass.sum()), 1e-9))
    return int(np.clip(round(CENTRE - centre), 0, SIDE - len(mass)))


def predict_digit(bundle: OpenClassifier, image: GreyImage) -> dict[str, Any]:
    """Predict an image ``(28, 28)``; return JSON values. Distances to the prototypes have the radial head only."""
    x = bundle.preprocessing.ready([image[:, :, None]])
    answer = bundle.decide(bundle.preprocessing.transform(x))
    label = int(answer.labels[0])
    assert answer.p_values is not None  # both classifiers have a rejector
    return {
        "probabilities": answer.log_probs[0].exp().tolist(),
        "distances": None if answer.distances is None else answer.distances[0].tolist(),
        "nearest": int(answer.nearest[0]),
        "label": UNKNOWN if label < 0 else bundle.classes[label],
        "p_value": float(answer.p_values[0]),
    }


def facts() -> dict[str, Any]:
    """Return the metrics of both classifiers, computed when they were trained."""
    return {name: dict(digit_model(name).metadata["measured"]) for name in NAMES}
