"""The contract of a scorer: rows in, one unknown score per row out; fitted once, saved as tensors."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from openradial.errors import DTypeError, HeadError, OptionError, ShapeError, TargetError
from openradial.functional.eager import first_order_only

ScorerInput = Literal["outputs", "features", "scores"]
AT_ONCE = 2**22  # numbers of a float64 matrix in memory at a time: 32 MB


class Scorer(nn.Module, ABC):
    """Computes how unknown an input is; larger is more unknown. The score of one input never depends on the others.

    What :meth:`fit` learns is kept in the buffers that ``fitted`` names, which are None before. Together with
    :meth:`settings`, the arguments of the constructor, they are everything that is saved.
    """

    takes: ClassVar[ScorerInput] = "outputs"
    fitted: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        super().__init__()
        for name in self.fitted:
            self.register_buffer(name, None)

    @abstractmethod
    def unknown_score(self, o: Tensor) -> Tensor:
        """Return how unknown each input is, ``(b, k) -> (b,)``."""

    def fit(self, o: Tensor, y: Tensor) -> Self:
        """Fit on known data, ``(n, k), (n,)``; does nothing where there is nothing to learn."""
        return self

    def settings(self) -> dict[str, Any]:
        """Return the arguments of the constructor, which are attributes of the same names, as JSON can hold them."""
        return {name: getattr(self, name) for name in signature(type(self)).parameters if hasattr(self, name)}

    def tensors(self) -> dict[str, Tensor]:
        """Return what was fitted, by name."""
        return {name: value for name in self.fitted if (value := getattr(self, name)) is not None}

    def restore(self, tensors: Mapping[str, Tensor]) -> Self:
        """Restore what :meth:`tensors` returned."""
        for name in self.fitted:
            setattr(self, name, tensors.get(name))
        return self

    @classmethod
    def from_parts(cls, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Build the scorer that returned these :meth:`settings` and :meth:`tensors`."""
        return cls(**settings).restore(tensors)

    @property
    def is_fitted(self) -> bool:
        """Whether nothing is left to fit."""
        return all(getattr(self, name) is not None for name in self.fitted)

    def _check_fitted(self) -> None:
        if not self.is_fitted:
            call = "fit(outputs, labels)" if self.takes == "outputs" else f"fit({self.takes})"
            raise HeadError(f"{type(self).__name__} must be fitted first: call {call} with known data")

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.settings().items())


class FeatureScorer(Scorer):
    """A scorer of features, or of flattened inputs, ``(b, d)``; computed in float64 and in bounded memory.

    The score has the dtype of the features, and at least float32. A row with nan scores nan, a row with an infinity
    scores infinity, and so does a row too far away for float64; other rows are unaffected.
    """

    takes: ClassVar[ScorerInput] = "features"
    means: Tensor  # (m, d) of classes, components or kernels

    def unknown_score(self, z: Tensor) -> Tensor:
        self._check_fitted()
        check_rows("features", z, self.means.shape[1])
        rows = z.double()
        finite = torch.isfinite(rows).all(1)
        safe = torch.where(finite.unsqueeze(1), rows, 0.0)
        score = torch.cat([self._score(part) for part in torch.split(safe, self._rows_at_once())])
        score = score.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
        return torch.where(finite, score, rows.abs().sum(1)).to(at_least_float32(z).dtype)

    @abstractmethod
    def _score(self, z: Tensor) -> Tensor:
        """Return the score of finite rows, ``(b, d) -> (b,)``, both float64."""

    def _rows_at_once(self) -> int:
        """Return the number of rows that are scored at a time."""
        return max(1, AT_ONCE // max(self.means.shape))


def check_rows(name: str, x: Tensor, width: int | None = None) -> None:
    """Raise unless ``x`` is floating point of shape (b, width)."""
    if not isinstance(x, Tensor):
        raise DTypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}; convert them with torch.as_tensor")
    if x.ndim != 2 or (width is not None and x.shape[1] != width):
        raise ShapeError(f"{name} must have the shape (b, {'d' if width is None else width}), got {tuple(x.shape)}")
    if not x.is_floating_point():
        raise DTypeError(f"{name} must be floating point, got {x.dtype}; convert them with .float()")


def check_known(name: str, x: Tensor) -> None:
    """Raise unless there is at least one row, and all are finite."""
    if not len(x):
        raise ShapeError(f"{name} must hold at least one example to learn from, got none")
    if x.sum(dtype=torch.float64).isfinite():  # faster; in float64 no sum of float32 overflows
        return
    bad = ~torch.isfinite(x).all(1)
    if bad.any():
        rows = f"{int(bad.sum())} rows, the first is row {int(bad.int().argmax())}"
        raise ShapeError(f"{name} must be finite, got nan or infinity in {rows}")


def check_labels(y: Tensor, count: int, num_classes: int) -> None:
    """Raise unless ``y`` has one known class per row; values are not checked while tracing or compiling."""
    if not isinstance(y, Tensor):
        raise DTypeError(f"labels must be a torch.Tensor, got {type(y).__name__}; convert them with torch.as_tensor")
    if y.shape != (count,):
        raise ShapeError(f"labels must have the shape ({count},), one per row, got {tuple(y.shape)}")
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise DTypeError(f"labels must be whole numbers, got {y.dtype}; convert them with .long()")
    if not first_order_only(y):
        return
    wrong = (y < 0) | (y >= num_classes)
    if wrong.any():
        row = int(wrong.int().argmax())
        raise TargetError(f"labels must be classes from 0 to {num_classes - 1}, got {int(y[row])} in row {row}")


def at_least_float32(x: Tensor) -> Tensor:
    """Return ``x``, in float32 where it has half precision."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def check_features(z: Tensor) -> None:
    """Raise unless ``z`` are finite floating-point rows ``(n, d)``, at least one."""
    check_rows("features", z)
    check_known("features", z)


def check_classes(y: Tensor | None, count: int) -> Tensor:
    """Return the labels as int64; raise unless there is a class for each row."""
    if y is None:
        raise OptionError("labels are needed to tell the classes apart, got None; call fit(features, labels)")
    most = int(y.max()) if isinstance(y, Tensor) and y.numel() else 0
    check_labels(y, count, max(most, 0) + 1)
    return y.long()


def draw_rows(count: int, most: int, seed: int) -> Tensor:
    """Return the indices of all rows, or of ``most`` of them at random."""
    if count <= most:
        return torch.arange(count)
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:most]


def unit_length(z: Tensor) -> Tensor:
    """Return the rows divided by their lengths, float64; a row of zeros stays, and no length over- or underflows."""
    rows = z.double()
    largest = rows.detach().abs().amax(1, keepdim=True)
    rows = rows / largest.where(largest > 0, 1.0)
    length: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / length.where(length > 0, 1.0)


def squared_distances(z: Tensor, points: Tensor) -> Tensor:
    """Return the squared distance of each row to each point, ``(b, d), (m, d) -> (b, m)``, by one matrix product.

    Cancellation is of the order of 1e-16 times the squared spread of the points: precise enough for sums over points.
    """
    centre = points.mean(0)
    z, points = z - centre, points - centre
    half = torch.addmm(points.square().sum(1) / 2, z, points.T, alpha=-1)  # (b, m)
    return (2 * half + z.square().sum(1, keepdim=True)).clamp_min(0)


@contextmanager
def limited_threads(threads: int) -> Iterator[None]:
    """Let torch use ``threads`` CPU threads inside the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
