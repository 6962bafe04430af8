"""Small image files in the formats that folders hold, whole and broken."""

import io

import numpy as np
from PIL import Image


def noise(width, height, seed=0):
    """A smooth random RGB image: JPEG keeps smooth ones."""
    small = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


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
