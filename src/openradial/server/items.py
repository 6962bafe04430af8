"""Inputs as they come over HTTP, each one turned into what a bundle takes, or refused alone."""

import base64
import binascii
import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from openradial.bundle import Bundle, ImageInputs, PointInputs, SequenceInputs, TableInputs, TextInputs
from openradial.data.readers.images import FORMATS, jpeg_size, png_size
from openradial.errors import DataError, DTypeError, ShapeError, require
from openradial.server.limits import Limits
from openradial.server.refusals import RequestError

BROKEN = (DataError, ShapeError, DTypeError)  # what a single input may cause
Read = Callable[[Any, Limits], Any]


def prepared(bundle: Bundle, value: Any, limits: Limits) -> Tensor | RequestError:
    """One input, as JSON or an upload gives it, as a batch of one; a RequestError where it is broken.

    A string is never the name of a file: for images it is the file itself in base64.
    """
    try:
        return bundle.prepare([_read(bundle, value, limits)])
    except RequestError as refusal:
        return refusal
    except BROKEN as error:
        return RequestError(422, error.reason)


def _read(bundle: Bundle, value: Any, limits: Limits) -> Any:
    inputs = bundle.preprocessing
    for kind, read in READERS.items():
        if isinstance(inputs, kind):
            return read(value, limits)
    raise RequestError(422, f"inputs of the kind {inputs.kind!r} cannot be sent over HTTP")


def _image(value: Any, limits: Limits) -> bytes | NDArray[np.uint8]:
    if isinstance(value, list):
        return _pixels(value)
    if isinstance(value, str):
        value = _decoded(value)
    if not isinstance(value, bytes):
        raise RequestError(422, f"an image must be rows of pixels or a file in base64, got {_kind(value)}")
    _check_size(value, limits.pixels)
    return value


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text.partition(";base64,")[2] or text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError(422, f"an image given as text must be the file in base64 ({error})") from error


def _pixels(value: list[Any]) -> NDArray[np.uint8]:
    pixels = _array("pixels", value)
    if not pixels.size or pixels.dtype.kind not in "iu" or pixels.min() < 0 or pixels.max() > 255:
        raise RequestError(422, "pixels must be whole numbers from 0 to 255, in rows (h, w) or (h, w, c)")
    return pixels.astype(np.uint8)


def _check_size(data: bytes, most: int) -> None:
    """Refuse an image that says it has too many pixels; whatever else is wrong with it, decoding will tell."""
    found = jpeg_size(data) or png_size(data) or _size(data)
    if found is None:
        raise RequestError(413, f"an image may have {most:,} pixels, and this one has far more; send a smaller one")
    width, height = found[:2]
    if width * height > most:
        raise RequestError(413, f"an image may have {most:,} pixels, got {width} x {height}; send a smaller one")


def _size(data: bytes) -> tuple[int, int] | None:
    """Width and height from the head of a file; 0 and 0 if it says none, None if even Pillow finds them too large."""
    pillow = require("PIL.Image", "images", "reading images")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            size: tuple[int, int] = pillow.open(io.BytesIO(data), formats=FORMATS).size
            return size
        except pillow.DecompressionBombError:
            return None
        except Exception:  # readers of damaged files let through whatever they stumble over
            return 0, 0


def _point(value: Any, limits: Limits) -> NDArray[np.float64]:
    return _numbers("a point", value)


def _sequence(value: Any, limits: Limits) -> NDArray[np.float64]:
    values = _numbers("a sequence", value)
    _check_steps("a sequence may have {:,} steps, got {:,}", len(values), limits)
    return values


def _text(value: Any, limits: Limits) -> str:
    if not isinstance(value, str):
        raise RequestError(422, f"a text must be a string, got {_kind(value)}")
    _check_steps("a text may have {:,} words, got {:,}", len(value.split()), limits)
    return value


def _row(value: Any, limits: Limits) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RequestError(422, f"a row must be an object of columns and values, got {_kind(value)}")
    return value


def _check_steps(sentence: str, count: int, limits: Limits) -> None:
    if count > limits.steps:
        raise RequestError(413, f"{sentence.format(limits.steps, count)}; shorten it")


def _numbers(what: str, value: Any) -> NDArray[np.float64]:
    """Finite numbers in float32's range, as the networks compute."""
    values = _array(what, value)
    if values.dtype.kind not in "iuf" or not values.ndim:
        raise RequestError(422, f"{what} must be an array of numbers, got {_kind(value)}")
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    if not np.isfinite(single).all():
        raise RequestError(422, f"{what} must hold finite numbers, got nan, infinity or one beyond float32")
    return values


def _array(what: str, value: Any) -> NDArray[Any]:
    try:
        return np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise RequestError(422, f"{what} must be numbers in rows of one length") from error


def _kind(value: Any) -> str:
    """What JSON calls it."""
    names = {type(None): "null", bool: "a truth value", int: "a number", float: "a number", str: "a string"}
    return names.get(type(value), "an object" if isinstance(value, dict) else "an array of something else")


READERS: dict[type[Any], Read] = {
    ImageInputs: _image,
    PointInputs: _point,
    SequenceInputs: _sequence,
    TextInputs: _text,
    TableInputs: _row,
}
