"""Train the playground's two digit classifiers: ``python -m openradial.server.playground.train``.

Both have the paper's network for MNIST, the same images, the same number of epochs and a rejector that was calibrated
on the same images. One is trained with softmax, the other by the radial recipe, whose score here is the distance
to the prototypes alone: neighbours in hidden layers would need the training images. Weights are rounded to half
precision before calibration and evaluation.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from openradial import models
from openradial.bundle import Bundle, ImageInputs, save
from openradial.classifier import OpenClassifier
from openradial.conformal import Rejector
from openradial.data import Batches, Examples, load
from openradial.data.splits import train_test_split
from openradial.fitting.recipe import Held, make_recipe, open_classifier
from openradial.heads import SoftmaxHead
from openradial.metrics import auroc
from openradial.nn.objective import Objective
from openradial.server.playground.digits import MODELS, NAMES
from openradial.training import Settings, fit

INPUTS = ImageInputs(28, 1, mean=(0.1307,), std=(0.3081,))
NETWORKS = {"softmax": "mnist_softmax", "radial": "mnist_radial"}
CALIBRATION = 5_000  # images held out for the rejectors
RATE = 0.05


@dataclass(frozen=True)
class DigitData:
    """MNIST in three parts, and images of another kind that no classifier should accept."""

    train: Examples
    calibration: Examples
    test: Examples
    novel: Examples

    @classmethod
    def read(cls) -> "DigitData":
        """Load MNIST and Fashion-MNIST."""
        known = load("mnist")
        train, calibration = train_test_split(known, CALIBRATION / len(known), seed=0)
        return cls(train, calibration, load("mnist", "test"), load("fashion-mnist", "test"))


def train_digits(head: str, data: DigitData, settings: Settings) -> Bundle:
    """Train, calibrate and evaluate one of the two classifiers."""
    torch.manual_seed(settings.seed)
    net = models.build(NETWORKS[head], 10)
    recipe = make_recipe(net, NETWORKS[head], "images", 10)
    objective = recipe.objective if head == "radial" else Objective(SoftmaxHead(10).loss)
    batches = Batches(data.train, settings.batch_size, shuffle=True, seed=settings.seed, transform=INPUTS.normalise())
    fit(net, objective, batches, settings=settings)
    net.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    net.half().float()
    held = Held(Batches(data.calibration, 1000, transform=INPUTS.normalise()))
    if head == "radial":
        classifier = open_classifier(net, recipe, RATE, train=held, combination=None, calibration=held)
    else:
        classifier = OpenClassifier(net, SoftmaxHead(10), rejector=Rejector(RATE)).calibrate(held)
    bundle = Bundle(classifier, NETWORKS[head], {}, data.train.classes, INPUTS)
    facts = {"data": "mnist", "training": settings.as_dict(), "measured": measured(bundle, data)}
    return Bundle(classifier, NETWORKS[head], {}, bundle.classes, INPUTS, facts)


def measured(bundle: Bundle, data: DigitData) -> dict[str, float]:
    """Evaluate a classifier on test digits, and on clothes as novel images."""
    known, novel = bundle.predict(data.test.inputs), bundle.predict(data.novel.inputs)
    return {
        "accuracy": float((known.nearest == data.test.labels.numpy()).mean()),
        "false_reject_rate": float((known.labels < 0).mean()),
        "fashion_mnist_rejected": float((novel.labels < 0).mean()),
        "fashion_mnist_auroc": auroc(known.unknown_score, novel.unknown_score),
    }


def keep(bundle: Bundle, folder: Path) -> None:
    """Save a bundle with its weights, already rounded, in half precision."""
    net: nn.Module = bundle.classifier.net
    net.half()
    save(bundle, folder, overwrite=True)
    net.float()


def main(arguments: list[str] | None = None) -> None:
    """Train both and save them where the playground reads them."""
    parser = argparse.ArgumentParser(description="Train the playground's digit classifiers on MNIST.")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--head", choices=NAMES, action="append", help="train this one only")
    parser.add_argument("--out", type=Path, default=MODELS, help="folder for both bundles")
    given = parser.parse_args(arguments)
    data = DigitData.read()
    settings = Settings(epochs=given.epochs, batch_size=128, schedule="cosine", channels_last=True)
    for head in given.head or NAMES:
        bundle = train_digits(head, data, settings)
        keep(bundle, given.out / head)
        print(head, bundle.facts["measured"])  # noqa: T201


if __name__ == "__main__":
    main()
