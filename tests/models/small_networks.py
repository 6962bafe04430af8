"""Each network in a form small enough to train in a test, with inputs of its kind."""

import torch

from openradial.models import build


def points(d):
    return lambda b: torch.randn(b, d)


def images(channels, size):
    return lambda b: torch.randn(b, channels, size, size)


def sequences(b):
    x = torch.randn(b, 6, 3)
    for i in range(b):
        x[i, 2 + i % 5 :] = torch.nan
    return x


def texts(b):
    x = torch.randint(1, 20, (b, 6))
    for i in range(b):
        x[i, 1 + i % 6 :] = 0
    return x


SMALL = {
    "spiral_softmax": ({}, points(2)),
    "spiral_radial": ({}, points(2)),
    "mlp": ({"inputs": 4, "hidden": (8, 6), "dropout": 0.2}, points(4)),
    "mnist_softmax": ({}, images(1, 28)),
    "mnist_radial": ({}, images(1, 28)),
    "mnist_radial_dropout": ({}, images(1, 28)),
    "fast_cnn": ({"widths": (8, 8, 8), "test_flip": True}, images(3, 16)),
    "resnet18": ({"width": 8, "stem": "small"}, images(3, 16)),
    "resnet34": ({"width": 4}, images(3, 32)),
    "resnet50": ({"width": 4}, images(3, 32)),
    "efficientnet_lite0": ({}, images(3, 33)),
    "efficientnet_lite1": ({}, images(3, 33)),
    "efficientnet_lite2": ({}, images(3, 33)),
    "mobilenetv2": ({}, images(3, 33)),
    "gru": ({"channels": 3, "hidden": 8, "layers": 2}, sequences),
    "lstm": ({"channels": 3, "hidden": 8}, sequences),
    "text_cnn": ({"vocabulary": 20, "embedding": 6, "filters": 4}, texts),
}


def small(name, num_classes=5, seed=0):
    """A network in evaluation mode, and a function from batch size to inputs."""
    options, inputs = SMALL[name]
    torch.manual_seed(seed)
    return build(name, num_classes, **options).eval(), inputs
