"""Bundles: a trained open-world classifier as a folder of files, with all that a prediction needs.

A bundle holds the network, the head and the decision, the names of the classes, and how raw inputs become tensors. It
is saved as ``weights.safetensors``, ``bundle.json`` and ``card.md``. Nothing in it can run code.
"""

from openradial.bundle.bundle import Bundle
from openradial.bundle.images import ImageInputs
from openradial.bundle.inputs import Inputs
from openradial.bundle.loading import describe, load
from openradial.bundle.predictions import Predictions
from openradial.bundle.rows import PointInputs, SequenceInputs, TextInputs
from openradial.bundle.saving import save
from openradial.bundle.tables import TableInputs

__all__ = [
    "Bundle",
    "ImageInputs",
    "Inputs",
    "PointInputs",
    "Predictions",
    "SequenceInputs",
    "TableInputs",
    "TextInputs",
    "describe",
    "load",
    "save",
]
