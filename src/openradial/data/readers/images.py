"""Image files to uint8 pixels: decoded, cut and resized. Whatever the colours of a file, the result is RGB or grey.

The orientation tag (EXIF) is applied, so that pixels come as a viewer shows them. Transparent pixels are laid on white,
16-bit grey keeps its upper 8 bits, CMYK and palettes are converted, and of an animation the first frame is read.
"""

import io
import os
import stat
import statistics
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import interpolate

from openradial.errors import DataError, require

if TYPE_CHECKING:
    from PIL.Image import Image

# Formats that Pillow knows and that are not read: they run a program or open other formats, or have no decoder
EXCLUDED = {"EPS", "IPTC", "BUFR", "GRIB", "HDF5", "MPEG", "WMF"}
ANIMATED = (".gif", ".webp", ".apng", ".avif", ".tif", ".tiff", ".fli", ".flc")  # endings of files with several frames
COMMON = (".jpg", ".jpeg", ".png")  # endings for which Pillow's many formats are not loaded
ORIENTATION = 274  # the EXIF tag
KINDS = ("RGB", "grey", "palette", "alpha", "16-bit", "CMYK")
CHANNELS = {"Gray": 1, "RGB": 3, "YCbCr": 3}  # of a JPEG; others have 4

Pixels = NDArray[np.uint8]
Box = tuple[int, int, int, int]  # left, top, right, bottom
Choose = Callable[[int, int], Box]  # width, height of an image -> the part to keep
Cut = tuple[Pixels, str]  # pixels (size, size, c), and the kind of the file they come from


def read_bytes(path: str | PathLike[str]) -> bytes:
    """Return the bytes of a file; the message of a DataError continues "the image ..."."""
    if "\0" in os.fspath(path):
        raise DataError("cannot be read (its name has a zero byte)")
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe or a device might never end
            raise DataError("is not a regular file")
        with open(path, "rb", buffering=0) as file:
            data = file.readall()
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})") from error
    if not data:
        raise DataError("is empty (0 bytes)")
    return data


def read_pixels(data: bytes, channels: int = 3) -> Pixels:
    """Decode all pixels ``(h, w, c)`` of an image file."""
    return _chosen(data, lambda width, height: (0, 0, width, height), None, channels)[0]


def cut(data: bytes, size: int, choose: Choose, channels: int = 3) -> Cut:
    """Decode an image file, keep the chosen box and resize it to ``size`` by ``size`` (bilinear, antialiased).

    A large JPEG is decoded at 1/2, 1/4 or 1/8 of its size where the box still has ``size`` pixels then.
    """
    pixels, kind = _chosen(data, choose, size, channels)
    if pixels.shape[:2] != (size, size):
        # torch resizes uint8 with the rounding of Pillow, several times faster; channels last: twice as fast
        stacked = torch.from_numpy(np.ascontiguousarray(pixels)).unsqueeze(0).permute(0, 3, 1, 2)
        resized = interpolate(stacked, (size, size), mode="bilinear", antialias=True)
        pixels = resized[0].permute(1, 2, 0).numpy()
    return pixels, kind


def centre_box(width: int, height: int, crop: float = 1.0) -> Box:
    """Return the square in the middle whose side is ``crop`` of the short side.

    >>> centre_box(500, 375, crop=0.8)
    (100, 37, 400, 337)
    """
    side = max(1, round(min(width, height) * crop))
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


class ImageStatistics(NamedTuple):
    """The median of the shorter sides of images in pixels, and 1 or 3 channels."""

    side: int
    channels: int


def image_statistics(paths: Sequence[str]) -> ImageStatistics:
    """Open 64 of the files, spread evenly; those that cannot be opened are left to the code that decodes them."""
    sides, grey = [], []
    for index in np.unique(np.linspace(0, len(paths) - 1, min(64, len(paths))).astype(int)).tolist():
        with suppress(Exception), open_lazily(paths[index]) as image:
            sides.append(min(image.size))
            grey.append(image.mode in ("1", "L", "LA", "I;16"))
    return ImageStatistics(round(statistics.median(sides)) if sides else 64, 1 if grey and all(grey) else 3)


@cache
def formats() -> tuple[str, ...]:
    """Return the formats that are read, told from the contents of a file."""
    _pillow().init()
    readers = _pillow().OPEN
    # formats without a signature come last: they would take other files for theirs
    return tuple(sorted(readers.keys() - EXCLUDED, key=lambda name: (readers[name][1] is None, name != "JPEG", name)))


def open_lazily(source: Any) -> "Image":
    """Open an image without decoding it: its size, frames and metadata. A file that is none raises many things."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # remarks on metadata that nobody reads
        with suppress(_pillow().UnidentifiedImageError):  # without loading all formats
            return _pillow().open(source, formats=("JPEG", "PNG"))  # type: ignore[no-any-return]
        return _pillow().open(source, formats=formats())  # type: ignore[no-any-return]


def is_image(path: str) -> bool:
    """Return whether a regular file has the ending of an image, or the content of one."""
    ending = os.path.splitext(path)[1].lower()
    if ending in COMMON or _pillow().registered_extensions().get(ending) in formats():
        return True
    with suppress(Exception), open_lazily(path):
        return True
    return False


def is_animated(path: str) -> bool:
    """Return whether a file holds several frames; only files whose ending allows it are opened."""
    if path.lower().endswith(ANIMATED):
        with suppress(Exception), open_lazily(path) as image:  # a broken file is named when it is decoded
            return bool(getattr(image, "is_animated", False))
    return False


def jpeg_size(data: bytes) -> tuple[int, int, int] | None:
    """Return width, height and channels of a JPEG from its header, as the decoder reads it; None if it cannot."""
    decoder = _jpeg_decoder() if data[:2] == b"\xff\xd8" else None
    if decoder is None:
        return None
    try:
        height, width, colours, _ = decoder.decode_jpeg_header(data)
    except ValueError:
        return None
    return width, height, CHANNELS.get(colours, 4)


def _chosen(data: bytes, choose: Choose, size: int | None, channels: int) -> Cut:
    """Return pixels ``(h, w, c)`` of the chosen box, at a smaller scale where ``size`` allows it."""
    header = jpeg_size(data)
    if header is not None and header[2] == channels:
        width, height, _ = header
        _check_pixels(width, height)
        # Pillow parses metadata slowly, so it is asked only where there may be a tag
        has_tag = b"Exif\0\0" in data or b":Orientation" in data
        orientation = _orientation(_open(data, load=False)) if has_tag else 1
        box = choose(*((height, width) if orientation > 4 else (width, height)))
        fits = 1 if size is None else min(box[2] - box[0], box[3] - box[1]) // size
        scale = 1 if fits < 2 else 2 if fits < 4 else 4 if fits < 8 else 8
        pixels = _decode_jpeg(data, (-(-height // scale), -(-width // scale), channels), scale)
        if pixels is not None:
            left, top, right, bottom = (round(edge / scale) for edge in box)  # slices end at the border
            return upright(pixels, orientation)[top:bottom, left:right], "RGB" if channels == 3 else "grey"
    image = _open(data)
    orientation = _orientation(image)
    image, kind = _in_channels(image, channels)
    pixels = upright(np.array(image).reshape(image.height, image.width, channels), orientation)
    left, top, right, bottom = choose(pixels.shape[1], pixels.shape[0])
    return pixels[top:bottom, left:right], kind


def upright(pixels: Pixels, orientation: int) -> Pixels:
    """Return pixels ``(h, w, c)`` turned and mirrored as the EXIF orientation 1 to 8 asks for.

    >>> upright(np.array([[[1], [2]]], np.uint8), 6)[:, :, 0].tolist()  # a quarter turn clockwise
    [[1], [2]]
    """
    if orientation > 4:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels[::-1] if orientation in (3, 4, 7, 8) else pixels


def _orientation(image: "Image") -> int:
    with suppress(Exception), warnings.catch_warnings():  # damaged metadata do not matter
        warnings.simplefilter("ignore")
        value = image.getexif().get(ORIENTATION, 1)
        return value if value in range(1, 9) else 1
    return 1


def _decode_jpeg(data: bytes, shape: tuple[int, int, int], scale: int) -> Pixels | None:
    """Decode a JPEG in one call; None if that fails, and Pillow then names the reason.

    Pillow parses every segment in Python, feeds the decoder piece by piece and moves the pixels twice.
    """
    colours, least = "RGB" if shape[2] == 3 else "GRAY", {"min_height": shape[0], "min_width": shape[1]}
    try:
        pixels: Pixels = _jpeg_decoder().decode_jpeg(data, colours, min_factor=scale, **least)
    except ValueError:
        return None
    return pixels if pixels.shape == shape else None


def _open(data: bytes, load: bool = True) -> "Image":
    pillow = _pillow()
    try:
        image = open_lazily(io.BytesIO(data))
        _check_pixels(*image.size)
        if load:
            image.load()
    except pillow.DecompressionBombError as error:
        raise DataError(f"is larger than Pillow allows ({error})") from error
    except pillow.UnidentifiedImageError as error:
        raise DataError("is not in a format that Pillow reads") from error
    except (DataError, MemoryError):
        raise
    except Exception as error:  # readers of damaged files let through whatever they stumble over
        raise DataError(f"is damaged ({error})") from error
    return image


def _check_pixels(width: int, height: int) -> None:
    limit = _pillow().MAX_IMAGE_PIXELS
    if limit is not None and width * height > limit:
        allowed = f"the {limit:,} that Pillow allows (PIL.Image.MAX_IMAGE_PIXELS raises the limit)"
        raise DataError(f"has {width} x {height} pixels, more than {allowed}")


def _in_channels(image: "Image", channels: int) -> tuple["Image", str]:
    """Return the image in RGB or grey, and the kind it was."""
    kind, mode = _kind(image), "RGB" if channels == 3 else "L"
    if kind == "16-bit":  # keep the upper 8 bits of grey; a transparent value becomes white
        values, transparent = np.asarray(image), image.info.get("transparency")
        if image.mode == "F" or (image.mode == "I" and (values.min() < 0 or values.max() > 65_535)):
            raise DataError("has 32-bit pixels, whose scale is not known; convert it to 8 or 16 bits")
        grey = (values // 256).astype(np.uint8)
        image = _pillow().fromarray(np.where(values == transparent, np.uint8(255), grey))
    elif kind == "alpha":
        image = image.convert("RGBA")
        image = _pillow().alpha_composite(_pillow().new("RGBA", image.size, "white"), image)
    try:
        return image if image.mode == mode else image.convert(mode), kind
    except ValueError as error:
        raise DataError(f"has pixels of a kind that Pillow does not convert ({error}); save it as RGB") from error


def _kind(image: "Image") -> str:
    if image.mode[0] in "IF":
        return "16-bit"
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        return "alpha"
    return {"L": "grey", "1": "grey", "P": "palette", "CMYK": "CMYK"}.get(image.mode, "RGB")


@cache
def _pillow() -> Any:
    return require("PIL.Image", "images", "reading images")


@cache
def _jpeg_decoder() -> Any:
    try:
        return import_module("simplejpeg")
    except ImportError:
        return None
