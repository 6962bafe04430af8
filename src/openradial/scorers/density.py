"""What every density model keeps to: features in, an unknown-score out, computed in float64 and in bounded memory."""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from openradial.errors import OptionError
from openradial.scorers.base import Input, Scorer, at_least_float32, check_known, check_labels, check_rows

AT_ONCE = 2**22  # numbers of a float64 matrix that are held at a time: 32 MB


class Density(Scorer):
    """A scorer of features, or of inputs made flat, ``(b, d)``.

    The score has the dtype of the features, and at least float32. A row with nan scores nan, a row with an infinity
    scores infinity, and so does a row too far away for float64; none of them touches the other rows.
    """

    takes: ClassVar[Input] = "features"

    def unknown_score(self, z: Tensor) -> Tensor:
        self._check_fitted()
        check_rows("features", z, self.width)
        rows = z.double()
        finite = torch.isfinite(rows).all(1)
        safe = torch.where(finite.unsqueeze(1), rows, 0.0)
        score = torch.cat([self._score(part) for part in torch.split(safe, self._rows_at_once())])
        score = score.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
        return torch.where(finite, score, rows.abs().sum(1)).to(at_least_float32(z).dtype)

    @property
    @abstractmethod
    def width(self) -> int:
        """How many features a row has; known once fitted."""

    @abstractmethod
    def _score(self, z: Tensor) -> Tensor:
        """The score of finite rows, ``(b, d) -> (b,)``, both float64."""

    @abstractmethod
    def _rows_at_once(self) -> int:
        """How many rows fit into bounded memory."""


def check_features(z: Tensor) -> None:
    """Raise unless ``z`` can be learned from: finite floating point rows ``(n, d)``, at least one."""
    check_rows("features", z)
    check_known("features", z)


def check_classes(y: Tensor | None, count: int) -> Tensor:
    """Raise unless ``y`` holds a class for each row, whatever the number of classes; the labels as int64."""
    if y is None:
        raise OptionError("labels are needed to tell the classes apart, got None; call fit(features, labels)")
    most = int(y.max()) if isinstance(y, Tensor) and y.numel() else 0
    check_labels(y, count, max(most, 0) + 1)
    return y.long()


def squared_distances(z: Tensor, points: Tensor) -> Tensor:
    """Squared distance of each row to each point, ``(b, d), (m, d) -> (b, m)``, by one matrix product in float64.

    What cancels is of the order of 1e-16 times the squared spread of the points, so it is for sums over many points.
    """
    centre = points.mean(0)
    z, points = z - centre, points - centre
    half = torch.addmm(points.square().sum(1) / 2, z, points.T, alpha=-1)  # (b, m)
    return (2 * half + z.square().sum(1, keepdim=True)).clamp_min(0)
