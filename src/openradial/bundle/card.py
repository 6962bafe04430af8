"""What a bundle is, for people: the facts in sections, and the model card made of them."""

from collections.abc import Iterator, Mapping
from typing import Any

from openradial.errors import listed

SHOWN = 40  # classes
LETTERS = "\\`*_<>[]#|"  # that mean something to Markdown

INTRODUCTION = """\
This model says which of its classes an input belongs to, or that it belongs to none of them: *unknown*.
It was made with openradial; `openradial inspect` shows the same facts, and `openradial predict` uses it.
"""

LIMITS = """\
## Limits

- The false-reject rate is a promise about inputs that are drawn like the calibration data. It says nothing about how
  many unknown inputs are found.
- Whatever is unlike the training data should be called unknown, but nothing guarantees that.
"""


def sections(record: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The facts of a bundle by section, from what ``bundle.json`` says."""
    weights = {name: f"{facts['bytes']:,} bytes, {facts['checksum']}" for name, facts in record["files"].items()}
    return {
        "Classes": {str(len(record["classes"])): listed(record["classes"], SHOWN)},
        "Network": _network(record),
        "Inputs": _inputs(record["preprocessing"]),
        "Decision": _decision(record["decision"]),
        "Facts": record["facts"] or {"none": "were given"},
        "Versions": record["versions"],
        "Files": weights,
    }


def lines(facts: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[int, str, str]]:
    """Nested facts one by one: how deep, the name, and the value as text."""
    for name, value in facts.items():
        if isinstance(value, Mapping) and value:
            yield depth, str(name), ""
            yield from lines(value, depth + 1)
        else:
            yield depth, str(name), _text(value)


def card(record: Mapping[str, Any]) -> str:
    """Markdown text about a bundle."""
    parts = [f"## {title}\n\n{_items(facts)}" for title, facts in sections(record).items()]
    return "\n".join(["# Model card\n", INTRODUCTION, *parts, LIMITS])


def _network(record: Mapping[str, Any]) -> dict[str, Any]:
    network, merge = record["network"], record["combination"]
    facts = {"name": network["name"], "options": network["options"], "parameters": f"{network['parameters']:,}"}
    facts["head"] = _part(record["head"])
    if record["scorers"]:
        facts["unknown-scores"] = {each["place"]: _part(each) for each in record["scorers"]}
    return facts if merge is None else facts | {"combined by": _part(merge)}


def _part(record: Mapping[str, Any]) -> str:
    """A head or a scorer as it is called."""
    return f"{record['kind']}({', '.join(f'{name}={value!r}' for name, value in record['settings'].items())})"


def _inputs(preprocessing: Mapping[str, Any]) -> dict[str, Any]:
    """How inputs are prepared, without the long lists: categories are counted, and so are the words of texts."""
    facts = {name: value for name, value in preprocessing.items() if name not in ("encoder", "words")}
    if "words" in preprocessing:
        facts["vocabulary"] = f"{len(preprocessing['words']):,} words"
    if "encoder" in preprocessing:
        encoder = preprocessing["encoder"]
        facts |= {"missing": encoder["missing"], "unknown words": encoder["unknown"]}
        facts["columns"] = {feature["name"]: _column(feature) for feature in encoder["features"]}
    return facts


def _column(feature: Mapping[str, Any]) -> str:
    return f"{len(feature['categories'])} words" if "categories" in feature else "numbers"


def _decision(decision: Mapping[str, Any] | None) -> dict[str, Any]:
    """The rate that was calibrated for, and the thresholds."""
    if decision is None:
        return {"rejector": "none: nothing is called unknown"}
    return {**decision["settings"], "largest accepted unknown-score at each rate": decision["quantiles"]}


def _text(value: Any) -> str:
    """A value in one line."""
    if isinstance(value, list | tuple):
        return listed([_text(each) for each in value])
    return f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())


def _items(facts: Mapping[str, Any]) -> str:
    """A nested list."""
    return "".join(
        f"{'  ' * depth}- {_escaped(name)}:{' ' * bool(text)}{_escaped(text)}\n" for depth, name, text in lines(facts)
    )


def _escaped(text: str) -> str:
    """Text that Markdown leaves as it is."""
    return "".join(f"\\{letter}" if letter in LETTERS else letter for letter in " ".join(text.split()))
