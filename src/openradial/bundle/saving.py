"""Write a bundle: all files to a scratch folder, then renamed at once."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from openradial import files
from openradial.bundle.card import card
from openradial.bundle.parts import classifier_records, classifier_tensors, make_network
from openradial.bundle.record import BundleRecord, FileRecord, InputsRecord
from openradial.classifier import OpenClassifier
from openradial.data.download import checksum
from openradial.errors import BundleError, OpenRadialError, OptionError
from openradial.files import CARD, RECORD, WEIGHTS, Failure, sync, write_tensors, write_text


def save(model: OpenClassifier, folder: Path | str, overwrite: bool = False) -> Path:
    """Write a model to a folder and return the folder. An existing bundle stays complete until the last moment.

    ``overwrite`` replaces an existing bundle, and nothing else.
    """
    folder = files.writable(folder)
    record, tensors = make_record(model), classifier_tensors(model)
    wrong = unusable(tensors)
    if wrong is not None:
        raise BundleError(f"the weights of a bundle must be finite, and {wrong}")
    try:
        make_network(record.network, model.head.num_outputs, model.net.state_dict())
    except OpenRadialError as error:
        raise OptionError(f"network and options must build the network of the model again: {error}") from error
    scratch = folder.with_name(f".{folder.name}.part")
    try:
        files.check_bundle_folder(folder, overwrite)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)
        _write(record, tensors, scratch)
        _replace(scratch, folder)
    except Failure as error:
        raise BundleError(
            f"the bundle cannot be written to {folder} ({error}); an existing one is unchanged"
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def make_record(model: OpenClassifier) -> BundleRecord:
    """Return what ``bundle.json`` holds, except the checksums of files."""
    name, options = model.network
    if not name:
        raise OptionError(
            "a model is saved with the name of its network, so that it can be built again: set "
            "network=(name, options), as openradial.models.build takes them"
        )
    return BundleRecord(
        classes=list(model.classes),
        network={"name": name, "options": _json("options", options), "parameters": model.num_parameters},
        preprocessing=cast(InputsRecord, {"kind": model.preprocessing.kind, **model.preprocessing.record()}),
        **classifier_records(model),
        metadata=_json("metadata", model.metadata),
        versions=dict(model.versions),
    )


def unusable(tensors: Mapping[str, Tensor]) -> str | None:
    """Return which tensor holds nan or infinite weights, and the way out."""
    for name, tensor in tensors.items():
        is_weight = name.startswith(("network.", "head."))  # calibration scores may be infinite
        for kind, wrong in (("nan", tensor.isnan()), ("infinite values", tensor.isinf() & is_weight)):
            if bool(wrong.any()):
                return f"{name!r} holds {kind}: training went wrong; train again"
    return None


def _json(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as JSON gives them back: tuples are lists."""
    try:
        text = json.dumps(dict(values), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise OptionError(f"{name} must be JSON values: strings, finite numbers, lists, dicts ({error})") from error
    plain: dict[str, Any] = json.loads(text)
    return plain


def _write(record: BundleRecord, tensors: Mapping[str, Tensor], folder: Path) -> None:
    weights = folder / WEIGHTS
    write_tensors(weights, tensors, {"format": "pt"})
    facts: FileRecord = {"bytes": weights.stat().st_size, "checksum": checksum(weights, "sha256")}
    record = replace(record, files={WEIGHTS: facts})
    for name, text in ((RECORD, record.to_json()), (CARD, card(record))):
        write_text(folder / name, text)
        sync(folder / name)
    sync(folder)


def _replace(scratch: Path, folder: Path) -> None:
    """Replace the folder by the scratch folder; a folder that is not empty cannot be renamed over."""
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    try:
        scratch.rename(folder)
    except BaseException:
        files.restore_interrupted(folder)
        raise
    sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)
