"""Frozen encoders: images and texts to features, by name, with weights that are verified by their SHA-256.

An encoder is a network that is never trained here, with the inputs that it takes. The features of an input do not
depend on the other inputs of its batch. :func:`encode` keeps them on disk, so that no input is encoded twice.
"""

from openradial.encoders.cache import FeatureCache
from openradial.encoders.encoding import encode
from openradial.encoders.registry import Encoder, build, fit_tfidf, load, names

__all__ = ["Encoder", "FeatureCache", "build", "encode", "fit_tfidf", "load", "names"]
