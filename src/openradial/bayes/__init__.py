"""Bayes by Backprop: networks whose weights are Gaussians, their predictions and uncertainties."""

from openradial.bayes.conversion import freeze, to_bayesian
from openradial.bayes.layers import (
    BayesConv1d,
    BayesConv2d,
    BayesEmbedding,
    BayesGRU,
    BayesLayer,
    BayesLinear,
    BayesLSTM,
    BayesRNN,
)
from openradial.bayes.objective import BatchCounter, Elbo, ElboObjective, elbo, kl_weight
from openradial.bayes.posterior import Posterior, posterior
from openradial.bayes.prediction import (
    MCDropout,
    SampledPrediction,
    expected_entropy,
    expected_missing_mass,
    mutual_information,
    predict,
    predictive_entropy,
    with_missing_mass,
)
from openradial.bayes.priors import GaussianPrior, Prior, ScaleMixturePrior

__all__ = ["BatchCounter", "BayesConv1d", "BayesConv2d", "BayesEmbedding", "BayesGRU", "BayesLSTM", "BayesLayer"]
__all__ += ["BayesLinear", "BayesRNN", "Elbo", "ElboObjective", "GaussianPrior", "MCDropout", "Posterior"]
__all__ += ["Prior", "SampledPrediction", "ScaleMixturePrior", "elbo", "expected_entropy", "expected_missing_mass"]
__all__ += ["freeze", "kl_weight", "mutual_information", "posterior", "predict", "predictive_entropy", "to_bayesian"]
__all__ += ["with_missing_mass"]
