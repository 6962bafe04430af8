"""Images: files, their bytes or arrays of pixels; cut and resized as training did, then normalised."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openradial.data.inputs.base import Inputs, set_statistics
from openradial.data.readers.images import centre_box, cut, read_bytes
from openradial.data.transforms import Normalise
from openradial.data.workers import View
from openradial.errors import DataError, require

RESIZED = "bilinear, antialiased"
Image = str | PathLike[str] | bytes | NDArray[np.uint8]


@dataclass(frozen=True)
class ImageInputs(Inputs):
    """The square centre of each image, ``crop`` of its short side, at ``size`` by ``size`` pixels, then normalised.

    An image is the name of a file, the bytes of one, or an array ``(h, w)`` or ``(h, w, c)`` of uint8. Pixels become
    ``(x / 255 - mean) / std``, with one mean and one std for each channel or one for all.

    >>> inputs = ImageInputs(size=2, channels=1, mean=(0.5,), std=(0.25,))
    >>> x = inputs.prepare([np.zeros((4, 4), np.uint8)])
    >>> x.shape, inputs.transform(x).unique()
    (torch.Size([1, 1, 2, 2]), tensor([-2.]))
    """

    kind: ClassVar[str] = "images"
    dtype: ClassVar[torch.dtype] = torch.uint8

    size: int
    channels: int = 3
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    crop: float = 1.0

    def __post_init__(self) -> None:
        View(self.size, self.channels, self.crop)  # checks them
        set_statistics(self, self.channels)
        self.normalise()  # checks that mean and std have as many values

    @property
    def shape(self) -> tuple[int | None, ...]:
        return self.channels, self.size, self.size

    def normalise(self) -> Normalise:
        """Return the transform of training; a new one each time, because it keeps memory that threads must not share.

        >>> ImageInputs(8, 1, mean=(0.5,), std=(0.25,)).normalise()
        Normalise(mean=(0.5,), std=(0.25,))
        """
        return Normalise(self.mean, self.std)

    def prepare(self, raw: Image | Sequence[Image]) -> Tensor:
        pixels = [self._read(image) for image in self.items(raw)]
        stacked = np.stack(pixels) if pixels else np.empty((0, self.size, self.size, self.channels), np.uint8)
        return torch.from_numpy(np.ascontiguousarray(stacked.transpose(0, 3, 1, 2)))

    def transform(self, x: Tensor) -> Tensor:
        return self.normalise()(x)

    def items(self, raw: Any) -> Any:
        # an array (b, h, w, c) is several images
        is_one = isinstance(raw, str | PathLike | bytes) or (isinstance(raw, np.ndarray) and raw.ndim != 4)
        return [raw] if is_one else raw

    def record(self) -> dict[str, Any]:
        return {**super().record(), "resized": RESIZED}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        if record["resized"] != RESIZED:
            raise ValueError(f"images are resized {RESIZED!r} here, and were resized {record['resized']!r}")
        return super().from_record(record)

    def _read(self, image: Image) -> NDArray[np.uint8]:
        """Return the pixels ``(size, size, c)`` of an image."""
        if isinstance(image, np.ndarray):
            return self._from_array(image)
        try:
            return self._cut(image if isinstance(image, bytes) else read_bytes(image))
        except DataError as error:
            path = None if isinstance(image, bytes) else image
            raise DataError(f"the image {error.message}; replace it or leave it out", path=path) from error

    def _cut(self, data: bytes) -> NDArray[np.uint8]:
        return cut(data, self.size, lambda w, h: centre_box(w, h, self.crop), self.channels)[0]

    def _from_array(self, image: NDArray[Any]) -> NDArray[np.uint8]:
        if image.dtype != np.uint8 or image.ndim not in (2, 3) or image.shape[2:] not in ((), (1,), (3,), (4,)):
            wanted = "uint8 of shape (h, w) or (h, w, c) with 1, 3 or 4 channels"
            message = f"an array of pixels must be {wanted}, got {image.dtype} of shape {image.shape}"
            raise DataError(f"{message}; a tensor of prepared inputs is (b, c, h, w)")
        if not image.size:
            raise DataError(f"an image must have pixels, got an array of shape {image.shape}")
        grey = image[:, :, None] if image.ndim == 2 else image
        if self.crop == 1.0 and grey.shape == (self.size, self.size, self.channels):
            return grey
        return self._cut(_encoded(image))


def _encoded(image: NDArray[np.uint8]) -> bytes:
    """Return the array as a file without loss, so that arrays and files go the same way."""
    pillow, stream = require("PIL.Image", "images", "resizing images"), io.BytesIO()
    flat = image[:, :, 0] if image.shape[2:] == (1,) else image
    pillow.fromarray(np.ascontiguousarray(flat)).save(stream, "PNG", compress_level=0)
    return stream.getvalue()
