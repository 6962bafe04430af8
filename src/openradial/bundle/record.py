"""The record of a bundle, ``bundle.json``: one dataclass, parsed and validated once."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn, NotRequired, Self, TypedDict, get_type_hints

from openradial.errors import BundleError, first_line
from openradial.files import check_json

FORMAT, SCHEMA = "openradial bundle", 2
LARGEST = 64 * 2**20  # bytes of bundle.json


class NetworkRecord(TypedDict):
    """What :func:`openradial.models.build` takes."""

    name: str
    options: dict[str, Any]
    parameters: int  # their number


class InputsRecord(TypedDict):
    """The kind of inputs; other keys are those of its ``from_record``."""

    kind: str


class PartRecord(TypedDict):
    """A head or a combination."""

    kind: str
    settings: dict[str, Any]


class ScorerRecord(TypedDict):
    """A scorer and the layer that it reads; a scorer that is the head itself has no settings."""

    layer: str
    kind: str
    settings: NotRequired[dict[str, Any]]


class DecisionRecord(PartRecord):
    """A rejector, and the largest accepted unknown score at usual rates."""

    thresholds: dict[str, Any]


class FileRecord(TypedDict):
    """Size and checksum of a file."""

    bytes: int
    checksum: str


@dataclass(frozen=True)
class BundleRecord:
    """Everything about a bundle except its tensors, as JSON values."""

    classes: list[str]
    network: NetworkRecord
    preprocessing: InputsRecord
    head: PartRecord
    scorers: list[ScorerRecord]
    combination: PartRecord | None
    far_axis: ScorerRecord | None
    decision: DecisionRecord | None
    metadata: dict[str, Any]
    versions: dict[str, str]
    files: dict[str, FileRecord] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the text of ``bundle.json``, with a checksum of what it says."""
        values = {"format": FORMAT, "schema": SCHEMA, **asdict(self)}
        return json.dumps(values | {"checksum": record_checksum(values)}, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read and validate ``bundle.json``."""
        values = _parse(path)
        if values.get("format") != FORMAT:
            raise BundleError(f"{path} is not the record of a bundle; name the folder that openradial fit wrote")
        if values.get("schema") != SCHEMA:
            raise BundleError(
                f"{path.parent} is a bundle of schema {values.get('schema')!r}, and this version of openradial reads "
                f"schema {SCHEMA}; fit the model again, or install the version that wrote it"
            )
        if record_checksum(values) != values.get("checksum"):
            raise BundleError(f"{path} was changed after it was written; take another copy of the bundle")
        hints = get_type_hints(cls)
        for each in fields(cls):
            if each.name not in values:
                raise BundleError(f"{path} is incomplete: {each.name} is missing")
            check_json(f"{path}: {each.name}", values[each.name], hints[each.name], BundleError)
        return cls(**{each.name: values[each.name] for each in fields(cls)})


def record_checksum(values: Mapping[str, Any]) -> str:
    """Return the checksum of the values, however they are laid out as text."""
    plain = {name: value for name, value in values.items() if name != "checksum"}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _parse(path: Path) -> dict[str, Any]:
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise BundleError(f"{path} has {size:,} bytes, more than the {LARGEST:,} of any record")
        values = json.loads(path.read_bytes().decode("utf-8"), parse_constant=_refuse)
    except OSError as error:
        raise BundleError(f"{path} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise BundleError(f"{path} is not UTF-8 from byte {error.start} on; take another copy of it") from error
    except BundleError:
        raise
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path} is not valid JSON ({first_line(error)}); take another copy of it") from error
    if not isinstance(values, dict):
        raise BundleError(f"{path} must hold a JSON object, got a {type(values).__name__}")
    return values


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
