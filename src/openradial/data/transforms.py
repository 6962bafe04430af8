"""Transforms of complete batches of images: random changes for training, and normalisation.

A transform takes a batch ``(n, c, h, w)`` and a generator of random numbers, and returns a batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as TF
from torch import Generator, Tensor

from openradial.errors import OptionError, ShapeError, check_count, check_positive

Transform = Callable[[Tensor, Generator], Tensor]


@dataclass(frozen=True)
class Compose:
    """Apply one transform after the other."""

    transforms: tuple[Transform, ...]

    def __init__(self, *transforms: Transform) -> None:
        object.__setattr__(self, "transforms", transforms)

    def __call__(self, x: Tensor, generator: Generator) -> Tensor:
        for transform in self.transforms:
            x = transform(x, generator)
        return x


@dataclass(frozen=True)
class Normalise:
    """``(x / 255 - mean) / std`` for uint8 images and ``(x - mean) / std`` for others, per channel, in float32.

    >>> Normalise(0.5, 0.25)(torch.tensor([[[[0, 255]]]], dtype=torch.uint8))
    tensor([[[[-2.,  2.]]]])
    """

    mean: float | Sequence[float] = 0.0
    std: float | Sequence[float] = 1.0

    def __post_init__(self) -> None:
        for value in np.atleast_1d(self.std):
            check_positive("std", float(value))
        if np.size(self.mean) != np.size(self.std):
            sizes = f"{np.size(self.mean)} and {np.size(self.std)}"
            raise OptionError(f"mean and std must have one value per channel each, got {sizes}")

    def __call__(self, x: Tensor, generator: Generator | None = None) -> Tensor:
        channels = np.size(self.mean)
        if channels > 1 and (x.ndim != 4 or x.shape[1] != channels):
            message = f"mean and std are for {channels} channels, got images of shape {tuple(x.shape)}"
            raise ShapeError(f"{message}; give one value, or one for each channel of (n, c, h, w)")
        unit = 255.0 if x.dtype == torch.uint8 else 1.0
        shape = (channels, 1, 1) if x.ndim == 4 else (1,)
        factor = (1 / (unit * np.asarray(self.std, np.float64))).astype(np.float32).reshape(shape)
        offset = (-np.asarray(self.mean, np.float64) / np.asarray(self.std)).astype(np.float32).reshape(shape)
        if x.device.type == "cpu" and not torch.compiler.is_compiling():
            # NumPy converts and multiplies piece by piece in the cache, and waits for no thread that decoders keep busy
            made = np.multiply(x.numpy(), factor, dtype=np.float32, casting="unsafe")
            return torch.from_numpy(np.add(made, offset, out=made))
        return x.float().mul_(torch.from_numpy(factor).to(x.device)).add_(torch.from_numpy(offset).to(x.device))


@dataclass(frozen=True)
class RandomFlip:
    """Mirror each image left to right with a probability."""

    probability: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise OptionError(f"probability must lie in 0..1, got {self.probability}")

    def __call__(self, x: Tensor, generator: Generator) -> Tensor:
        flipped = (torch.rand(len(x), generator=generator) < self.probability).to(x.device)
        return torch.where(flipped.view(-1, 1, 1, 1), x.flip(-1), x)


@dataclass(frozen=True)
class RandomShift:
    """Move each image by up to so many pixels in both directions; what comes in at the border is a reflection."""

    pixels: int = 4

    def __post_init__(self) -> None:
        check_count("pixels", self.pixels)

    def __call__(self, x: Tensor, generator: Generator) -> Tensor:
        if self.pixels >= min(x.shape[-2:]):
            raise OptionError(
                f"images of {x.shape[-2]} x {x.shape[-1]} pixels cannot move by {self.pixels}; shift less"
            )
        moves = torch.randint(-self.pixels, self.pixels + 1, (2, len(x)), generator=generator).to(x.device)
        rows, columns = (_reflected(move, side) for move, side in zip(moves, x.shape[-2:], strict=True))
        n = torch.arange(len(x), device=x.device).view(-1, 1, 1, 1)
        c = torch.arange(x.shape[1], device=x.device).view(1, -1, 1, 1)
        return x[n, c, rows[:, None, :, None], columns[:, None, None, :]]


def _reflected(move: Tensor, side: int) -> Tensor:
    """Return which pixels of a side are seen after moves, ``(n,) -> (n, side)``; the outermost one is not repeated."""
    seen = (torch.arange(side, device=move.device) + move.unsqueeze(1)).abs()
    return torch.where(seen < side, seen, 2 * (side - 1) - seen)


@dataclass(frozen=True)
class RandomErase:
    """Set a square of each image at a random position to 0, the mean of normalised images (Cutout, DeVries 2017)."""

    pixels: int = 8

    def __post_init__(self) -> None:
        check_count("pixels", self.pixels)

    def __call__(self, x: Tensor, generator: Generator) -> Tensor:
        inside = []
        for side in x.shape[-2:]:
            centre = torch.randint(side, (len(x), 1), generator=generator)
            before = torch.arange(side) - (centre - self.pixels // 2)  # (n, side)
            inside.append(((before >= 0) & (before < self.pixels)).to(x.device))
        return x.masked_fill((inside[0].unsqueeze(2) & inside[1].unsqueeze(1)).unsqueeze(1), 0)


def _half_the_time(n: int, bound: float, generator: Generator) -> Tensor:
    """Return n random numbers: half of them are 0, the others uniform between -bound and bound."""
    values, used = torch.rand(2, n, generator=generator)
    return torch.where(used < 0.5, (2 * values - 1) * bound, 0.0)


@dataclass(frozen=True)
class RandomAffine:
    """Turn, shear and zoom each image at random; each change is made to half of the images.

    With a strength of 1, images turn by up to 20 degrees, are sheared by up to 0.25 in each direction and zoomed by a
    factor between 0.78 and 1.28. Larger strengths multiply angle, shear and the logarithm of the zoom. What comes in
    at the border is a reflection.
    """

    strength: float = 1.0

    def __post_init__(self) -> None:
        check_positive("strength", self.strength)

    def __call__(self, x: Tensor, generator: Generator) -> Tensor:
        angle, *shear, zoom = (
            _half_the_time(len(x), bound * self.strength, generator) for bound in (0.35, 0.25, 0.25, 0.25)
        )
        cos, sin, zero = angle.cos() * zoom.exp(), angle.sin(), torch.zeros(len(x))
        rows = [torch.stack([cos, shear[0] - sin, zero], 1), torch.stack([shear[1] + sin, cos, zero], 1)]
        grid = TF.affine_grid(torch.stack(rows, 1).to(x), list(x.shape), align_corners=False)
        return TF.grid_sample(x, grid, padding_mode="reflection", align_corners=False)


@dataclass(frozen=True)
class RandomColour:
    """Change brightness, contrast and, with several channels, saturation of each normalised image at random.

    Each change is made to half of the images. With a strength of 1, up to 0.8 standard deviations are added, contrast
    is multiplied by 0.6 to 1.65 and saturation by 0.3 to 1.7.
    """

    strength: float = 1.0

    def __post_init__(self) -> None:
        check_positive("strength", self.strength)

    def __call__(self, x: Tensor, generator: Generator) -> Tensor:
        brightness, contrast, saturation = (
            _half_the_time(len(x), bound * self.strength, generator).view(-1, 1, 1, 1).to(x)
            for bound in (0.8, 0.5, 0.7)
        )
        x = x + brightness
        mean, grey = x.mean((1, 2, 3), keepdim=True), x.mean(1, keepdim=True)
        # contrast scales all differences to the mean of the image, saturation only those to the grey image
        return mean + contrast.exp() * (grey - mean + (1 + saturation) * (x - grey))
