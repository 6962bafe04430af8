"""Write a bundle: all files beside, then at their place at once."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from openradial.bundle.bundle import Bundle
from openradial.bundle.card import card
from openradial.bundle.parts import classifier_records, classifier_tensors, make_network
from openradial.data.download import checksum
from openradial.errors import BundleError, OpenRadialError, OptionError
from openradial.files import Failure, sync, write_tensors, write_text

FORMAT, SCHEMA = "openradial bundle", 1
WEIGHTS, RECORD, CARD = "weights.safetensors", "bundle.json", "card.md"
FILES = (WEIGHTS, RECORD, CARD)


def save(bundle: Bundle, folder: Path | str, overwrite: bool = False) -> Path:
    """Write a bundle to a folder and return it. Until the last moment, whatever was there stays there, whole.

    ``overwrite`` replaces a bundle, and nothing that is none.
    """
    folder = Path(folder).expanduser().resolve()
    record = bundle_record(bundle)
    tensors = classifier_tensors(bundle.classifier)
    check_saveable(bundle, record["network"], tensors)
    scratch = folder.with_name(f".{folder.name}.part")
    try:
        _bring_back(folder)
        _check_place(folder, overwrite)
        shutil.rmtree(scratch, ignore_errors=True)
        _write(record, tensors, scratch)
        _put(scratch, folder)
    except Failure as error:
        raise BundleError(f"the bundle cannot be written to {folder} ({error}); what was there is whole") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def bundle_record(bundle: Bundle) -> dict[str, Any]:
    """What ``bundle.json`` holds, but for the checksums."""
    network = {"name": bundle.network, "options": _plain("options", bundle.options), "parameters": bundle.parameters}
    return {
        "format": FORMAT,
        "schema": SCHEMA,
        "classes": list(bundle.classes),
        "network": network,
        "preprocessing": {"kind": bundle.preprocessing.kind, **bundle.preprocessing.record()},
        **classifier_records(bundle.classifier),
        "facts": _plain("facts", bundle.facts),
        "versions": dict(bundle.versions),
    }


def record_checksum(record: Mapping[str, Any]) -> str:
    """Checksum of what a record says, however it is laid out as text."""
    said = {name: value for name, value in record.items() if name != "checksum"}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def check_saveable(bundle: Bundle, network: dict[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Raise unless this bundle could be loaded again."""
    broken = first_broken(tensors)
    if broken is not None:
        raise BundleError(f"the weights must not hold nan, and {broken!r} does: its training went wrong; train again")
    try:
        make_network(network, bundle.classifier.head.num_outputs, bundle.classifier.net.state_dict())
    except OpenRadialError as error:
        raise OptionError(f"network and options must build the classifier's network again: {error}") from error


def first_broken(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of a tensor with nan in it."""
    return next((name for name, tensor in tensors.items() if bool(torch.isnan(tensor).any())), None)


def _plain(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as JSON gives them back: tuples are lists."""
    try:
        text = json.dumps(dict(values), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"{name} must be what JSON can hold: strings, finite numbers, lists, dicts ({error})"
        ) from error
    plain: dict[str, Any] = json.loads(text)
    return plain


def _write(record: dict[str, Any], tensors: Mapping[str, Tensor], folder: Path) -> None:
    write_tensors(folder / WEIGHTS, tensors, {"format": "pt"})
    weights = folder / WEIGHTS
    files = {WEIGHTS: {"bytes": weights.stat().st_size, "checksum": checksum(weights, "sha256")}}
    whole = {**record, "files": files}
    whole["checksum"] = record_checksum(whole)
    write_text(folder / RECORD, json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
    write_text(folder / CARD, card(whole))
    for name in (RECORD, CARD):
        sync(folder / name)
    sync(folder)


def _check_place(folder: Path, overwrite: bool) -> None:
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        return
    if not folder.is_dir():
        raise OptionError(f"a bundle is a folder, and {folder} is a file; name another place")
    found = sorted(entry.name for entry in folder.iterdir())
    if found and not overwrite:
        raise OptionError(f"{folder} is there already; name another folder, or allow it with overwrite=True")
    others = [name for name in found if name not in FILES]
    if others or (found and RECORD not in found):
        what = others[0] if others else found[0]
        raise OptionError(f"only a bundle is overwritten, and {folder} also holds {what}; move it away first")


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old")


def _bring_back(folder: Path) -> None:
    """Undo a replacement that was cut off between its two renames."""
    if not folder.exists() and _aside(folder).is_dir():
        _aside(folder).rename(folder)


def _put(scratch: Path, folder: Path) -> None:
    """Let the new folder take the place of the old one; a folder with files in it cannot be renamed over."""
    aside = _aside(folder)
    shutil.rmtree(aside, ignore_errors=True)
    if folder.exists():
        folder.rename(aside)
    try:
        scratch.rename(folder)
    except BaseException:
        _bring_back(folder)
        raise
    sync(folder.parent)
    shutil.rmtree(aside, ignore_errors=True)
