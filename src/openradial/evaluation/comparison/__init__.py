"""Compare ways of being open-world: one network per loss, every score on the same outputs, several seeds."""

from openradial.evaluation.comparison.methods import METHODS, Method, Part
from openradial.evaluation.comparison.running import Comparison, compare

__all__ = ["METHODS", "Comparison", "Method", "Part", "compare"]
