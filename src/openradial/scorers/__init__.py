"""Scorers: features or outputs of a network to an unknown score, and the combination of several scores."""

from openradial.scorers.base import Scorer
from openradial.scorers.combination import Combination
from openradial.scorers.mahalanobis import MahalanobisScorer
from openradial.scorers.mixture import MixtureScorer
from openradial.scorers.neighbours import NeighbourScorer
from openradial.scorers.norm import NormScorer
from openradial.scorers.parzen import ParzenScorer
from openradial.scorers.statistics import ClassStatistics

__all__ = ["ClassStatistics", "Combination", "MahalanobisScorer", "MixtureScorer", "NeighbourScorer", "NormScorer"]
__all__ += ["ParzenScorer", "Scorer"]
