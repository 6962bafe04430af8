"""Modules: settings and parameters plus one call into :mod:`openradial.functional`."""

from openradial.nn.hidden import hidden_layers
from openradial.nn.layers import RadialLayer, RadialLinear, RadialLoss
from openradial.nn.prototypes import AxisPrototypes, FixedPrototypes, LearnedPrototypes, SimplexPrototypes
from openradial.nn.replace import replace_head

__all__ = ["AxisPrototypes", "FixedPrototypes", "LearnedPrototypes", "RadialLayer", "RadialLinear", "RadialLoss"]
__all__ += ["SimplexPrototypes", "hidden_layers", "replace_head"]
