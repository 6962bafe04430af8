"""Bayes by Backprop: networks whose weights are Gaussians, and what their predictions say about themselves."""

from openradial.bayes.conversion import freeze, to_bayesian
from openradial.bayes.ensembles import Ensemble, MCDropout
from openradial.bayes.gaussian import Posterior, posterior
from openradial.bayes.layers import BayesConv1d, BayesConv2d, BayesEmbedding, BayesLayer, BayesLinear
from openradial.bayes.objective import BatchCounter, Elbo, ElboObjective, elbo, kl_weight
from openradial.bayes.prediction import Prediction, predict
from openradial.bayes.priors import GaussianPrior, Prior, ScaleMixturePrior
from openradial.bayes.recurrent import BayesGRU, BayesLSTM, BayesRNN
from openradial.bayes.uncertainty import (
    expected_entropy,
    expected_missing_mass,
    mutual_information,
    predictive_entropy,
    with_missing_mass,
)

__all__ = [
    "BatchCounter",
    "BayesConv1d",
    "BayesConv2d",
    "BayesEmbedding",
    "BayesGRU",
    "BayesLSTM",
    "BayesLayer",
    "BayesLinear",
    "BayesRNN",
    "Elbo",
    "ElboObjective",
    "Ensemble",
    "GaussianPrior",
    "MCDropout",
    "Posterior",
    "Prediction",
    "Prior",
    "ScaleMixturePrior",
    "elbo",
    "expected_entropy",
    "expected_missing_mass",
    "freeze",
    "kl_weight",
    "mutual_information",
    "posterior",
    "predict",
    "predictive_entropy",
    "to_bayesian",
    "with_missing_mass",
]
