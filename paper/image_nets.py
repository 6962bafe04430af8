"""Networks on photographs with known and novel classes: available data in place of ImageNet."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from openradial import models
from openradial.conformal import fit_beta
from openradial.data import (
    Batches,
    Compose,
    Examples,
    FolderBatches,
    ImageFolder,
    Normalise,
    RandomFlip,
    RandomShift,
    divide,
    load,
    random_split,
    train_test_split,
)
from openradial.heads import Head, RadialHead, SoftmaxHead
from openradial.metrics import auroc, top_k_accuracy
from openradial.training import BatchSource, Settings
from paper.imagenet.ilsvrc_classes import ARTIFACT, parse_known
from paper.imagenet.tiny_imagenet import tiny_imagenet
from paper.plan import Plan, Results, Size
from paper.trained_nets import trained
from paper.winning import NOVEL, RIGHT, WRONG, histogram, median, winning_probs

VALIDATION = 0.1  # share of the known training images that probabilities are calibrated on
KNOWN = 6  # of the ten classes of CIFAR-10 and of the digits
START = 1e-3  # standard deviation of the last layer's weights on pre-trained features


@dataclass(frozen=True)
class ImageSet:
    """A set of photographs, and how a network is trained on its known classes."""

    name: str
    title: str
    network: str
    build: Callable[[int], nn.Module]  # from the number of classes
    training: Settings
    scale: float = 1.0  # the paper's a, in figure 7
    augment: bool = False
    pretrained: bool = False


@dataclass(frozen=True)
class ImageParts:
    """Batches of the training, validation, known test and novel test images, and the numbers of classes."""

    train: BatchSource
    validation: BatchSource
    known: BatchSource
    novel: BatchSource
    classes: dict[str, int]


DIGITS = ImageSet(
    "digits",
    "scanned digits, 6 of 10 classes known",
    "fully connected network",
    partial(models.build, "mlp", inputs=64, hidden=(32,)),
    Settings(epochs=3, batch_size=64, learning_rate=1e-3),
)
CIFAR_SMALL = ImageSet(
    "cifar10",
    "CIFAR-10, 6 of 10 classes known",
    "the paper's small network for MNIST",
    partial(models.build, "mnist_radial", channels=3, size=32),
    Settings(epochs=4, batch_size=128, learning_rate=1e-3),
)
CIFAR = ImageSet(
    "cifar10",
    "CIFAR-10, 6 of 10 classes known",
    "ResNet-18 of a quarter of the width, from scratch",
    partial(models.build, "resnet18", stem="small", width=16),
    Settings(epochs=6, batch_size=128, learning_rate=1e-3, schedule="cosine"),
    augment=True,
)
TINY_IMAGENET = ImageSet(
    "tiny-imagenet",
    "Tiny-ImageNet at 64 pixels, all classes known but artifacts",
    "EfficientNet-Lite0, pre-trained on ImageNet, fully connected layer new",
    partial(models.build, "efficientnet_lite0", weights="imagenet", reset="fully_connected"),
    Settings(epochs=4, batch_size=64, learning_rate=1e-4, channels_last=True),
    scale=5.0,
    augment=True,
    pretrained=True,
)
SETS: dict[Size, ImageSet] = {"tiny": DIGITS, "quick": CIFAR_SMALL, "full": CIFAR}


def image_set(plan: Plan) -> ImageSet:
    """Return Tiny-ImageNet at full size if its folder is given, else the set of the plan's size."""
    return TINY_IMAGENET if plan.size == "full" and "tiny_imagenet" in plan.options else SETS[plan.size]


def image_run(plan: Plan, head: str, seed: int = 0, scale: float | None = None) -> Results:
    """Return the results of one network on known and novel images, and every step of its training."""
    images = image_set(plan)
    a = images.scale if scale is None else scale
    name = f"images-{images.name}-{head}-a{a:g}-{images.training.epochs}-{seed}"
    numbers: Results = plan.cached(f"{name}-numbers", partial(_run, plan, name, images, head, a, seed))
    return numbers


def _run(plan: Plan, name: str, images: ImageSet, head_name: str, scale: float, seed: int) -> Results:
    settings = replace(images.training, seed=seed)
    if images is TINY_IMAGENET:
        weights = models.imagenet_weights("efficientnet_lite0")
        parts = tiny_imagenet_parts(plan.options["tiny_imagenet"], settings, Normalise(weights.mean, weights.std))
    else:
        parts = example_parts(images, settings)
    k = parts.classes["known_classes"]
    head: Head = RadialHead(k, scale=scale) if head_name == "radial" else SoftmaxHead(k)

    def build() -> nn.Module:
        net = images.build(k)
        return start_near_zero(net) if images.pretrained and head_name == "radial" else net

    net, steps = trained(plan, name, build, head.loss, lambda: parts.train, settings)
    curves = {key: [round(value, 5) for value in values.tolist()] for key, values in steps.items()}
    facts = {**parts.classes, "scale": scale, "epochs": settings.epochs}
    return facts | measured(net, head, parts) | {"steps": curves}


def start_near_zero(net: nn.Module) -> nn.Module:
    """Initialise the last layer so small that outputs lie between the prototypes.

    Features of a pre-trained network are large. With the usual initialisation its outputs lie many prototype distances
    away, and the steps of the first epochs move them all to one point, where the features are lost.
    """
    last = net.get_submodule("classifier")
    assert isinstance(last, nn.Linear)
    nn.init.normal_(last.weight, 0, START)
    nn.init.zeros_(last.bias)
    return net


def example_parts(images: ImageSet, settings: Settings) -> ImageParts:
    """Load a small set, split it into known and novel classes, and normalise by the known training images."""
    train, test = load(images.name, "train"), load(images.name, "test")
    split = random_split(train.classes, KNOWN, seed=0)
    known, validation = train_test_split(divide(train, split)[0], VALIDATION, seed=settings.seed)
    pixels = known.inputs.double() / (255 if known.inputs.dtype == torch.uint8 else 1)  # (n, c, h, w)
    mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3), correction=0)
    normalise = Normalise(mean.tolist(), std.clamp_min(1e-6).tolist())

    def batches(examples: Examples, transform: Any = normalise, shuffle: bool = False) -> Batches:
        return Batches(examples, settings.batch_size, shuffle=shuffle, seed=settings.seed, transform=transform)

    return ImageParts(
        batches(known, _augmented(images, normalise), shuffle=True),
        batches(validation),
        batches(divide(test, split)[0]),
        batches(divide(test, split)[1]),
        classes={"known_classes": len(split.known), "novel_classes": len(split.novel)},
    )


def tiny_imagenet_parts(root: str, settings: Settings, normalise: Normalise) -> ImageParts:
    """Read Tiny-ImageNet from a folder; all classes are known but the artifacts."""
    split = parse_known(f"not:{ARTIFACT}", tiny_imagenet(root, "train").classes)
    train = tiny_imagenet(root, "train", classes=split.known)
    indices = Examples(torch.arange(len(train)), train.labels, train.classes)
    kept, validation = train_test_split(indices, VALIDATION, seed=settings.seed)

    def batches(folder: ImageFolder, transform: Any = normalise, shuffle: bool = False) -> BatchSource:
        options: dict[str, Any] = {"size": 64, "batch_size": settings.batch_size, "seed": settings.seed}
        return FolderBatches(folder, transform=transform, shuffle=shuffle, **options)

    def subset(selected: Tensor) -> ImageFolder:
        return replace(train, paths=[train.paths[i] for i in selected.tolist()], labels=train.labels[selected])

    return ImageParts(
        batches(subset(kept.inputs), _augmented(TINY_IMAGENET, normalise), shuffle=True),
        batches(subset(validation.inputs)),
        batches(tiny_imagenet(root, "val", classes=split.known)),
        batches(tiny_imagenet(root, "val", classes=split.novel)),
        classes={"known_classes": len(split.known), "novel_classes": len(split.novel)},
    )


def _augmented(images: ImageSet, normalise: Normalise) -> Any:
    return Compose(RandomFlip(), RandomShift(), normalise) if images.augment else normalise


def measured(net: nn.Module, head: Head, parts: ImageParts) -> Results:
    """Return accuracies, and winning probabilities that are calibrated on held-out known images alone."""
    o, y = _outputs(net, parts.known)
    novel, _ = _outputs(net, parts.novel)
    calibrated, facts = calibrate(head, *_outputs(net, parts.validation))
    right = head.predict(o) == y
    probs, novel_probs = winning_probs(calibrated, o), winning_probs(calibrated, novel)
    groups = {RIGHT: probs[right], WRONG: probs[~right], NOVEL: novel_probs}
    return facts | {
        "top_1": float(right.double().mean()),
        "top_5": top_k_accuracy(head.log_probs(o).numpy(), y.numpy(), k=min(5, o.shape[1])),
        "auroc": auroc(head.unknown_score(o).numpy(), head.unknown_score(novel).numpy()),
        "median_known": median(probs),
        "median_novel": median(novel_probs),
        "histograms": {name: histogram(values) for name, values in groups.items()},
    }


@torch.no_grad()
def _outputs(net: nn.Module, batches: BatchSource) -> tuple[Tensor, Tensor]:
    """Return the outputs and labels of all images."""
    o, y = zip(*((net(x), y) for x, y in batches.epoch(0)), strict=True)
    return torch.cat(o), torch.cat(y)


def calibrate(head: Head, o: Tensor, y: Tensor) -> tuple[Head, dict[str, float]]:
    """Fit beta, or the temperature of softmax, so that the winning probability matches the accuracy on these data."""
    if isinstance(head, RadialHead):
        beta = fit_beta(head.layer.distances(o), y).beta
        return RadialHead(head.num_classes, beta, prototypes=head.layer.prototypes), {"beta": beta}
    tempered = SoftmaxHead(head.num_classes, temperature="fit").fit(o, y)
    return tempered, {"temperature": float(tempered.tensors()["fitted_temperature"])}
