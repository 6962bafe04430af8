"""The contents of a bundle in sections, and the model card made of them."""

from collections.abc import Iterator, Mapping
from typing import Any

from openradial.bundle.record import BundleRecord
from openradial.errors import listed

SHOWN = 40  # classes
LETTERS = "\\`*_<>[]#|"  # that mean something to Markdown

INTRODUCTION = """\
This model predicts which of its classes an input belongs to, or that it belongs to none of them: *unknown*.
It was made with openradial; `openradial inspect` shows the same, and `openradial predict` uses it.
"""

LIMITS = """\
## Limits

- The false-reject rate holds for inputs that are drawn like the calibration data. It says nothing about how many
  unknown inputs are detected.
- Inputs unlike the training data should be predicted as unknown, but nothing guarantees that.
"""


def sections(record: BundleRecord) -> dict[str, Mapping[str, Any]]:
    """Return the contents of a record by section."""
    decision: dict[str, Any] = {"rejector": "none: nothing is predicted as unknown"}
    if record.decision is not None:
        thresholds = {"largest accepted unknown score at each rate": record.decision["thresholds"]}
        decision = record.decision["settings"] | thresholds
    return {
        "Classes": {str(len(record.classes)): listed(record.classes, SHOWN)},
        "Network": _network(record),
        "Inputs": _inputs(record.preprocessing),
        "Decision": decision,
        "Metadata": record.metadata or {"none": "was given"},
        "Versions": record.versions,
        "Files": {name: f"{file['bytes']:,} bytes, {file['checksum']}" for name, file in record.files.items()},
    }


def lines(values: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[int, str, str]]:
    """Yield nested values one by one: depth, name, and the value as text."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield depth, str(name), ""
            yield from lines(value, depth + 1)
        else:
            yield depth, str(name), _text(value)


def card(record: BundleRecord) -> str:
    """Return the model card as Markdown."""
    parts = ["# Model card\n", INTRODUCTION]
    for title, values in sections(record).items():
        items = [f"{'  ' * depth}- {_escaped(name)}: {_escaped(text)}".rstrip() for depth, name, text in lines(values)]
        parts.append("\n".join([f"## {title}\n", *items, ""]))
    return "\n".join([*parts, LIMITS])


def _network(record: BundleRecord) -> dict[str, Any]:
    network = record.network
    values = {"name": network["name"], "options": network["options"], "parameters": f"{network['parameters']:,}"}
    values["head"] = _part(record.head)
    if record.scorers:
        scores: dict[str, str] = {}
        for each in record.scorers:  # several may read one layer
            before = f"{scores[each['layer']]}, " if each["layer"] in scores else ""
            scores[each["layer"]] = before + _part(each)
        values["unknown scores"] = scores
    if record.far_axis is not None:
        values["far axis"] = {record.far_axis["layer"]: _part(record.far_axis)}
    return values if record.combination is None else values | {"combined by": _part(record.combination)}


def _part(record: Mapping[str, Any]) -> str:
    """Return a head or a scorer as the call that makes it, without the classes, which have a section."""
    if "settings" not in record:
        return "score of the head"
    settings = {name: value for name, value in record["settings"].items() if name != "classes"}
    return f"{record['kind']}({', '.join(f'{name}={value!r}' for name, value in settings.items())})"


def _inputs(preprocessing: Mapping[str, Any]) -> dict[str, Any]:
    """Return how inputs are prepared, without long lists: categories and words are counted."""
    values = {
        name: value for name, value in preprocessing.items() if name not in ("encoder", "words", "tokenizer", "tokens")
    }
    tokens = preprocessing.get("tokens") or preprocessing
    if "words" in tokens:
        values["vocabulary"] = f"{len(tokens['words']):,} words"
    if "encoder" in preprocessing:
        encoder = preprocessing["encoder"]
        values |= {"missing": encoder["missing"], "unknown words": encoder["unknown"]}
        values["columns"] = {
            feature["name"]: f"{len(feature['categories'])} words"
            if "categories" in feature
            else ("dates" if "parts" in feature else "numbers")
            for feature in encoder["features"]
        } | dict.fromkeys(encoder["texts"], "free text")
    return values


def _text(value: Any) -> str:
    """Return a value in one line."""
    if isinstance(value, list | tuple):
        return listed([_text(each) for each in value])
    return f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())


def _escaped(text: str) -> str:
    """Return text that Markdown does not interpret."""
    return "".join(f"\\{letter}" if letter in LETTERS else letter for letter in " ".join(text.split()))
