"""Bundles: a fitted open-world classifier as a folder of files, with everything that a prediction needs.

A bundle holds the network, the head and the decision, the names of the classes, and how raw inputs become tensors. It
is saved as ``weights.safetensors``, ``bundle.json`` and ``card.md``. Nothing in it can run code.
"""

from openradial.bundle.loading import describe, load
from openradial.bundle.record import BundleRecord
from openradial.bundle.saving import save

__all__ = ["BundleRecord", "describe", "load", "save"]
