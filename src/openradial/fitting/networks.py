"""Choose a network and training settings by the kind of data, the size of an input and the number of examples."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from openradial import models
from openradial.data.sources import DataSource
from openradial.errors import OptionError, check_count
from openradial.fitting.options import FitOptions
from openradial.models.registry import checked_options
from openradial.training import Settings

PRETRAINED = "efficientnet_lite0"
FAST = "fast_cnn"
FAST_WIDTHS, GREY_WIDTHS, LARGE_WIDTHS = (64, 256, 256), (32, 64, 128), (32, 64, 128, 256)  # about as fast each
PRETRAINED_SIZE = 128  # pixels: a third of the work of 224
NARROW: Mapping[str, Mapping[str, Any]] = {"mlp": {"hidden": (100, 100)}}
WIDE: Mapping[str, Mapping[str, Any]] = {"mlp": {"hidden": (256, 256)}}
MANY = 50  # classes; above, networks are wide
SIZES = (8, 16, 28, 32, 64)  # pixels: images of a folder get the largest that is not above theirs


@dataclass(frozen=True)
class NetworkChoice:
    """A network with its options, and the size of its inputs."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    weights: str | None = None
    size: int | None = None  # of images
    channels: int | None = None
    shift: int = 0  # images: by how many pixels they are moved at random while training
    flip: bool = False  # images: mirrored at random while training
    cutout: int = 0  # images: side of a square that is erased while training
    augment: float = 0.0  # images: strength of other random changes while training

    @property
    def image_size(self) -> tuple[int, int]:
        """Size and channels of images."""
        return self.size, self.channels  # type: ignore[return-value]


def choose_network(options: FitOptions, source: DataSource, num_inputs: int | None = None) -> NetworkChoice:
    """Return the network that the options name, or the default for the data; ``num_inputs`` of an encoded table."""
    widths = WIDE if len(source.classes) > MANY else NARROW
    if source.kind == "images":
        return _for_images(options, *_image_size(options, source), widths)
    if given := [name for name in ("size", "flip", "shift", "cutout", "augment") if getattr(options, name)]:
        raise OptionError(f"{given[0]} is for images, and {source.name} holds {source.kind}; leave it out")
    shape = tuple(getattr(source.train, "inputs", source.train.labels).shape)
    implied = {"inputs": num_inputs or shape[-1], "channels": shape[-1]}
    name, defaults = options.model, dict[str, Any]()
    if name == "auto":
        name = "gru" if source.kind == "sequences" else "mlp"
        defaults |= widths.get(name, {})
    return NetworkChoice(name, _network_options(name, implied, defaults, options), options.weights)


def choose_settings(options: FitOptions, choice: NetworkChoice, examples: int) -> Settings:
    """Return settings for a number of training examples: more epochs and smaller batches for small data."""
    seen, most = 500_000, 60  # examples in all, epochs
    members = choice.options.get("members", 1) if choice.name == FAST else 1  # of an ensemble
    check_count("members", members)
    if options.reset == "closed-form":
        seen, most = 10_000, 8
    elif choice.weights is not None:
        seen, most = 100_000, 30
    elif choice.name == "mlp":
        seen, most = 300_000, 100
    elif choice.name == FAST:  # each member gets its part of an epoch
        seen, most = 450_000 * members, most * members
    elif choice.name.startswith("mnist"):
        seen = 600_000
    # of our own networks those with convolutions, which are faster so; others may not accept it
    channels_last = choice.size is not None and choice.name in models.names() and choice.name != "mlp"
    default: dict[str, Any] = {
        "epochs": max(5, min(most, math.ceil(seen / examples))),
        "batch_size": 32 if examples < 1_000 else 64 if examples < 5_000 else 128 if examples < 50_000 else 256,
        "schedule": "cosine",
        "seed": options.seed,
        "channels_last": channels_last,
    }
    if choice.name == FAST:
        default |= _fast_settings(options.training, examples, members)
    elif choice.weights is not None:
        default |= {"learning_rate": 5e-4, "warmup_epochs": 0.5}
    if options.reset == "closed-form":  # small steps, so that a good start is not lost
        default |= {"learning_rate": 1e-4, "frozen_statistics": True}
    return Settings.from_mapping({**default, **options.training})


def _fast_settings(given: Mapping[str, Any], examples: int, members: int) -> dict[str, Any]:
    """Return settings after airbench94_muon (Jordan, 2024): large orthogonal steps on large batches."""
    usual = max(32, min(1024, 2 ** round(math.log2(max(1, examples / 25)))))
    batch_size = given.get("batch_size", usual * members)
    # of weights the rates grow with the root of a member's batch, of biases with all of the batch, the loss's divisor
    ratio = math.sqrt(batch_size / members / 2000)
    precision = "bfloat16" if has_fast_bfloat16() else "float32"
    others = {"batch_size": batch_size, "precision": precision, "schedule": "linear"}
    if given.get("optimiser", "muon") != "muon":  # whose rates are others
        return others
    rates = {"learning_rate": 0.24 * ratio, "bias_factor": 0.6 * ratio * members}
    return {"optimiser": "muon", "momentum": 0.6, **rates, **others}


def has_fast_bfloat16() -> bool:
    """Return whether this machine multiplies bfloat16 faster than float32: GPUs, and CPUs with such instructions."""
    in_cpu = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)  # torch 2.4 and 2.5 cannot say
    return torch.cuda.is_available() or bool(in_cpu())


def _image_size(options: FitOptions, source: DataSource) -> tuple[int, int, bool]:
    """Return side and channels of the images, and whether they come from files, which can be resized."""
    if source.image_statistics is not None:
        return source.image_statistics.side, source.image_statistics.channels, True
    channels, height, width = source.train.inputs.shape[1:]  # type: ignore[union-attr]
    if options.size not in (None, height):
        raise OptionError(f"size is for folders of images; {source.name} has its own, {height} pixels")
    assert height == width
    return height, channels, False


def _for_images(
    options: FitOptions, side: int, channels: int, from_files: bool, widths: Mapping[str, Mapping[str, Any]]
) -> NetworkChoice:
    if options.model == PRETRAINED or (options.weights == "imagenet" and options.model != "auto"):
        size, name = options.size or (PRETRAINED_SIZE if from_files else side), options.model
        needed = models.imagenet_weights(name).options  # a bundle builds the network without looking at the weights
        merged = {**needed, **_network_options(name, {}, {}, options)}
        return NetworkChoice(name, merged, "imagenet", size, 3, **_augmentation(options, 3, size // 8))
    size = options.size or (max((s for s in SIZES if s <= side), default=SIZES[0]) if from_files else side)
    name = options.model
    if name == "auto":
        name = "mlp" if size < 16 else "mnist_radial" if size < 28 else FAST
    shift, augment = size // 8 if size >= 32 else 0, 0.0
    if name == FAST:
        shift, augment = size // 16, 1.0 if channels == 3 else 0.0
    augmentation = _augmentation(options, channels, shift, augment)
    implied = {"channels": channels, "size": size, "inputs": channels * size * size}
    defaults = dict(widths.get(name, {})) if options.model == "auto" else {}
    if name.startswith("resnet") and size < 64:
        defaults["stem"] = "small"
    if name == FAST:
        usual = LARGE_WIDTHS if size > 32 else GREY_WIDTHS if channels == 1 else FAST_WIDTHS
        defaults |= {"test_flip": augmentation["flip"], "widths": usual}
        defaults["test_shift"] = min(1, augmentation["shift"]) if augmentation["flip"] else 0
    merged = _network_options(name, implied, defaults, options)
    return NetworkChoice(name, merged, options.weights, size, channels, **augmentation)


def _augmentation(options: FitOptions, channels: int, shift: int, augment: float = 0.0) -> dict[str, Any]:
    """Return how training images vary: as the options say, or by default."""
    default: dict[str, Any] = {"flip": channels == 3, "shift": shift, "augment": augment}
    given = {name: getattr(options, name) for name in default}
    return default | {name: value for name, value in given.items() if value is not None} | {"cutout": options.cutout}


def _network_options(
    name: str, implied: Mapping[str, Any], defaults: Mapping[str, Any], options: FitOptions
) -> dict[str, Any]:
    """Return what follows from the data as far as the network takes it, defaults, and what the user gives."""
    if ":" in name:
        return dict(options.model_options)
    known = checked_options(name, options.model_options)  # better now than after the data are prepared
    implied_options = {key: value for key, value in implied.items() if key in known and value is not None}
    return {**implied_options, **defaults, **options.model_options}
