"""Compare open-world methods: one network per loss, every score on the same outputs, several seeds."""

from openradial.evaluation.comparison.comparison import Comparison, compare
from openradial.evaluation.comparison.methods import METHODS, LayerScore, Method

__all__ = ["METHODS", "Comparison", "LayerScore", "Method", "compare"]
