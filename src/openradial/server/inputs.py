"""Convert inputs from JSON or uploads to what a bundle takes; an input that cannot be read gets its own error."""

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from openradial.classifier import OpenClassifier
from openradial.data.inputs import ImageInputs, PointInputs, SequenceInputs, TableInputs, TextInputs, TokenInputs
from openradial.data.readers.images import jpeg_size, open_lazily
from openradial.errors import DataError, DTypeError, ShapeError
from openradial.server.requests import RequestError
from openradial.server.settings import Limits

NESTED = {b"\0\0\1\0": "ICO", b"icns": "ICNS", b"BLP1": "BLP", b"BLP2": "BLP"}  # with another image inside, of any size


def prepare_inputs(
    bundle: OpenClassifier, values: Sequence[Any], limits: Limits, cancelled: Callable[[], bool] = lambda: False
) -> list[Tensor | RequestError]:
    """Return each input from JSON or an upload as a batch of one, or the error if it cannot be read.

    A string is never a file name: for images it is the content of the file in base64. Raise if the images have too
    many pixels together, before the first is decoded, and stop once ``cancelled`` returns True.
    """
    inputs = [_read(bundle, value, limits) for value in _unless(cancelled, values)]
    pixels = sum(each.pixels for each in inputs if isinstance(each, _ImageFile))
    if pixels > limits.pixels:
        most = f"at most {limits.pixels:,} pixels together, got {pixels:,}"
        raise RequestError(413, f"the images of a request may have {most}; split it into several")
    return [each if isinstance(each, RequestError) else _prepare(bundle, each) for each in _unless(cancelled, inputs)]


def _unless(cancelled: Callable[[], bool], values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if cancelled():
            raise RequestError(499, "the client did not wait for its response")
        yield value


def _prepare(bundle: OpenClassifier, value: Any) -> Tensor | RequestError:
    try:
        return bundle.preprocessing.ready([value.data if isinstance(value, _ImageFile) else value])
    except (DataError, ShapeError, DTypeError) as error:
        return RequestError(422, error.reason)


def _read(bundle: OpenClassifier, value: Any, limits: Limits) -> Any:
    """Return a value as the bundle's preprocessing takes it, or an error."""
    inputs = bundle.preprocessing
    try:
        for kind, read in READERS.items():
            if isinstance(inputs, kind):
                made = read(value, limits)
                for cell in map(made.get, inputs.columns) if isinstance(made, dict) else ():
                    _text(cell if isinstance(cell, str) else "", limits)
                return made
    except RequestError as error:
        return error
    return RequestError(422, f"inputs of kind {inputs.kind!r} cannot be sent over HTTP")


class _ImageFile(NamedTuple):
    data: bytes
    pixels: int  # as its header states


def _image(value: Any, limits: Limits) -> _ImageFile | NDArray[np.uint8]:
    if isinstance(value, list):
        pixels = _array("pixels", value)
        if not pixels.size or pixels.dtype.kind not in "iu" or pixels.min() < 0 or pixels.max() > 255:
            raise RequestError(422, "pixels must be integers from 0 to 255, in rows (h, w) or (h, w, c)")
        return pixels.astype(np.uint8)
    if isinstance(value, str):
        try:
            value = base64.b64decode(value.partition(";base64,")[2] or value, validate=True)
        except ValueError as error:
            raise RequestError(422, f"an image given as text must be the file in base64 ({error})") from error
    if not isinstance(value, bytes):
        raise RequestError(422, f"an image must be rows of pixels or a file in base64, got {_kind(value)}")
    return _ImageFile(value, _count_pixels(value, limits.pixels))


def _count_pixels(data: bytes, most: int) -> int:
    """Return the pixels that the header of an image states; raise if there are too many, or if it cannot be trusted."""
    if kind := NESTED.get(data[:4]):
        raise RequestError(422, f"the service does not read {kind} files; send the image as PNG or JPEG")
    try:
        width, height = (jpeg_size(data) or open_lazily(io.BytesIO(data)).size)[:2]
        actual = f"{width} x {height}"
    except Exception as error:  # a damaged file can raise almost anything; decoding detects all other errors
        if type(error).__name__ != "DecompressionBombError":
            return 0
        width, height, actual = most, 2, "far more"
    if width * height > most:
        raise RequestError(413, f"an image may have at most {most:,} pixels, got {actual}; send a smaller one")
    return width * height


def _sequence(value: Any, limits: Limits) -> NDArray[np.float64]:
    values = _numbers("a sequence", value)
    if len(values) > limits.steps:
        raise RequestError(413, f"a sequence may have at most {limits.steps:,} steps, got {len(values):,}; shorten it")
    return values


def _text(value: Any, limits: Limits) -> str:
    if not isinstance(value, str):
        raise RequestError(422, f"a text must be a string, got {_kind(value)}")
    if (count := len(value.split())) > limits.steps:
        raise RequestError(413, f"a text may have at most {limits.steps:,} words, got {count:,}; shorten it")
    return value


def _row(value: Any, limits: Limits) -> dict[str, Any]:
    if isinstance(value, RequestError):
        raise value
    if not isinstance(value, dict):
        raise RequestError(422, f"a row must be an object of columns and values, got {_kind(value)}")
    return value


def _numbers(what: str, value: Any) -> NDArray[np.float64]:
    """Return an array of finite numbers within the range of float32."""
    values = _array(what, value)
    if values.dtype.kind not in "iuf" or not values.ndim:
        raise RequestError(422, f"{what} must be an array of numbers, got {_kind(value)}")
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    if not np.isfinite(single).all():
        raise RequestError(422, f"{what} must contain finite numbers in the range of float32")
    return values


def _array(what: str, value: Any) -> NDArray[Any]:
    try:
        return np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise RequestError(422, f"{what} must be numbers in rows of equal length") from error


def _kind(value: Any) -> str:
    """Return the JSON name of a type."""
    names = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "a string"}
    return names.get(type(value), "an object" if isinstance(value, dict) else "an array of something else")


READERS: dict[type[Any], Callable[[Any, Limits], Any]] = {
    ImageInputs: _image,
    PointInputs: lambda value, limits: _numbers("a point", value),
    SequenceInputs: _sequence,
    TextInputs: _text,
    TokenInputs: _text,
    TableInputs: _row,
}
