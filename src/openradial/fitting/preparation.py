"""Prepare data for a network: hold out parts, learn how raw inputs become tensors."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Unpack

import numpy as np
import torch
from torch import Tensor

from openradial.data.batches import Batches, BatchOptions, FolderBatches
from openradial.data.column_types import ColumnType
from openradial.data.examples import Examples
from openradial.data.inputs import ImageInputs, Inputs, PointInputs, SequenceInputs, TableInputs
from openradial.data.near_duplicates import near_duplicate_groups
from openradial.data.readers.columns import Words
from openradial.data.readers.folder import ImageFolder
from openradial.data.readers.tables import Table
from openradial.data.sources import Data, DataSource, indices, load_images, open, subset
from openradial.data.splits import Split, count_duplicates, divide, identical_groups, join_groups, train_test_split
from openradial.data.table_encoder import TableEncoder
from openradial.data.transforms import (
    Compose,
    RandomAffine,
    RandomColour,
    RandomErase,
    RandomFlip,
    RandomShift,
    Transform,
)
from openradial.errors import DataError, OptionError, nearest
from openradial.fitting.column_texts import ColumnTexts, encode_texts
from openradial.fitting.columns import choose_columns, reading_options
from openradial.fitting.encoding import broken_notes
from openradial.fitting.held_out import hold_out, hold_out_nothing
from openradial.fitting.networks import NetworkChoice, choose_network
from openradial.fitting.options import FitOptions
from openradial.models import imagenet_weights
from openradial.recipe import REFERENCES, MethodName

PUBLISHED = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # of ImageNet, for photographs that stay on disk
CHUNK = 1024  # rows that are averaged at a time
MOST_CROSS = 20_000  # examples up to which none is held out in closed form: more spare a part easily
ROWS = ("table", "points")  # kinds of data that are rows of numbers
Encoded = Examples | ImageFolder


@dataclass(frozen=True, eq=False)
class PreparedData:
    """Known data in parts, each for one use; ``references`` are the training examples that scorers keep."""

    name: str
    kind: str
    split: Split
    network: NetworkChoice
    inputs: Inputs
    train: Encoded
    references: Encoded
    combination: Encoded | None
    calibration: Encoded | None
    report: Encoded | None
    novel: Encoded | None
    notes: tuple[str, ...]
    label: str | None = None
    method: MethodName = "gradient"
    groups: Tensor | None = None  # of the training examples: what no fold separates
    types: Mapping[str, ColumnType] = field(default_factory=dict)  # of the columns of a table
    texts: ColumnTexts | None = None  # of these columns

    def batches(self, data: Encoded, size: int, **options: Unpack[BatchOptions]) -> Batches | FolderBatches:
        """Return batches ready for the network: in order, or shuffled and augmented for training."""
        options["transform"] = self._transform(options.get("shuffle", False))
        if isinstance(data, Examples):
            return Batches(data, size, **options)
        pixels, channels = self.network.image_size
        return FolderBatches(data, pixels, size, channels=channels, **options)

    @property
    def num_features(self) -> int:
        """Width of the rows of a table, or of other features."""
        assert isinstance(self.train, Examples)
        return self.train.inputs.shape[1]

    def counts(self) -> dict[str, int]:
        """Return the number of examples of each part."""
        parts = {name: getattr(self, name) for name in ("train", "combination", "calibration", "report", "novel")}
        return {name: len(part) for name, part in parts.items() if part is not None}

    def _transform(self, training: bool) -> Transform:
        if not isinstance(self.inputs, ImageInputs):
            return lambda x, generator: self.inputs.transform(x)
        steps: list[Transform] = [self.inputs.normalise()]
        if training:
            network = self.network
            before: list[Transform] = [RandomShift(network.shift)] if network.shift else []
            after: list[Transform] = []
            if network.augment:
                after = [RandomAffine(network.augment), RandomColour(network.augment)]
            after += [RandomErase(network.cutout)] if network.cutout else []
            steps = [*before, *([RandomFlip()] if network.flip else []), *steps, *after]
        return Compose(*steps)


def prepare(options: FitOptions, source: DataSource | None = None) -> PreparedData:
    """Split the data, and learn from the training part how inputs become tensors; without a source, open it."""
    if source is None:
        source = open(options.data, label=options.label, **reading_options(options))
    method = options.choose_method("table" if source.is_embedded else source.kind)
    if method == "closed-form" and source.kind not in ROWS:
        hint = "; name an encoder (--encoder)" if source.kind == "images" else ""
        message = f"closed form needs rows of numbers, such as a table, and {source.name} holds {source.kind}"
        raise OptionError(f"{message}{hint}")
    rate = 0.05 if isinstance(options.false_reject_rate, str) else options.false_reject_rate  # what to hold out for
    if method == "gradient" and options.false_reject_rate == "auto":
        raise OptionError("false_reject_rate='auto' is for closed form, and a network is trained here; give a number")
    network = choose_network(options, source) if source.kind == "images" else None
    broken: tuple[str, ...] = ()
    if network is not None:
        loaded = _in_memory(source, network, options.skip_broken)
        broken, source = broken_notes(source, loaded.train, loaded.test), loaded
    split = options.split(source.classes)
    source, column_notes = choose_columns(options, source, split)
    source, groups, notes = _groups(source, options.group, options.near_duplicates)
    known, novel = divide(indices(source.train), split)
    has_test = source.test is not None
    if is_cross(options, method, len(known)):
        parts = hold_out_nothing(known)
    else:
        parts = hold_out(known, rate, has_test_data=has_test, seed=options.seed, groups=groups)
    inputs, network = _inputs(options, source, subset(source.train, parts.train), network)
    texts = encode_texts(options, source, inputs, parts.train) if method == "closed-form" else None
    if method == "closed-form":
        network = NetworkChoice("features")

    def part(data: Data, which: Examples) -> Encoded:
        selected = subset(data, which)
        if not isinstance(selected, Table):
            return selected
        assert isinstance(inputs, TableInputs)
        used = {name: selected.columns[name] for name in inputs.columns}
        encoded = inputs.encoder.apply(replace(selected, columns=used), novel="unknown")
        z = None if texts is None else texts.test if data is source.test else texts.train
        return encoded if z is None else replace(encoded, inputs=torch.cat([encoded.inputs, z[which.inputs]], 1))

    def part_or_none(data: Data, which: Examples | None) -> Encoded | None:
        return part(data, which) if which is not None and len(which) else None

    measured, report = source.train, parts.report
    if source.test is not None:
        measured, (report, novel) = source.test, divide(indices(source.test), split)
        if not len(report):
            raise DataError(f"the test part of {source.name} holds no known class; add examples, or remove it")
    references = parts.train
    if len(references) > REFERENCES:
        references = train_test_split(references, REFERENCES / len(references), seed=options.seed)[1]
    return PreparedData(
        name=source.name,
        kind=source.kind,
        split=split,
        network=network,
        inputs=inputs,
        train=part(source.train, parts.train),
        references=part(source.train, references),
        combination=part_or_none(source.train, parts.combination),
        calibration=part_or_none(source.train, parts.calibration),
        report=part_or_none(measured, report),
        novel=part_or_none(measured, novel),
        notes=(*broken, *(texts.notes if texts else ()), *column_notes, *notes, *parts.notes),
        label=source.label,
        method=method,
        groups=groups[parts.train.inputs],
        types=source.types or {},
        texts=texts,
    )


def is_cross(options: FitOptions, method: MethodName, examples: int) -> bool:
    """Return whether nothing is held out: each example calibrates without its fold."""
    if options.calibration == "auto":
        return method == "closed-form" and examples <= MOST_CROSS
    return options.calibration == "cross"


def _groups(source: DataSource, column: str | None, near: bool) -> tuple[DataSource, Tensor, list[str]]:
    """Return the source without the column of groups, the group of each example, and a note about duplicates.

    Identical inputs are one group, and near-duplicates if ``near`` is true, so that no split separates them.
    """
    groups, notes = identical_groups(source.train), []
    if duplicates := count_duplicates(groups):
        notes.append(f"duplicates: {duplicates:,} of {len(groups):,} examples; no split separates them")
    if near:  # of images whose features are fitted, the groups come with the features
        groups = join_groups(groups, near_duplicate_groups(source.train) if source.groups is None else source.groups)
        number = count_duplicates(groups) - duplicates
        notes.append(f"near-duplicates: {number:,} of {len(groups):,} images; no split separates them")
    if column is None:
        return source, groups, notes
    if source.groups is not None and not near:
        return source, join_groups(groups, source.groups), notes
    if not isinstance(source.train, Table):
        raise OptionError(f"group names a column of a table, and {source.name} holds {source.kind}")
    if column not in source.train.columns:
        names = list(source.train.columns)
        raise OptionError(f"{source.name} has no column {column!r} to group by{nearest(column, names)}")
    values = source.train.columns[column]
    codes = values.codes if isinstance(values, Words) else np.unique(values.values, return_inverse=True)[1]
    for name in ("train", "test"):
        table = getattr(source, name)
        if isinstance(table, Table):
            columns = {key: values for key, values in table.columns.items() if key != column}
            source = replace(source, **{name: replace(table, columns=columns)})  # type: ignore[arg-type]
    return source, join_groups(groups, torch.from_numpy(codes.astype(np.int64))), notes


def _in_memory(source: DataSource, network: NetworkChoice, skip_broken: bool) -> DataSource:
    """Return the source with the images of its folders in memory where they fit."""
    for name in ("train", "test"):
        folder = getattr(source, name)
        if isinstance(folder, ImageFolder):
            images = load_images(folder, *network.image_size, skip_broken)
            source = replace(source, **{name: images})  # type: ignore[arg-type]
    return source


def _inputs(
    options: FitOptions, source: DataSource, train: Data, network: NetworkChoice | None
) -> tuple[Inputs, NetworkChoice]:
    """Return how inputs become tensors, learnt from the training part, and the network that takes them."""
    if isinstance(train, Table):
        encoder = TableEncoder.fit(train, types=source.types, missing="mean", unknown="zeros")
        is_trained = options.choose_method(source.kind) == "gradient"  # a network, which takes no free text
        table = TableInputs(replace(encoder, texts=()) if is_trained else encoder)
        return table, choose_network(options, source, num_inputs=len(table.encoder.inputs))
    if network is not None:
        return _image_inputs(network, train), network
    assert isinstance(train, Examples)
    if source.kind == "texts":
        raise OptionError(f"texts are a column of a table, and {source.name} holds tokens; give the texts themselves")
    if source.kind == "points":
        return PointInputs(train.inputs.shape[-1]), choose_network(options, source)
    mean, std = _mean_and_std(train.inputs, (0, 1))
    return SequenceInputs(train.inputs.shape[-1], mean, std), choose_network(options, source)


def _image_inputs(network: NetworkChoice, train: Data) -> ImageInputs:
    size, channels = network.image_size
    if network.weights == "imagenet":
        weights = imagenet_weights(network.name)
        mean, std = tuple(weights.mean), tuple(weights.std)
    elif isinstance(train, Examples):
        mean, std = _mean_and_std(train.inputs, (0, 2, 3))
    else:
        mean, std = PUBLISHED if channels == 3 else ((0.5,), (0.25,))
    return ImageInputs(size, channels, mean, std)


def _mean_and_std(inputs: Tensor, dims: tuple[int, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel, of uint8 with 255 as 1; NaN is missing. Chunk by chunk."""
    unit = 255.0 if inputs.dtype == torch.uint8 else 1.0
    sums = []
    for rows in torch.split(inputs, CHUNK):
        values = rows.double() / unit
        sums.append(torch.stack([values.nansum(dims), values.square().nansum(dims), (~values.isnan()).sum(dims)]))
    total, squares, count = torch.stack(sums).sum(0)
    mean = total / count
    std = (squares / count - mean.square()).clamp_min(1e-12).sqrt()
    return tuple(mean.tolist()), tuple(std.tolist())
