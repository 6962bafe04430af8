"""Mahalanobis distances to class means with a shared covariance."""

from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from openradial.errors import OptionError
from openradial.scorers.base import FeatureScorer, check_classes, check_features, squared_distances

SINGULAR = 1e-7  # a share of a standard deviation that is rounding


class MahalanobisScorer(FeatureScorer):
    r"""The squared Mahalanobis distance to the nearest class mean (Lee et al. 2018).

    :math:`\min_k (z - \mu_k)^\top \Sigma^{-1} (z - \mu_k)`, with the covariance :math:`\Sigma` of the features around
    their class means, pooled over the classes. ``relative`` subtracts the squared distance under one Gaussian for all
    features, which removes what does not depend on the class (Ren et al. 2021). Classes without examples are left out;
    without labels all rows are one class.

    A covariance of few rows or dependent features is singular, so it is shrunk to
    :math:`(1 - s) \Sigma + s \, \tfrac{\operatorname{tr} \Sigma}{d} I`, with s after Ledoit and Wolf (2004), next to 0
    for many rows, or given as ``shrinkage``; 0 is the paper's form.

    >>> known, classes = torch.tensor([[0.0], [2.0], [10.0], [12.0]]), torch.tensor([0, 0, 1, 1])
    >>> MahalanobisScorer(shrinkage=0.0).fit(known, classes).unknown_score(torch.tensor([[1.0], [8.0]]))
    tensor([0., 9.])
    """

    fitted: ClassVar[tuple[str, ...]] = ("means", "whitening", "overall_mean", "overall_whitening")
    whitening: Tensor
    overall_mean: Tensor
    overall_whitening: Tensor

    def __init__(self, *, relative: bool = False, shrinkage: float | Literal["ledoit-wolf"] = "ledoit-wolf") -> None:
        super().__init__()
        is_share = isinstance(shrinkage, int | float) and not isinstance(shrinkage, bool) and 0 <= shrinkage <= 1
        if not (is_share or shrinkage == "ledoit-wolf"):
            raise OptionError(f"shrinkage must be 'ledoit-wolf' or a number from 0 to 1, got {shrinkage!r}")
        self.relative, self.shrinkage = bool(relative), shrinkage

    def fit(self, z: Tensor, y: Tensor | None = None) -> Self:
        """Fit the class means and the covariances."""
        check_features(z)
        rows = z.detach().double()
        labels = check_classes(y, len(z)).to(z.device) if y is not None else torch.zeros_like(rows[:, 0]).long()
        present, labels = torch.unique(labels, return_inverse=True)
        if self.relative and len(present) == 1:
            raise OptionError(
                "a relative distance needs at least two classes, got one; give labels or take relative=False"
            )
        counts = labels.bincount().unsqueeze(1)
        self.means = rows.new_zeros(len(present), rows.shape[1]).index_add(0, labels, rows) / counts
        self.overall_mean = rows.mean(0)
        self.whitening = _whitening(rows - self.means[labels], self.shrinkage)
        self.overall_whitening = _whitening(rows - self.overall_mean, self.shrinkage)
        return self

    def _score(self, z: Tensor) -> Tensor:
        deviations, means = z - self.overall_mean, self.means.double() - self.overall_mean
        whitening = self.whitening.double()
        score = squared_distances(deviations @ whitening, means @ whitening).amin(1)
        if not self.relative:
            return score
        return score - (deviations @ self.overall_whitening.double()).square().sum(1)


def _whitening(deviations: Tensor, shrinkage: float | str) -> Tensor:
    """Return the matrix W with W Wᵀ the inverse of the shrunk covariance, ``(n, d) -> (d, d)``."""
    covariance = deviations.T @ deviations / len(deviations)
    share = ledoit_wolf(deviations, covariance) if isinstance(shrinkage, str) else shrinkage
    identity = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    covariance = (1 - share) * covariance + share * covariance.diagonal().mean() * identity
    factor, failed = torch.linalg.cholesky_ex(covariance)
    # a pivot is what the features before leave unexplained of this one, whatever their units
    if int(failed) or (factor.diagonal() <= SINGULAR * covariance.diagonal().sqrt()).any():
        raise OptionError(
            f"the covariance of the features is singular with shrinkage={shrinkage!r}; take a larger shrinkage, or "
            "features that vary"
        )
    inverse: Tensor = torch.linalg.solve_triangular(factor, identity, upper=False)
    return inverse.T


def ledoit_wolf(deviations: Tensor, covariance: Tensor) -> float:
    """Return the share of the identity with the smallest expected error of the covariance (Ledoit and Wolf 2004)."""
    count, width = deviations.shape
    squares = covariance.square().sum()
    noise = (deviations.square().sum(1).square().sum() / count - squares) / (count * width)
    spread = (squares - covariance.diagonal().sum().square() / width) / width
    return float((noise / spread).clamp(0, 1)) if spread > 0 else 0.0
