"""How large the images of a folder are, and whether they are grey, from the beginnings of some of its files."""

import statistics
from typing import NamedTuple

import numpy as np

from openradial.data.readers.folder import ImageFolder
from openradial.errors import require

LOOKED_AT = 64  # files, spread evenly over the folder
GREY = ("1", "L", "LA", "I;16")


class Look(NamedTuple):
    """The median of the shorter sides in pixels, and 1 or 3 channels."""

    side: int
    channels: int


def look(folder: ImageFolder) -> Look:
    """Open some of the files; what cannot be opened is left to those who decode it."""
    pillow = require("PIL.Image", "images", "reading images")
    places = np.unique(np.linspace(0, len(folder) - 1, min(LOOKED_AT, len(folder))).astype(int))
    sides, grey = [], []
    for place in places.tolist():
        try:
            with pillow.open(folder.paths[place]) as image:
                sides.append(min(image.size))
                grey.append(image.mode in GREY)
        except Exception:  # damaged files raise whatever their reader stumbles over
            continue
    return Look(round(statistics.median(sides)) if sides else 64, 1 if grey and all(grey) else 3)
