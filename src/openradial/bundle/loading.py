"""Read a bundle. What is damaged, changed or of another version is refused in one sentence; no code comes with it."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from openradial.bundle.card import sections
from openradial.bundle.parts import make_classifier
from openradial.bundle.record import BundleRecord
from openradial.bundle.saving import unusable
from openradial.classifier import OpenClassifier
from openradial.data import inputs
from openradial.data.download import mismatch
from openradial.data.inputs import Inputs
from openradial.encoders.external import LOADERS
from openradial.errors import BundleError, OpenRadialError, first_line
from openradial.files import RECORD, WEIGHTS, Failure, read_tensors

TYPES = (inputs.ImageInputs, inputs.PointInputs, inputs.SequenceInputs, inputs.TableInputs, inputs.TextInputs)
KINDS: dict[str, type[Inputs]] = {each.kind: each for each in TYPES}
# what wrong contents may raise, also in networks that are built from them
DAMAGE = (ArithmeticError, AttributeError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError)


def load(folder: Path | str, *, modules: Iterable[str] = ()) -> OpenClassifier:
    """Load the model in a folder, bit for bit as it was saved.

    No code is loaded with it. A custom network, ``"package.module:factory"``, is built only where ``modules``
    names its module.
    """
    folder = Path(folder).expanduser()
    record = describe(folder)
    name = record.network["name"]
    if name == "encoder":  # of another package, or your own
        name = str(record.network["options"]["encoder"])
    module, colon, _ = name.partition(":")
    if colon and module not in (*LOADERS, *modules):
        message = f"the network of {folder} is {name}, and code is loaded only from modules that you name"
        raise BundleError(f"{message}; if you trust it, load with modules=[{module!r}] (--module {module})")
    tensors = _read_weights(folder)
    try:
        model = make_classifier(record, tensors)
        model.preprocessing = make_inputs(record.preprocessing)
        return model
    except (OpenRadialError, *DAMAGE) as error:
        raise BundleError(f"the bundle in {folder} cannot be loaded: {first_line(error)}") from error


def make_inputs(record: Mapping[str, Any]) -> Inputs:
    """Return the inputs that ``record`` describes."""
    kind = inputs.TokenInputs if "tokenizer" in record else KINDS.get(record["kind"])
    if kind is None:
        raise BundleError(f"there are no inputs of the kind {record['kind']!r}")
    return kind.from_record({name: value for name, value in record.items() if name != "kind"})


def describe(folder: Path | str) -> BundleRecord:
    """Return the record of a bundle after checking all checksums; no network is built."""
    folder = Path(folder).expanduser()
    _check_folder(folder)
    record = BundleRecord.read(folder / RECORD)
    _check_weights(folder, record)
    try:
        sections(record)
    except DAMAGE as error:
        raise BundleError(f"{folder / RECORD} is not a valid record: {first_line(error)}") from error
    return record


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        old = folder.with_name(f".{folder.name}.old")
        hint = f"; a save was interrupted, and the bundle before it is {old}" if old.is_dir() else ""
        state = "is a file" if folder.exists() else "does not exist"
        raise BundleError(f"expected the folder of a bundle, but {folder} {state}{hint}")
    for name in (RECORD, WEIGHTS):
        if not (folder / name).is_file():
            raise BundleError(f"the bundle in {folder} is incomplete: {name} is missing; take another copy of it")
        if (folder / name).resolve().parent != folder.resolve():
            raise BundleError(f"{folder / name} links to a file outside the bundle; copy the file itself")


def _read_weights(folder: Path) -> dict[str, Tensor]:
    try:
        tensors, _ = read_tensors(folder / WEIGHTS)
        # weights that are stored in half precision or less are loaded as float32
        short = {name: t.float() for name, t in tensors.items() if t.is_floating_point() and t.element_size() < 4}
    except (*Failure, RuntimeError) as error:
        raise BundleError(f"{folder / WEIGHTS} is not a complete safetensors file ({first_line(error)})") from error
    wrong = unusable(tensors | short)
    if wrong is not None:
        raise BundleError(f"the weights of {folder} must be finite, and {wrong}")
    # in memory of their own: the file may be removed, and some kernels need aligned addresses
    return {name: tensor.clone() for name, tensor in tensors.items() if name not in short} | short


def _check_weights(folder: Path, record: BundleRecord) -> None:
    if set(record.files) != {WEIGHTS}:
        named = ", ".join(map(repr, record.files)) or "none"
        raise BundleError(f"a bundle has {WEIGHTS} beside its record and no other file, and {folder} names {named}")
    path, expected = folder / WEIGHTS, record.files[WEIGHTS]
    try:
        size, wanted, digest = path.stat().st_size, int(expected["bytes"]), str(expected["checksum"])
        unchanged = size == wanted and digest.startswith("sha256:") and not mismatch(path, digest)
    except OSError as error:
        raise BundleError(f"{path} cannot be read ({error.strerror})") from error
    except DAMAGE as error:
        raise BundleError(f"{folder / RECORD} has no size and checksum of {WEIGHTS}") from error
    if size != wanted:
        raise BundleError(
            f"{path} is incomplete: it has {size:,} bytes instead of {wanted:,}; take another copy of the bundle"
        )
    if not unchanged:
        raise BundleError(f"{path} is not what was saved: its checksum differs; take another copy of the bundle")
