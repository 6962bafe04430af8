"""Compare open-world methods: one network per loss, every score on the same outputs, several seeds."""

from benchmarks.comparison.methods import METHODS, LayerScore, Method
from benchmarks.comparison.runs import Comparison, compare

__all__ = ["METHODS", "Comparison", "LayerScore", "Method", "compare"]
