"""Data for a job: loaded, split into known and novel, cut into batches."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from openradial.data import catalog
from openradial.data.batches import Batches, FolderBatches, loader_for
from openradial.data.examples import Examples
from openradial.data.readers import folder as folders
from openradial.data.readers.folder import ImageFolder
from openradial.data.readers.tables import read_table
from openradial.data.sets.tiny_imagenet import tiny_imagenet
from openradial.data.splits import Split, divide, parse_known, train_test_split
from openradial.data.table_encoder import TableEncoder
from openradial.data.transforms import Compose, Normalise, RandomFlip, RandomShift, Transform
from openradial.errors import DataError, OptionError
from openradial.models import imagenet_weights
from openradial.training.job import Job

PUBLISHED = {"imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))}  # how the paper normalises ImageNet
Source = Batches | FolderBatches
FOLDERS = ("folder", "tiny-imagenet")


@dataclass(frozen=True)
class Prepared:
    """Batches of a job, and what a network and a later prediction must know of its data."""

    train: Source
    validation: Source | None
    test: Source
    novel: Source | None
    split: Split
    kind: str
    shape: tuple[int, ...]  # of one input
    vocabulary: int | None
    preprocessing: Mapping[str, Any]


def prepare(job: Job, *, rank: int = 0, world: int = 1) -> Prepared:
    """Load the data of a job for one of ``world`` processes."""
    if job.training.batch_size % world:
        raise OptionError(
            f"batch_size counts all processes together and must be a multiple of {world}, their number, "
            f"got {job.training.batch_size}"
        )
    kind, _, path = job.data.partition(":")
    if job.size is not None and kind not in FOLDERS:
        raise OptionError(f"size is for folders of images; {job.data} has its own")
    if kind in FOLDERS:
        return _prepare_folder(job, kind, _given(job, path), rank, world)
    if kind == "table":
        return _prepare_table(job, _given(job, path), rank, world)
    return _prepare_examples(job, rank, world)


def _given(job: Job, path: str) -> Path:
    if not path:
        raise OptionError(f"data {job.data!r} needs a path, as in {job.data}:PATH")
    return Path(path).expanduser()


def _split(job: Job, classes: tuple[str, ...]) -> Split:
    if job.known == "all":
        return Split(classes, (), {"rule": "all"})
    if ":" not in job.known:
        raise OptionError(f"known must be all, random:N, names:A,B,..., file:PATH or not:WNID, got {job.known!r}")
    return parse_known(job.known, classes, seed=job.split_seed)


def _prepare_examples(job: Job, rank: int, world: int) -> Prepared:
    train, test = catalog.load(job.data, "train"), catalog.load(job.data, "test")
    kind = catalog.entry(job.data.partition(":")[0]).kind
    vocabulary = int(train.inputs.max()) + 1 if kind == "texts" else None
    return _from_examples(job, train, test, kind, vocabulary, {}, rank, world)


def _prepare_table(job: Job, path: Path, rank: int, world: int) -> Prepared:
    if job.label is None:
        raise OptionError("a table needs label, the name of the column with the classes")
    train, test = train_test_split(read_table(path, label=job.label), seed=job.split_seed)
    split = _split(job, train.classes)
    encoder = TableEncoder.fit(divide(train, split)[0]) if split.novel else TableEncoder.fit(train)
    # the encoder knows the known classes alone, so labels come from the table
    seen, unseen = (
        Examples(encoder.apply(part, novel="unknown").inputs, part.labels, part.classes) for part in (train, test)
    )
    return _from_examples(job, seen, unseen, "table", None, {"table": encoder.to_json()}, rank, world)


def _from_examples(
    job: Job,
    train: Examples,
    test: Examples,
    kind: str,
    vocabulary: int | None,
    facts: Mapping[str, Any],
    rank: int,
    world: int,
) -> Prepared:
    split = _split(job, train.classes)
    known, _ = divide(train, split)
    test_known, test_novel = divide(test, split)
    watched = None
    if job.validation:
        known, watched = train_test_split(known, job.validation, seed=job.training.seed)
    normalise, numbers = _normalisation(job, known.inputs, kind)
    cut = partial(_cut, job, rank=rank, world=world)
    plain = cut(shuffle=False, transform=normalise)
    return Prepared(
        train=cut(shuffle=True, transform=_augmented(job, kind, normalise))(known),
        validation=plain(watched) if watched is not None else None,
        test=plain(test_known),
        novel=plain(test_novel) if len(test_novel) else None,
        split=split,
        kind=kind,
        shape=tuple(train.inputs.shape[1:]),
        vocabulary=vocabulary,
        preprocessing={**facts, **numbers},
    )


def _cut(
    job: Job, *, shuffle: bool, transform: Transform | None, rank: int, world: int
) -> Callable[[Examples], Batches]:
    size = job.training.batch_size // world
    options: dict[str, Any] = {
        "shuffle": shuffle,
        "seed": job.training.seed,
        "transform": transform,
        "rank": rank,
        "world": world,
    }
    return lambda examples: Batches(examples, size, **options)


def _prepare_folder(job: Job, kind: str, root: Path, rank: int, world: int) -> Prepared:
    load = _folder_loader(kind, root)
    split = _split(job, load("train").classes)
    train = load("train", classes=split.known)
    watched = None
    if job.validation:
        train, watched = _held_out(train, job)
    size = job.size or 64
    normalise = Normalise(*_image_numbers(job))
    options: dict[str, Any] = {
        "seed": job.training.seed,
        "skip_broken": job.skip_broken,
        "rank": rank,
        "world": world,
        "batch_size": job.training.batch_size // world,
        "size": size,
    }

    def cut(found: ImageFolder, transform: Transform | None, shuffle: bool = False) -> Source:
        return loader_for(found, transform=transform, shuffle=shuffle, **options)

    return Prepared(
        train=cut(train, _augmented(job, "images", normalise), shuffle=True),
        validation=cut(watched, normalise) if watched is not None else None,
        test=cut(load("val", classes=split.known), normalise),
        novel=cut(load("val", classes=split.novel), normalise) if split.novel else None,
        split=split,
        kind="images",
        shape=(3, size, size),
        vocabulary=None,
        preprocessing={"size": size, "mean": normalise.mean, "std": normalise.std},
    )


def _folder_loader(kind: str, root: Path) -> Callable[..., ImageFolder]:
    if kind == "tiny-imagenet":
        return partial(tiny_imagenet, root)
    if not root.is_dir():
        raise DataError(f"there is no folder {root}")
    for test in ("val", "validation", "test"):
        if (root / "train").is_dir() and (root / test).is_dir():
            return partial(_scan_part, {"train": root / "train", "val": root / test})
    raise DataError(f"{root} must have the folders train and val (or test), each with one folder per class")


def _scan_part(places: Mapping[str, Path], part: str, classes: tuple[str, ...] | None = None) -> ImageFolder:
    return folders.scan(places[part], classes=classes)


def _held_out(folder: ImageFolder, job: Job) -> tuple[ImageFolder, ImageFolder]:
    """Training images without a share that is kept for watching, and that share."""
    places = Examples(torch.arange(len(folder)), folder.labels, folder.classes)
    kept, held = train_test_split(places, job.validation, seed=job.training.seed)
    return _chosen(folder, kept.inputs), _chosen(folder, held.inputs)


def _chosen(folder: ImageFolder, places: Tensor) -> ImageFolder:
    return replace(folder, paths=[folder.paths[i] for i in places.tolist()], labels=folder.labels[places])


def _image_numbers(job: Job) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if job.weights == "imagenet":
        weights = imagenet_weights(job.model)
        return weights.mean, weights.std
    return PUBLISHED["imagenet"]


def _normalisation(job: Job, inputs: Tensor, kind: str) -> tuple[Transform | None, dict[str, Any]]:
    """Mean and deviation of the known training data, per channel of an image or a sequence."""
    if kind not in ("images", "sequences"):
        return None, {}
    dims = (0, 2, 3) if kind == "images" else (0, 1)
    if kind == "images" and job.weights == "imagenet":
        mean, std = (list(values) for values in _image_numbers(job))
    else:
        values = inputs.double().div(255.0 if inputs.dtype == torch.uint8 and kind == "images" else 1.0)
        count = (~values.isnan()).sum(dims)
        centre = values.nansum(dims) / count
        shape = [1, -1, 1, 1] if kind == "images" else [1, 1, -1]
        spread = ((values - centre.view(shape)).square().nansum(dims) / count).sqrt()
        mean, std = centre.tolist(), spread.clamp_min(1e-6).tolist()
    return (Normalise(mean, std) if kind == "images" else Standardise(mean, std)), {"mean": mean, "std": std}


@dataclass(frozen=True)
class Standardise:
    """``(x - mean) / std`` on the last axis."""

    mean: list[float]
    std: list[float]

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return (x - x.new_tensor(self.mean)) / x.new_tensor(self.std)


def _augmented(job: Job, kind: str, normalise: Transform | None) -> Transform | None:
    if not job.augment:
        return normalise
    if kind != "images":
        raise OptionError(f"augment is for images, and {job.data} holds {kind}")
    steps: list[Transform] = [RandomFlip(), RandomShift()]
    return Compose(*steps, *([normalise] if normalise is not None else []))
