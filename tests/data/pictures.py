"""Small image files in the formats that folders hold, whole and broken."""

import io

import numpy as np
import torch
from PIL import Image

from openradial.data.inputs import ImageInputs
from openradial.data.readers import images


def read_image(path, *, size=None, crop=1.0, channels=3):
    """Read one image file as ``(c, h, w)``: all of it, or with ``size`` its centre as a model takes it."""
    centre = ImageInputs(size or 8, channels, crop=crop).prepare(path)[0]  # names a broken file
    if size is not None:
        return centre
    pixels = images.read_pixels(images.read_bytes(path), channels)
    return torch.from_numpy(pixels.transpose(2, 0, 1).copy())


def noise(width, height, seed=0):
    """A smooth random RGB image: JPEG keeps smooth ones."""
    small = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def photo(seed, side=48):
    """A random image with details of several sizes, as photographs have them."""
    random = np.random.default_rng(seed)
    layers = [Image.fromarray(random.integers(0, 256, (n, n, 3), dtype=np.uint8)) for n in (3, 6, 12)]
    large, middle, small = (np.asarray(each.resize((side, side), Image.Resampling.BICUBIC), float) for each in layers)
    return Image.fromarray((0.5 * large + 0.3 * middle + 0.2 * small).astype(np.uint8))


def encoded(image, kind="JPEG", **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def jpeg(width=20, height=20, seed=0, **options):
    return encoded(noise(width, height, seed), **options)


def tree(root, files):
    """Write ``{"cat/1.jpg": bytes}`` below a folder and return it."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root
