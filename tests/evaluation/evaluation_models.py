"""Bundles without training, small enough to compute by hand: what the tests of evaluation share."""

import numpy as np
import torch

from openradial import models
from openradial.classifier import OpenClassifier
from openradial.conformal import Rejector
from openradial.data.inputs import ImageInputs, PointInputs, TableInputs, TextInputs
from openradial.data.table_encoder import NumberFeature, TableEncoder, WordFeature
from openradial.heads import RadialHead


def open_bundle(inputs, network, options, weight, classes=("a", "b"), rate=0.2, facts=None):
    """A linear network with these weights; the rejector knows distances from 0.01 to 0.99."""
    net = models.build(network, len(classes), **options)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        net.classifier.weight.copy_(torch.as_tensor(weight, dtype=torch.float32))
    rejector = Rejector(rate).fit(np.arange(1, 100) / 100)
    classifier = OpenClassifier(net, RadialHead(len(classes)), rejector=rejector)
    return classifier.replace(network=(network, options), classes=classes, preprocessing=inputs, metadata=facts or {})


def table_bundle(**options):
    """Columns ``x`` and ``y`` are the outputs; a word is looked at and counts nothing."""
    features = (
        NumberFeature("x", mean=0.5, shift=0.0, scale=1.0),
        NumberFeature("y", mean=0.5, shift=0.0, scale=1.0),
        WordFeature("word", ("left", "right"), (0.5, 0.5)),
    )
    encoder = TableEncoder(features, ("a", "b"), missing="mean", unknown="zeros")
    weight = [[1, 0, 0, 0], [0, 1, 0, 0]]
    return open_bundle(TableInputs(encoder), "mlp", {"inputs": 4, "hidden": []}, weight, **options)


def image_bundle(**options):
    """The outputs are the upper left and the upper right pixel of 2 x 2."""
    weight = [[1, 0, 0, 0], [0, 1, 0, 0]]
    return open_bundle(ImageInputs(2, 1), "mlp", {"inputs": 4, "hidden": []}, weight, **options)


def point_bundle(**options):
    return open_bundle(PointInputs(2), "mlp", {"inputs": 2, "hidden": []}, np.eye(2), **options)


def text_inputs():
    return TextInputs(("good", "bad"), max_words=5)
