"""Mahalanobis distances to class means with a shared covariance."""

from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from openradial.errors import OptionError, ShapeError
from openradial.scorers.base import FeatureScorer, check_classes, check_features, squared_distances, unit_length
from openradial.scorers.statistics import ClassStatistics

SINGULAR = 1e-7  # a share of a standard deviation that is rounding

Shrinkage = float | Literal["ledoit-wolf", "oas"]


class MahalanobisScorer(FeatureScorer):
    r"""The squared Mahalanobis distance to the nearest class mean (Lee et al. 2018).

    :math:`\min_k (z - \mu_k)^\top \Sigma^{-1} (z - \mu_k)`, with the covariance :math:`\Sigma` of the features around
    their class means, pooled over the classes. ``relative`` subtracts the squared distance under one Gaussian for all
    features, which removes what does not depend on the class (Ren et al. 2021). ``normalise`` divides each row by its
    length first, because lengths differ more than a shared covariance can describe: Mahalanobis++ (Mueller and Hein
    2025). A row of zeros stays. Classes without examples are left out; without labels all rows are one class.

    A covariance of few rows or dependent features is singular, so it is shrunk to
    :math:`(1 - s) \Sigma + s \, \tfrac{\operatorname{tr} \Sigma}{d} I`. s is next to 0 for many rows: after Ledoit and
    Wolf (2004), or with ``"oas"`` after Chen et al. (2010), which needs nothing but the covariance. Or ``shrinkage`` is
    s; 0 is the form of Lee et al.

    >>> known, classes = torch.tensor([[0.0], [2.0], [10.0], [12.0]]), torch.tensor([0, 0, 1, 1])
    >>> MahalanobisScorer(shrinkage=0.0).fit(known, classes).unknown_score(torch.tensor([[1.0], [8.0]]))
    tensor([0., 9.])
    """

    fitted: ClassVar[tuple[str, ...]] = ("means", "whitening", "overall_mean", "overall_whitening")
    whitening: Tensor
    overall_mean: Tensor
    overall_whitening: Tensor

    def __init__(
        self, *, relative: bool = False, normalise: bool = False, shrinkage: Shrinkage = "ledoit-wolf"
    ) -> None:
        super().__init__()
        self._solves = False  # whether whitening matrices are Cholesky factors, to be inverted for each score
        is_share = isinstance(shrinkage, int | float) and not isinstance(shrinkage, bool) and 0 <= shrinkage <= 1
        if not (is_share or shrinkage in ("ledoit-wolf", "oas")):
            raise OptionError(f"shrinkage must be 'ledoit-wolf', 'oas' or a number from 0 to 1, got {shrinkage!r}")
        self.relative, self.normalise, self.shrinkage = bool(relative), bool(normalise), shrinkage

    @property
    def is_fitted(self) -> bool:
        return super().is_fitted and (not self.relative or len(self.overall_whitening) > 0)

    def fit(self, z: Tensor, y: Tensor | None = None) -> Self:
        """Fit the class means and the covariances."""
        check_features(z)
        rows = unit_length(z.detach()) if self.normalise else z.detach().double()
        labels = check_classes(y, len(z)).to(z.device) if y is not None else torch.zeros_like(rows[:, 0]).long()
        present, labels = torch.unique(labels, return_inverse=True)
        self._check_count(len(present))
        self._solves = False
        counts = labels.bincount().unsqueeze(1)
        self.means = rows.new_zeros(len(present), rows.shape[1]).index_add(0, labels, rows) / counts
        self.overall_mean = rows.mean(0)
        self.whitening = self._whitening(rows - self.means[labels])
        # only a relative distance needs it
        self.overall_whitening = self._whitening(rows - self.overall_mean) if self.relative else rows[:0]
        return self

    def fit_statistics(self, statistics: ClassStatistics, *, once: bool = False) -> Self:
        """Fit from the statistics of the features; with ``normalise`` they must be those of rows of length 1.

        Ledoit and Wolf's shrinkage needs the features themselves, so ``shrinkage`` must be ``"oas"`` or a number.
        ``once`` is faster for scores of fewer rows than features, after which the scorer is not kept.
        """
        self._solves = once
        if self.shrinkage == "ledoit-wolf":
            raise OptionError("shrinkage='ledoit-wolf' needs features, got statistics; take 'oas' or a number")
        count, present = int(statistics.counts.sum()), statistics.counts > 0
        if not count:
            raise ShapeError("statistics must hold at least one example to learn from, got none")
        self._check_count(int(present.sum()))
        self.means, self.overall_mean = statistics.means[present], statistics.mean
        self.whitening = self._shrunk_whitening(statistics.within().div_(statistics.total), count)
        overall = statistics.scatter / statistics.total
        self.overall_whitening = self._shrunk_whitening(overall, count) if self.relative else overall[:0]
        return self

    def _score(self, z: Tensor) -> Tensor:
        rows = unit_length(z) if self.normalise else z
        deviations, means = rows - self.overall_mean, self.means.double() - self.overall_mean
        score = squared_distances(*(self._whiten(each, self.whitening) for each in (deviations, means))).amin(1)
        if not self.relative:
            return score
        return score - self._whiten(deviations, self.overall_whitening).square().sum(1)

    def _whiten(self, rows: Tensor, by: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(by.double(), rows.T, upper=False).T if self._solves else rows @ by.double()

    def _check_count(self, classes: int) -> None:
        if self.relative and classes == 1:
            raise OptionError("a relative distance needs two classes, got one; give labels or set relative=False")

    def _whitening(self, deviations: Tensor) -> Tensor:
        """Return the whitening of rows minus their means, ``(n, d) -> (d, d)``."""
        covariance = deviations.T @ deviations / len(deviations)
        share = ledoit_wolf(deviations, covariance) if self.shrinkage == "ledoit-wolf" else None
        return self._shrunk_whitening(covariance, len(deviations), share)

    def _shrunk_whitening(self, covariance: Tensor, count: int, share: float | None = None) -> Tensor:
        """Return the matrix W with W Wᵀ the inverse of the shrunk covariance of ``count`` rows, ``(d, d)``."""
        if share is None:
            share = oas(covariance, count) if isinstance(self.shrinkage, str) else self.shrinkage
        mean = covariance.diagonal().mean()
        covariance = (1 - share) * covariance
        covariance.diagonal().add_(share * mean)
        factor, failed = torch.linalg.cholesky_ex(covariance)
        # a pivot is what the features before leave unexplained of this one, whatever their units
        if int(failed) or (factor.diagonal() <= SINGULAR * covariance.diagonal().sqrt()).any():
            message = f"the covariance of the features is singular with shrinkage={self.shrinkage!r}"
            raise OptionError(f"{message}; take a larger shrinkage, or features that vary")
        identity = torch.eye(0 if self._solves else len(factor), dtype=factor.dtype, device=factor.device)
        inverse: Tensor = factor.T if self._solves else torch.linalg.solve_triangular(factor, identity, upper=False)
        return inverse.T


def ledoit_wolf(deviations: Tensor, covariance: Tensor) -> float:
    """Return the share of the identity with the smallest expected error of the covariance (Ledoit and Wolf 2004)."""
    count, width = deviations.shape
    squares = covariance.square().sum()
    noise = (deviations.square().sum(1).square().sum() / count - squares) / (count * width)
    spread = (squares - covariance.diagonal().sum().square() / width) / width
    return float((noise / spread).clamp(0, 1)) if spread > 0 else 0.0


def oas(covariance: Tensor, count: int) -> float:
    """Return the share of the identity for a covariance of ``count`` Gaussian rows (Chen et al. 2010).

    As in scikit-learn, without the terms 2 / d of equation 23, which matter for few features alone.
    """
    squares, trace = covariance.square().sum(), covariance.diagonal().sum()
    spread = (count + 1) * (squares - trace.square() / len(covariance))
    return float(((squares + trace.square()) / spread).clamp(0, 1)) if spread > 0 else 1.0
