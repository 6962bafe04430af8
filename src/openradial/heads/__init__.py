"""Heads: outputs of a network to log-probabilities and an unknown-score, one paper per file."""

from openradial.heads.base import Head, Scorer
from openradial.heads.cac import CACHead
from openradial.heads.combination import Combination
from openradial.heads.doc import DOCHead
from openradial.heads.files import load_head, make_head, save_head
from openradial.heads.gaussian import GaussianMixtureDensity, MahalanobisDensity
from openradial.heads.neighbours import NeighbourDensity
from openradial.heads.openmax import OpenMaxHead
from openradial.heads.parzen import ParzenDensity
from openradial.heads.radial import RadialHead
from openradial.heads.softmax import SoftmaxHead

__all__ = [
    "CACHead",
    "Combination",
    "DOCHead",
    "GaussianMixtureDensity",
    "Head",
    "MahalanobisDensity",
    "NeighbourDensity",
    "OpenMaxHead",
    "ParzenDensity",
    "RadialHead",
    "Scorer",
    "SoftmaxHead",
    "load_head",
    "make_head",
    "save_head",
]
