"""A labelled set made ready for a network: known data in parts, novel data, and how inputs become tensors."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor

from openradial.bundle import ImageInputs, Inputs, PointInputs, SequenceInputs, TableInputs, TextInputs
from openradial.data import sources
from openradial.data.batches import Batches, FolderBatches
from openradial.data.examples import Examples
from openradial.data.readers.folder import ImageFolder
from openradial.data.readers.tables import Table
from openradial.data.sets.reuters import reuters_vocabulary
from openradial.data.sources import Data, DataSource, indices, load_images, subset
from openradial.data.splits import Split, divide, train_test_split
from openradial.data.table_encoder import TableEncoder
from openradial.data.transforms import Compose, RandomFlip, RandomShift, Transform
from openradial.errors import DataError, OptionError
from openradial.fitting.choosing import Choice, choose
from openradial.fitting.job import FitJob
from openradial.fitting.parts import hold_out
from openradial.fitting.recipe import REFERENCES
from openradial.models import imagenet_weights

PUBLISHED = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # of ImageNet, for photographs that are left on disk
CHUNK = 1024  # rows that are averaged at a time
Encoded = Examples | ImageFolder


@dataclass(frozen=True, eq=False)
class Material:
    """Known data in parts, each for one use; ``references`` are those of the training data that scorers keep."""

    name: str
    kind: str
    split: Split
    choice: Choice
    inputs: Inputs
    train: Encoded
    references: Encoded
    combination: Encoded | None
    calibration: Encoded
    report: Encoded | None
    novel: Encoded | None
    notes: tuple[str, ...]
    label: str | None = None

    def batches(
        self, data: Encoded, size: int, *, shuffle: bool = False, seed: int = 0, flip: bool = False
    ) -> Batches | FolderBatches:
        """Batches ready for the network: in order, or shuffled and changed at random for training."""
        transform = self._transform(shuffle, flip)
        options: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "transform": transform}
        if isinstance(data, Examples):
            return Batches(data, size, **options)
        pixels, channels = self.choice.picture
        return FolderBatches(data, pixels, size, channels=channels, **options)

    def counts(self) -> dict[str, int]:
        """How many examples each part has."""
        parts = {name: getattr(self, name) for name in ("train", "combination", "calibration", "report", "novel")}
        return {name: len(part) for name, part in parts.items() if part is not None}

    def _transform(self, training: bool, flip: bool) -> Transform:
        last: Transform = self.inputs.normalise() if isinstance(self.inputs, ImageInputs) else _Last(self.inputs)
        if not training or not isinstance(self.inputs, ImageInputs):
            return last
        steps: list[Transform] = [RandomShift(self.choice.shift)] if self.choice.shift else []
        return Compose(*steps, *([RandomFlip()] if flip else []), last)


@dataclass(frozen=True)
class _Last:
    """What the inputs' own transform does, as batches call it."""

    inputs: Inputs

    def __call__(self, x: Tensor, generator: Generator) -> Tensor:
        return self.inputs.transform(x)


def prepare(job: FitJob) -> Material:
    """Find the data of a job, divide them, and learn from the training part how inputs become tensors."""
    found = sources.open(job.data, label=job.label)
    choice = choose(job, found) if found.kind == "images" else None
    if choice is not None:
        found = _decoded(found, choice, job.skip_broken)
    split = job.split(found.classes)
    known, novel = divide(indices(found.train), split)
    parts = hold_out(known, job.false_reject_rate, tested=found.test is not None, seed=job.seed)
    inputs, choice = _inputs(job, found, subset(found.train, parts.train), choice)

    def part(data: Data, which: Examples | None) -> Encoded | None:
        return None if which is None or not len(which) else _encoded(subset(data, which), inputs)

    tested, strange = (parts.report, novel) if found.test is None else divide(indices(found.test), split)
    measured = found.train if found.test is None else found.test
    if tested is not None and not len(tested):
        raise DataError(f"the test part of {found.name} holds none of the known classes; add examples, or remove it")
    references = parts.train
    if len(references) > REFERENCES:
        references = train_test_split(references, REFERENCES / len(references), seed=job.seed)[1]
    return Material(
        name=found.name,
        kind=found.kind,
        split=split,
        choice=choice,
        inputs=inputs,
        train=_some(part(found.train, parts.train)),
        references=_some(part(found.train, references)),
        combination=part(found.train, parts.combination),
        calibration=_some(part(found.train, parts.calibration)),
        report=part(measured, tested),
        novel=part(measured, strange),
        notes=parts.notes,
        label=found.label,
    )


def _decoded(found: DataSource, choice: Choice, skip_broken: bool) -> DataSource:
    """The set with the images of its folders in memory where they fit."""
    size, channels = choice.picture

    def read(data: Data | None) -> Data | None:
        return load_images(data, size, channels, skip_broken) if isinstance(data, ImageFolder) else data

    return replace(found, train=_some(read(found.train)), test=read(found.test))


def _inputs(job: FitJob, found: DataSource, train: Data, choice: Choice | None) -> tuple[Inputs, Choice]:
    """How inputs become tensors, learnt from the training part, and the network that takes them."""
    if isinstance(train, Table):
        table = TableInputs(TableEncoder.fit(train, missing="mean", unknown="zeros"))
        return table, choose(job, found, num_inputs=len(table.encoder.inputs))
    if choice is not None:
        return _image_inputs(choice, train), choice
    assert isinstance(train, Examples)
    if found.kind == "texts":
        return _text_inputs(job, found)
    if found.kind == "points":
        return PointInputs(train.inputs.shape[-1]), choose(job, found)
    mean, std = _centre_and_spread(train.inputs, (0, 1))
    return SequenceInputs(train.inputs.shape[-1], mean, std), choose(job, found)


def _image_inputs(choice: Choice, train: Data) -> ImageInputs:
    size, channels = choice.picture
    if choice.weights is not None:
        weights = imagenet_weights(choice.network)
        mean, std = tuple(weights.mean), tuple(weights.std)
    elif isinstance(train, Examples):
        mean, std = _centre_and_spread(train.inputs, (0, 2, 3))
    else:
        mean, std = PUBLISHED if channels == 3 else ((0.5,), (0.25,))
    return ImageInputs(size, channels, mean, std)


def _text_inputs(job: FitJob, found: DataSource) -> tuple[Inputs, Choice]:
    if found.name != "reuters":
        raise OptionError(f"texts can be fitted from the set reuters, got {found.name}")
    assert isinstance(found.train, Examples)
    words = reuters_vocabulary()
    inputs = TextInputs(words.words, max_words=found.train.inputs.shape[1])
    return inputs, choose(job, found, vocabulary=len(words))


def _centre_and_spread(inputs: Tensor, dims: tuple[int, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel, of uint8 with 255 as 1; NaN is no value. A part of the rows at a time."""
    unit = 255.0 if inputs.dtype == torch.uint8 else 1.0
    sums = []
    for rows in torch.split(inputs, CHUNK):
        values = rows.double() / unit
        sums.append(torch.stack([values.nansum(dims), values.square().nansum(dims), (~values.isnan()).sum(dims)]))
    total, squares, count = torch.stack(sums).sum(0)
    mean = total / count
    spread = (squares / count - mean.square()).clamp_min(1e-12).sqrt()
    return tuple(mean.tolist()), tuple(spread.tolist())


def _encoded(data: Data, inputs: Inputs) -> Encoded:
    if not isinstance(data, Table):
        return data
    assert isinstance(inputs, TableInputs)
    return inputs.encoder.apply(data, novel="unknown")


def _some(part: Any) -> Any:
    assert part is not None
    return part
