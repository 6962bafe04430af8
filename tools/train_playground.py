"""Train the playground's two digit classifiers: ``python -m tools.train_playground``.

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
from openradial.bundle import save
from openradial.classifier import OpenClassifier
from openradial.data import Batches, Examples, load
from openradial.data.inputs import ImageInputs
from openradial.data.splits import train_test_split
from openradial.fitting import calibrate
from openradial.metrics import auroc
from openradial.recipe import default_recipe
from openradial.server.playground.digits import MODELS, NAMES
from openradial.training import Settings, fit

INPUTS = ImageInputs(28, 1, mean=(0.1307,), std=(0.3081,))
NETWORKS = {"softmax": "mnist_softmax", "radial": "mnist_radial"}
CALIBRATION = 5_000  # images held out for the rejectors
RATE = 0.05


@dataclass(frozen=True)
class DigitData:
    """MNIST in three parts, and other images that no classifier should accept."""

    train: Examples
    calibration: Examples
    test: Examples
    novel: Examples

    @classmethod
    def read(cls) -> "DigitData":
        known = load("mnist")
        train, calibration = train_test_split(known, CALIBRATION / len(known), seed=0)
        return cls(train, calibration, load("mnist", "test"), load("fashion-mnist", "test"))


def train_digits(head: str, data: DigitData, settings: Settings) -> OpenClassifier:
    """Return one of the two classifiers, trained, calibrated and measured."""
    torch.manual_seed(settings.seed)
    net = models.build(NETWORKS[head], 10)
    recipe = default_recipe(net, NETWORKS[head], "images", head=head, layers=())
    parts = recipe.make_head(10)
    batches = Batches(data.train, settings.batch_size, shuffle=True, seed=settings.seed, transform=INPUTS.normalise())
    fit(net, recipe.make_objective(parts), batches, settings=settings)
    net.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    net.half().float()
    held = Batches(data.calibration, 1000, transform=INPUTS.normalise())
    model = calibrate(net, parts, recipe, RATE, train=held, combination=None, calibration=held)
    model = model.replace(network=(NETWORKS[head], {}), classes=data.train.classes, preprocessing=INPUTS)
    metadata = {"data": "mnist", "training": settings.as_dict(), "measured": measured(model, data)}
    return model.replace(metadata=metadata)


def measured(bundle: OpenClassifier, data: DigitData) -> dict[str, float]:
    """Return the metrics of a classifier on images that it has not seen: digits, and clothes in their place."""
    known, novel = bundle.predict(data.test.inputs), bundle.predict(data.novel.inputs)
    return {
        "accuracy": float((known.nearest == data.test.labels.numpy()).mean()),
        "false_reject_rate": float((known.labels < 0).mean()),
        "fashion_mnist_rejected": float((novel.labels < 0).mean()),
        "fashion_mnist_auroc": auroc(known.unknown_score, novel.unknown_score),
    }


def keep(bundle: OpenClassifier, folder: Path) -> None:
    """Save a bundle with its weights in half precision, which they were rounded to before."""
    net: nn.Module = bundle.net
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
        print(head, bundle.metadata["measured"])


if __name__ == "__main__":
    main()
