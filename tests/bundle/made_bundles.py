"""Small bundles of every kind; the networks are drawn, not trained, because bundles do not care."""

import numpy as np
import torch
from rounding import tolerance

from openradial.classifier import OpenClassifier
from openradial.conformal import Rejector
from openradial.data import TableEncoder
from openradial.data.inputs import ImageInputs, PointInputs, SequenceInputs, TableInputs, TextInputs
from openradial.data.table_encoder import NumberFeature, WordFeature
from openradial.heads import RadialHead
from openradial.models import build
from openradial.scorers import Combination, MahalanobisScorer, NeighbourScorer

CLASSES = ("cat", "dog", "a bird")
ENCODER = TableEncoder(
    (NumberFeature("length", mean=2.0, shift=2.0, scale=0.5), WordFeature("colour", ("blue", "red"), (0.25, 0.75))),
    CLASSES,
    missing="mean",
)
FIELDS = ("labels", "nearest", "probability", "distance", "unknown_score", "p_values", "top", "top_probability")


def pixels(count=60, size=8, channels=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, channels, size, size), dtype=torch.uint8, generator=generator)


def classifier(net, x, head=None, scorers=None, rejector=True, per_class=False):
    """An open classifier that has learned from inputs with arbitrary labels."""
    head = RadialHead(3) if head is None else head
    merge = Combination("fisher") if scorers and len(scorers) > 1 else None
    made = OpenClassifier(
        net, head, scorers=scorers, combination=merge, rejector=Rejector(0.1, per_class) if rejector else None
    )
    with torch.no_grad():
        y = made.net(x).argmax(1)
    made.fit_scorers([x], y).fit_combination([x])
    return made.calibrate([x]) if rejector else made


def image_bundle(**options):
    """8 x 8 grey images through fully connected layers, three scores and their combination."""
    torch.manual_seed(0)
    inputs = ImageInputs(8, 1, mean=(0.4,), std=(0.25,))
    net = build("mlp", 3, inputs=64, hidden=(16, 8))
    options = {"scorers": three_scorers(), **options}
    x = inputs.transform(pixels())
    with torch.no_grad():  # every class is predicted for some input
        net.classifier.weight *= 10
        net.classifier.bias -= net(x).mean(0)
    made = classifier(net, x, **options)
    facts = {"data": {"examples": 60}, "false_reject_rate": {"asked": 0.1, "measured": 0.0625}}
    return made.replace(
        network=("mlp", {"inputs": 64, "hidden": (16, 8)}), classes=CLASSES, preprocessing=inputs, metadata=facts
    )


def three_scorers():
    return {"outputs": RadialHead(3), "classifier:input": NeighbourScorer(k=2), "inputs": MahalanobisScorer()}


def table_rows(count=50, seed=0):
    random = np.random.default_rng(seed)
    lengths, colours = random.normal(2, 0.5, count), random.choice(["blue", "red"], count)
    return [{"length": float(x), "colour": str(word)} for x, word in zip(lengths, colours, strict=True)]


def table_bundle():
    torch.manual_seed(0)
    inputs = TableInputs(ENCODER)
    net = build("mlp", 3, inputs=3, hidden=(8,))
    made = classifier(net, inputs.prepare(table_rows()))
    return made.replace(network=("mlp", {"inputs": 3, "hidden": [8]}), classes=CLASSES, preprocessing=inputs)


def point_bundle():
    torch.manual_seed(0)
    made = classifier(build("spiral_radial", 3), torch.randn(50, 2))
    return made.replace(network=("spiral_radial", {}), classes=CLASSES, preprocessing=PointInputs(2))


def sequences(count=40, seed=0):
    random = np.random.default_rng(seed)
    return [random.normal(size=(length, 2)) for length in random.integers(3, 9, count)]


def sequence_bundle():
    torch.manual_seed(0)
    inputs = SequenceInputs(2, mean=(0.1, -0.2), std=(1.0, 2.0))
    x = inputs.transform(inputs.prepare(sequences()))
    made = classifier(build("gru", 3, channels=2, hidden=6), x)
    return made.replace(network=("gru", {"channels": 2, "hidden": 6}), classes=CLASSES, preprocessing=inputs)


TEXTS = ["profit fell", "the profit rose", "a bird sang", "bird fell", "rose fell rose"]


def text_bundle():
    torch.manual_seed(0)
    inputs = TextInputs(("profit", "fell", "rose", "bird"), max_words=6)
    words = np.random.default_rng(0).choice([*inputs.words, "other"], (40, 6))
    known = [" ".join(row[: 2 + i % 5]) for i, row in enumerate(words)]
    made = classifier(build("text_cnn", 3, vocabulary=6), inputs.prepare(known))
    return made.replace(network=("text_cnn", {"vocabulary": 6}), classes=CLASSES, preprocessing=inputs)


RAW = {
    image_bundle: lambda: list(pixels(20, seed=1)[:, 0].numpy()),
    table_bundle: lambda: table_rows(20, seed=1),
    point_bundle: lambda: np.random.default_rng(1).normal(size=(20, 2)),
    sequence_bundle: lambda: sequences(20, seed=1),
    text_bundle: lambda: TEXTS,
}


def assert_close(found, expected):
    """Predictions say the same, up to the rounding of 64 inputs, 16 and 8 hidden units; scores are below ten."""
    for name in ("labels", "nearest", "top", "p_values"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    close = tolerance(64 + 16 + 8, size=10)
    for name in ("probability", "distance", "unknown_score", "top_probability"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), **close, err_msg=name)


def assert_same(found, expected):
    """Predictions are equal, bit for bit: those of one kernel on one shape."""
    assert found.classes == expected.classes
    for name in FIELDS:
        left, right = getattr(found, name), getattr(expected, name)
        assert (left is None) == (right is None), name
        if left is not None:
            np.testing.assert_array_equal(left, right, err_msg=name)
            assert left.dtype == right.dtype
