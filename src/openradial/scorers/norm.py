"""How far beyond the training data an input lies: zero on them, and without bound along every ray."""

from collections.abc import Callable, Iterable
from typing import ClassVar, Self

import torch
from torch import Tensor

from openradial.errors import OptionError
from openradial.scorers.base import FeatureScorer, check_features


class NormScorer(FeatureScorer):
    r"""The excess of the standardised norm over the largest one of the training data.

    .. math:: e(z) = \max\bigl(0, \tfrac{r(z)}{R} - 1\bigr), \quad r(z)^2 = \sum_i \frac{(z_i - \mu_i)^2}{s_i^2},
        \quad R = \max_n r(z_n)

    with :math:`s_i^2 = (1 - s)\,\sigma_i^2 + s\,\overline{\sigma^2}` for ``shrinkage`` s: a column that is constant in
    the training data, such as a pixel at the border, counts too. All :math:`s_i` are positive, so e grows without bound
    along every ray. It drives the far axis of :class:`openradial.OpenClassifier`; see docs/far-away.md.

    >>> known = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    >>> NormScorer().fit(known).unknown_score(torch.tensor([[0.5, 0.5], [4.0, 0.0], [400.0, 0.0]]))
    tensor([  0.0000,   2.6594, 364.9413])
    """

    fitted: ClassVar[tuple[str, ...]] = ("means", "scales", "largest")
    scales: Tensor  # (1, d)
    largest: Tensor  # () the largest norm

    def __init__(self, shrinkage: float = 0.1) -> None:
        super().__init__()
        if isinstance(shrinkage, bool) or not isinstance(shrinkage, int | float) or not 0 < shrinkage <= 1:
            raise OptionError(f"shrinkage must be above 0 and at most 1, got {shrinkage!r}; 0 ignores constant columns")
        self.shrinkage = float(shrinkage)

    def fit(self, z: Tensor, y: Tensor | None = None) -> Self:
        """Fit to known features or flattened inputs, ``(n, d)``."""
        return self.fit_batches(lambda: torch.split(z, 1024))

    @torch.no_grad()
    def fit_batches(self, read: Callable[[], Iterable[Tensor]]) -> Self:
        """Fit to batches of rows ``(b, d)``; ``read`` is called twice for them, and none is kept."""
        count, sums = 0, torch.zeros(())
        for z in read():
            check_features(z)
            rows = z.double()
            if not count:
                shift = rows.mean(0)  # near the mean, so that the sum of squares does not cancel
            count += len(rows)
            sums = sums + torch.stack([rows - shift, (rows - shift).square()]).sum(1)  # (2, d)
        if not count:
            check_features(torch.empty(0, 1))
        mean, square = sums / count
        variance = (square - mean.square()).clamp_min(0)
        variance = (1 - self.shrinkage) * variance + self.shrinkage * variance.mean()
        self.means = (shift + mean).unsqueeze(0)
        self.scales = variance.where(variance > 0, 1.0).sqrt().unsqueeze(0)  # 0 where all rows are equal
        largest = torch.stack([self._norms(z.double()).max() for z in read()]).max()
        self.largest = largest.where(largest > 0, 1.0)
        return self

    def _score(self, z: Tensor) -> Tensor:
        return (self._norms(z) / self.largest.double() - 1).clamp_min(0)

    def _norms(self, z: Tensor) -> Tensor:
        norms: Tensor = torch.linalg.vector_norm((z - self.means.double()) / self.scales.double(), dim=1)
        return norms
