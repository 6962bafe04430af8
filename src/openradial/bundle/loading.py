"""Read a bundle. What is damaged, changed or from elsewhere is refused in one sentence; no code comes with it."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from torch import Tensor

from openradial.bundle.bundle import Bundle
from openradial.bundle.card import sections
from openradial.bundle.images import ImageInputs
from openradial.bundle.inputs import Inputs
from openradial.bundle.parts import explained, make_classifier
from openradial.bundle.rows import PointInputs, SequenceInputs, TextInputs
from openradial.bundle.saving import FORMAT, RECORD, SCHEMA, WEIGHTS, first_broken, record_checksum
from openradial.bundle.tables import TableInputs
from openradial.data.download import file_matches
from openradial.errors import BundleError, OpenRadialError
from openradial.files import Failure, read_tensors

LARGEST_RECORD = 64 * 2**20  # bytes of bundle.json
KINDS: dict[str, type[Inputs]] = {
    kind.kind: kind for kind in (ImageInputs, PointInputs, SequenceInputs, TableInputs, TextInputs)
}
# what contents may raise, and networks that are built from them
DAMAGE = (ArithmeticError, AttributeError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError)


def load(folder: Path | str, *, modules: Iterable[str] = ()) -> Bundle:
    """Read the bundle in a folder, bit for bit as it was saved.

    No code is loaded with it. A network of your own, ``"package.module:factory"``, is built only where ``modules``
    names its module.
    """
    folder = Path(folder).expanduser()
    record = describe(folder)
    _check_code(folder, str(record["network"]["name"]), tuple(modules))
    tensors = _read_weights(folder)
    try:
        return _bundle(record, tensors)
    except (OpenRadialError, *DAMAGE) as error:
        raise BundleError(f"{folder} holds no bundle that this version can make: {explained(error)}") from error


def describe(folder: Path | str) -> dict[str, Any]:
    """What ``bundle.json`` says, after all checksums were found to be right; no network is built."""
    folder = Path(folder).expanduser()
    record = read_record(folder)
    _check_weights(folder, record)
    try:
        sections(record)
    except DAMAGE as error:
        raise BundleError(f"{folder / RECORD} is not a whole record: {explained(error)}") from error
    return record


def read_record(folder: Path) -> dict[str, Any]:
    """The contents of ``bundle.json``, found whole and unchanged."""
    _check_folder(folder)
    record = _parsed(folder / RECORD)
    if record.get("format") != FORMAT:
        raise BundleError(f"{folder / RECORD} is no record of a bundle; name the folder that save wrote")
    schema = record.get("schema")
    if not isinstance(schema, int) or schema > SCHEMA or schema < 1:
        raise BundleError(
            f"{folder} is a bundle of schema {schema!r}, and this version reads up to {SCHEMA}; update openradial"
        )
    if record_checksum(record) != record.get("checksum"):
        raise BundleError(f"{folder / RECORD} was changed after it was written; take another copy of the bundle")
    return record


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        aside = folder.with_name(f".{folder.name}.old")
        hint = f"; a save was cut off, and the bundle before it is {aside}" if aside.is_dir() else ""
        raise BundleError(f"expected a bundle's folder, but {folder} {_what(folder)}{hint}")
    for name in (RECORD, WEIGHTS):
        if not (folder / name).is_file():
            raise BundleError(f"{folder} is no whole bundle: it has no {name}; take another copy of it")
        if (folder / name).resolve().parent != folder.resolve():
            raise BundleError(f"{folder / name} leads out of the bundle's folder; copy the file itself to its place")


def _what(path: Path) -> str:
    return "is a file" if path.exists() else "does not exist"


def _parsed(path: Path) -> dict[str, Any]:
    try:
        size = path.stat().st_size
        if size > LARGEST_RECORD:
            raise BundleError(f"{path} has {size:,} bytes, more than the {LARGEST_RECORD:,} of any bundle's record")
        record = json.loads(path.read_bytes().decode("utf-8"), parse_constant=_refuse)
    except OSError as error:
        raise BundleError(f"{path} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise BundleError(f"{path} is not UTF-8 from byte {error.start} on; take another copy of it") from error
    except (ValueError, RecursionError) as error:
        raise _unless_ours(error, f"{path} is no whole JSON ({explained(error)}); take another copy of it") from error
    if not isinstance(record, dict):
        raise BundleError(f"{path} must hold a JSON object, got a {type(record).__name__}")
    return record


def _unless_ours(error: Exception, message: str) -> BundleError:
    return error if isinstance(error, BundleError) else BundleError(message)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _check_code(folder: Path, name: str, modules: tuple[str, ...]) -> None:
    module, colon, _ = name.partition(":")
    if colon and module not in modules:
        raise BundleError(
            f"the network of {folder} is {name}, and code is loaded only from modules that you name; "
            f"if you trust it, load with modules=[{module!r}] (--module {module})"
        )


def _read_weights(folder: Path) -> dict[str, Tensor]:
    try:
        tensors, _ = read_tensors(folder / WEIGHTS)
    except Failure as error:
        raise BundleError(f"{folder / WEIGHTS} is no whole safetensors file ({explained(error)})") from error
    broken = first_broken(tensors)
    if broken is not None:
        raise BundleError(f"the weights of {folder} hold nan in {broken!r}; its training went wrong, train again")
    # in memory of their own: the file may go, and some kernels want addresses that a file does not give
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _check_weights(folder: Path, record: Mapping[str, Any]) -> None:
    files = record.get("files")
    if not isinstance(files, dict) or set(files) != {WEIGHTS}:
        named = ", ".join(map(repr, files)) if isinstance(files, dict) else repr(files)
        raise BundleError(f"a bundle has {WEIGHTS} beside its record and no other file, and {folder} names {named}")
    path, expected = folder / WEIGHTS, files[WEIGHTS]
    try:
        size, wanted, digest = path.stat().st_size, int(expected["bytes"]), str(expected["checksum"])
        unchanged = size == wanted and digest.startswith("sha256:") and file_matches(path, digest)
    except OSError as error:
        raise BundleError(f"{path} cannot be read ({error.strerror})") from error
    except DAMAGE as error:
        raise BundleError(f"{folder / RECORD} does not say how large {WEIGHTS} is and what its checksum is") from error
    if size != wanted:
        raise BundleError(
            f"{path} is not whole: it has {size:,} bytes and should have {wanted:,}; take another copy of the bundle"
        )
    if not unchanged:
        raise BundleError(f"{path} is not what was saved: its checksum differs; take another copy of the bundle")


def _bundle(record: dict[str, Any], tensors: Mapping[str, Tensor]) -> Bundle:
    given, network = dict(record["preprocessing"]), record["network"]
    kind = given.pop("kind")
    if kind not in KINDS:
        raise BundleError(f"there are no inputs of the kind {kind!r}")
    return Bundle(
        make_classifier(record, tensors),
        network["name"],
        network["options"],
        tuple(record["classes"]),
        KINDS[kind].from_record(given),
        record["facts"],
        record["versions"],
    )
