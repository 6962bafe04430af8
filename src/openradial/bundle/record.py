"""The record of a bundle, ``bundle.json``: one dataclass, parsed and validated once."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn, Self, get_origin, get_type_hints

from openradial.errors import BundleError

FORMAT, SCHEMA = "openradial bundle", 2
LARGEST = 64 * 2**20  # bytes of bundle.json


@dataclass(frozen=True)
class BundleRecord:
    """Everything about a bundle except its tensors, as JSON values."""

    classes: list[str]
    network: dict[str, Any]  # name, options, parameters
    preprocessing: dict[str, Any]  # kind, and the values of that kind
    head: dict[str, Any]  # kind, settings
    scorers: list[dict[str, Any]]  # layer, kind, settings
    combination: dict[str, Any] | None
    decision: dict[str, Any] | None  # kind, settings, thresholds
    metadata: dict[str, Any]
    versions: dict[str, str]
    files: dict[str, dict[str, Any]] = field(default_factory=dict)  # bytes, checksum

    def to_json(self) -> str:
        """Return the text of ``bundle.json``, with a checksum of what it says."""
        values = {"format": FORMAT, "schema": SCHEMA, **asdict(self)}
        return json.dumps(values | {"checksum": _checksum(values)}, indent=1, ensure_ascii=False) + "\n"

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
        if _checksum(values) != values.get("checksum"):
            raise BundleError(f"{path} was changed after it was written; take another copy of the bundle")
        hints = get_type_hints(cls)
        for each in fields(cls):
            if each.name not in values:
                raise BundleError(f"{path} is incomplete: {each.name} is missing")
            _check_type(path, each.name, values[each.name], hints[each.name])
        return cls(**{each.name: values[each.name] for each in fields(cls)})


def _checksum(values: Mapping[str, Any]) -> str:
    """Return the checksum of the values, however they are laid out as text."""
    plain = {name: value for name, value in values.items() if name != "checksum"}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _check_type(path: Path, name: str, value: Any, hint: Any) -> None:
    optional = type(None) in getattr(hint, "__args__", ())
    expected = list if get_origin(hint) is list else dict
    if not (isinstance(value, expected) or (optional and value is None)):
        raise BundleError(
            f"{path}: {name} must be a JSON {'list' if expected is list else 'object'}, got {value!r:.80}"
        )
    element = {"classes": str, "scorers": dict}.get(name)
    if element is not None and not all(isinstance(each, element) for each in value or ()):
        raise BundleError(f"{path}: {name} must hold {element.__name__} values only")
    missing = [key for key in REQUIRED.get(name, ()) if isinstance(value, dict) and key not in value]
    if missing:
        raise BundleError(f"{path}: {name} has no {missing[0]!r}")


REQUIRED = {
    "network": ("name", "options", "parameters"),
    "preprocessing": ("kind",),
    "head": ("kind", "settings"),
    "combination": ("kind", "settings"),
    "decision": ("settings", "thresholds"),
}


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
        text = str(error).strip().partition("\n")[0]
        raise BundleError(f"{path} is not valid JSON ({text}); take another copy of it") from error
    if not isinstance(values, dict):
        raise BundleError(f"{path} must hold a JSON object, got a {type(values).__name__}")
    return values


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
