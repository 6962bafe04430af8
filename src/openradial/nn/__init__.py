"""Modules: settings and parameters plus one call into :mod:`openradial.functional`."""

from openradial.nn.hidden import hidden_layers
from openradial.nn.layers import RadialLayer, RadialLinear, RadialLoss
from openradial.nn.replace import replace_head

__all__ = ["RadialLayer", "RadialLinear", "RadialLoss", "hidden_layers", "replace_head"]
