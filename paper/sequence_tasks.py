"""Tasks beyond images: one network per architecture, trained the same way for every head."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from torch import nn

from openradial import models
from openradial.data import Batches, Examples, load
from openradial.heads import DOCHead, Head, RadialHead, SoftmaxHead
from openradial.training import Settings
from paper.japanese_vowels import japanese_vowels
from paper.plan import Plan, Size
from paper.reuters import reuters
from paper.trained_nets import LossFunction, Trained, trained

HEADS: Mapping[str, Callable[[int], Head]] = {
    "softmax": SoftmaxHead,
    "DOC": DOCHead,
    "radial": RadialHead,
    "radial, squared": lambda k: RadialHead(k, loss="squared"),
}
DROPOUT = 0.2  # of the texts' network; on held-out training data every head did better with it than with 0.5


@dataclass(frozen=True)
class Task:
    """A data set, its network and its training settings, the same for every head."""

    name: str
    title: str
    architecture: str
    data: Callable[[str], Examples]
    build: Callable[[int], nn.Module]
    steps: int  # independent of the number of examples, so that a few known classes are learned as well
    training: Settings
    held_out: float = 0.1  # share of the known training data that thresholds are set with
    shares: tuple[float, ...] = ()  # of classes that are known, for the open world

    def net(self, plan: Plan, head: str, examples: Examples, seed: int, part: str) -> Trained:
        """Return the network of a head trained on examples of the known classes; ``part`` names these classes."""
        return self.fit(
            plan, f"{part}-{head.replace(', ', '-')}", HEADS[head](len(examples.classes)).loss, examples, seed
        )

    def fit(self, plan: Plan, part: str, loss: LossFunction, examples: Examples, seed: int) -> Trained:
        """Return the network trained on examples with a loss; ``part`` names both."""
        k, steps_each = len(examples.classes), math.ceil(len(examples) / self.training.batch_size)
        settings = replace(self.training, seed=seed, epochs=math.ceil(self.steps / steps_each))

        def batches() -> Batches:
            return Batches(examples, settings.batch_size, shuffle=True, seed=seed)

        name = f"{self.name}-{part}-{self.steps}-{seed}"
        return trained(plan, name, partial(self.build, k), loss, batches, settings)


def _digits(split: str) -> Examples:
    images = load("digits", split)
    return Examples(images.inputs.float() / 16, images.labels, images.classes)


def _digits_as_texts(split: str) -> Examples:
    """Return the digits as texts, each grey value a word: a small set for tests of a text network."""
    images = load("digits", split)
    return Examples(images.inputs.flatten(1).long() + 1, images.labels, images.classes)


def reuters_task(steps: int, words: int, width: int, vocabulary: int) -> Task:
    """Return the task of newswire topics, as in the DOC paper, with convolutions over words."""
    size: dict[str, Any] = {"vocabulary": vocabulary + 2, "embedding": width, "filters": width}
    build = partial(models.build, "text_cnn", dropout=DROPOUT, **size)
    return Task(
        "reuters",
        "Reuters-21578, 15 topics",
        "convolutional",
        cache(partial(reuters, max_words=words, vocabulary=vocabulary)),  # reading texts takes seconds
        build,
        steps,
        Settings(batch_size=32, learning_rate=4e-3, schedule="cosine"),
        shares=(0.25, 0.5, 0.75),
    )


def vowels_task(steps: int) -> Task:
    """Return the task of nine speakers by their vowels, sequences of 12 channels."""
    return Task(
        "vowels",
        "JapaneseVowels, 9 speakers",
        "recurrent",
        cache(japanese_vowels),
        partial(models.build, "gru", channels=12),
        steps,
        Settings(batch_size=32, learning_rate=3e-3, schedule="cosine"),
        held_out=0.2,  # a tenth would be too few to promise a false-reject rate of 5 %
        shares=(0.5, 0.75),
    )


def digits_task(steps: int) -> Task:
    """Return the task of scanned digits, with fully connected layers."""
    return Task(
        "digits",
        "scanned digits, 10 classes",
        "fully connected",
        _digits,
        partial(models.build, "mlp", inputs=64, hidden=(64, 64)),
        steps,
        Settings(batch_size=64, learning_rate=2e-3, schedule="cosine"),
    )


TASKS: dict[Size, tuple[Task, ...]] = {
    "tiny": (
        digits_task(10),
        replace(
            reuters_task(10, words=8, width=4, vocabulary=16),
            name="grey-values",
            title="grey values, 10 classes",
            data=_digits_as_texts,
            shares=(0.5,),
        ),
        replace(vowels_task(5), shares=(0.75,)),
    ),
    "quick": (
        digits_task(400),
        reuters_task(400, words=40, width=16, vocabulary=3_000),
        replace(vowels_task(150), shares=(0.75,)),
    ),
    "full": (digits_task(1_500), reuters_task(1_200, words=60, width=40, vocabulary=4_000), vowels_task(600)),
}
