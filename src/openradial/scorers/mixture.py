"""A mixture of Gaussians around known features."""

import math
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from openradial.errors import OptionError, check_choice, check_count, check_positive, require
from openradial.scorers.base import FeatureScorer, check_features

SINGULAR = 1e-7  # a share of a standard deviation that is rounding


class MixtureScorer(FeatureScorer):
    """Minus the log of a mixture of Gaussians, fitted by expectation maximisation.

    Fitting needs scikit-learn, scoring does not: weights, means and factors of the precisions are kept as tensors.
    ``regularisation`` is added to every variance; labels are not used.

    >>> mixture = MixtureScorer(1, "diag", regularisation=1e-12).fit(torch.tensor([[-1.0], [1.0]]))
    >>> mixture.unknown_score(torch.tensor([[0.0], [2.0]]))
    tensor([0.9189, 2.9189])
    """

    fitted: ClassVar[tuple[str, ...]] = ("log_weights", "means", "factors")
    log_weights: Tensor
    factors: Tensor

    def __init__(
        self,
        components: int = 10,
        covariance: Literal["full", "diag"] = "full",
        *,
        regularisation: float = 1e-6,
        iterations: int = 200,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_count("components", components)
        check_choice("covariance", covariance, ("full", "diag"))
        check_positive("regularisation", regularisation)
        check_count("iterations", iterations)
        check_count("seed", seed, least=0)
        self.components, self.covariance, self.seed = int(components), covariance, int(seed)
        self.regularisation, self.iterations = float(regularisation), int(iterations)

    def fit(self, z: Tensor, y: Tensor | None = None) -> Self:
        """Fit the mixture; scikit-learn warns if it has not converged after ``iterations``."""
        check_features(z)
        if len(z) < max(2, self.components):
            raise OptionError(
                f"a mixture needs at least 2 rows and one per component, got {len(z)} rows for {self.components} "
                "components; take fewer components or more rows"
            )
        mixture = self._mixture(z.detach().double().cpu().numpy())
        self.log_weights = torch.from_numpy(mixture.weights_).log().to(z.device)
        self.means = torch.from_numpy(mixture.means_).to(z.device)
        self.factors = torch.from_numpy(mixture.precisions_cholesky_).to(z.device)
        return self

    def _mixture(self, rows: Any) -> Any:
        mixture = require("sklearn.mixture", "sklearn", "fitting a MixtureScorer").GaussianMixture(
            self.components,
            covariance_type=self.covariance,
            reg_covar=self.regularisation,
            max_iter=self.iterations,
            random_state=self.seed,
        )
        singular = OptionError(
            f"the covariances of the mixture are singular with regularisation={self.regularisation:g}; take a "
            "larger one, fewer components or covariance='diag'"
        )
        try:
            mixture.fit(rows)
        except ValueError as error:
            raise singular from error
        # Whether LAPACK fails on a singular matrix depends on how the CPU rounds.
        if self.covariance == "full":
            left = 1 / mixture.precisions_cholesky_.diagonal(axis1=1, axis2=2)  # what the axes before do not explain
            if (left <= SINGULAR * mixture.covariances_.diagonal(axis1=1, axis2=2) ** 0.5).any():
                raise singular
        return mixture

    def _score(self, z: Tensor) -> Tensor:
        logs, is_full = [], self.covariance == "full"
        for weight, mean, factor in zip(self.log_weights, self.means.double(), self.factors.double(), strict=True):
            # the precision is F Fᵀ, or F² for each axis
            white = (z - mean) @ factor if is_full else (z - mean) * factor
            log_det = (factor.diagonal() if is_full else factor).log().sum()
            log_density = log_det - 0.5 * (len(mean) * math.log(2 * math.pi) + white.square().sum(1))
            logs.append(weight.double() + log_density)  # (b,)
        return -torch.stack(logs).logsumexp(0)
