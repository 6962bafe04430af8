"""A network and settings that suit the data, by its kind, the size of an input and the number of examples."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from openradial import models
from openradial.data.sources import DataSource
from openradial.errors import OptionError
from openradial.fitting.job import FitJob
from openradial.models import imagenet_weights
from openradial.training import Settings

PRETRAINED = "efficientnet_lite0"
PRETRAINED_SIZE = 128  # pixels: a third of the work of 224
USUAL: Mapping[str, Mapping[str, Any]] = {"mlp": {"hidden": (100, 100)}, "resnet18": {"width": 32}}
WIDE: Mapping[str, Mapping[str, Any]] = {"mlp": {"hidden": (256, 256)}, "resnet18": {"width": 64}}
MANY = 50  # classes, beyond which networks are wide
SIZES = (8, 16, 28, 32, 64)  # pixels: images of a folder get the largest that is not above theirs


@dataclass(frozen=True)
class Choice:
    """A network with its options, and what its inputs must be like."""

    network: str
    options: Mapping[str, Any] = field(default_factory=dict)
    weights: str | None = None
    size: int | None = None  # of images
    channels: int | None = None
    shift: int = 0  # images: by how many pixels they are moved at random while training

    @property
    def picture(self) -> tuple[int, int]:
        """Size and channels of images."""
        assert self.size is not None
        assert self.channels is not None
        return self.size, self.channels


def choose(job: FitJob, found: DataSource, num_inputs: int | None = None, vocabulary: int | None = None) -> Choice:
    """The network that a job names, or the usual one for its data; ``num_inputs`` of an encoded table."""
    widths = WIDE if len(found.classes) > MANY else USUAL
    if found.kind == "images":
        return _for_images(job, *_picture(job, found), widths)
    if job.size is not None or job.flip:
        raise OptionError(f"size and flip are for images, and {found.name} holds {found.kind}")
    shape = tuple(getattr(found.train, "inputs", found.train.labels).shape)
    implied = {"inputs": num_inputs or shape[-1], "channels": shape[-1], "vocabulary": vocabulary}
    usual = {"table": "mlp", "points": "mlp", "sequences": "gru", "texts": "text_cnn"}[found.kind]
    defaults = widths.get(usual, {}) if job.model == "auto" else {}
    name = usual if job.model == "auto" else job.model
    return Choice(name, _options(name, implied, defaults, job))


def choose_settings(job: FitJob, choice: Choice, examples: int) -> Settings:
    """Settings for so many training examples: small sets are seen more often, in smaller batches."""
    seen, most = _budget(choice)
    usual: dict[str, Any] = {
        "epochs": max(5, min(most, math.ceil(seen / examples))),
        "batch_size": 32 if examples < 1_000 else 64 if examples < 5_000 else 128 if examples < 50_000 else 256,
        "schedule": "cosine",
        "seed": job.seed,
        "channels_last": _has_convolutions(choice),  # which are faster so
    }
    if choice.weights is not None:
        usual |= {"learning_rate": 5e-4, "warmup_epochs": 0.5}
    return Settings.from_mapping({**usual, **job.training})


def _has_convolutions(choice: Choice) -> bool:
    """Whether it is a network of ours with convolutions; others may not bear their inputs in another order."""
    return choice.size is not None and choice.network in models.names() and choice.network != "mlp"


def _budget(choice: Choice) -> tuple[int, int]:
    """Examples that training may look at in all, and the most epochs."""
    if choice.weights is not None:
        return 100_000, 30
    if choice.network == "mlp":
        return 300_000, 100
    return (600_000, 60) if choice.network.startswith("mnist") else (500_000, 60)


def _picture(job: FitJob, found: DataSource) -> tuple[int, int, bool]:
    """Side and channels of the images, and whether they come from files, which can be had at any size."""
    if found.image_statistics is not None:
        return found.image_statistics.side, found.image_statistics.channels, True
    channels, height, width = found.train.inputs.shape[1:]  # type: ignore[union-attr]
    if job.size not in (None, height):
        raise OptionError(f"size is for folders of images; {found.name} has its own, {height} pixels")
    assert height == width
    return height, channels, False


def _for_images(
    job: FitJob, side: int, channels: int, from_files: bool, widths: Mapping[str, Mapping[str, Any]]
) -> Choice:
    asked = job.model == PRETRAINED
    if asked or (job.model == "auto" and from_files and side >= 64 and channels == 3 and _is_installed()):
        size = job.size or (PRETRAINED_SIZE if from_files else side)
        return Choice(PRETRAINED, _options(PRETRAINED, {}, {}, job), "imagenet", size, 3, size // 8)
    size = job.size or (max((s for s in SIZES if s <= side), default=SIZES[0]) if from_files else side)
    name = job.model if job.model != "auto" else _usual(size)
    implied = {"channels": channels, "size": size, "inputs": channels * size * size}
    defaults = dict(widths.get(name, {})) if job.model == "auto" else {}
    if name.startswith("resnet") and size < 64:
        defaults["stem"] = "small"
    return Choice(name, _options(name, implied, defaults, job), None, size, channels, size // 8 if size >= 32 else 0)


def _usual(size: int) -> str:
    return "mlp" if size < 16 else "mnist_radial" if size < 32 else "resnet18"


def _is_installed() -> bool:
    return imagenet_weights(PRETRAINED).installed() is not None


def _options(name: str, implied: Mapping[str, Any], defaults: Mapping[str, Any], job: FitJob) -> dict[str, Any]:
    """What follows from the data as far as the network takes it, what is usual, and what the user says."""
    if ":" in name:
        return dict(job.model_options)
    known = models.options(name)
    fitting = {key: value for key, value in implied.items() if key in known and value is not None}
    return {**fitting, **defaults, **job.model_options}
