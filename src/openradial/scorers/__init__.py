"""Scorers: features or outputs of a network to an unknown score, and the combination of several scores."""

from openradial.scorers.base import Scorer
from openradial.scorers.combination import Combination
from openradial.scorers.gaussian import GaussianMixtureDensity, MahalanobisDensity
from openradial.scorers.neighbours import NeighbourDensity
from openradial.scorers.parzen import ParzenDensity

__all__ = [
    "Combination",
    "GaussianMixtureDensity",
    "MahalanobisDensity",
    "NeighbourDensity",
    "ParzenDensity",
    "Scorer",
]
