"""The model card: what a bundle is, for people."""

from collections.abc import Mapping
from typing import Any

from openradial.hints import listed

SHOWN = 40  # classes

INTRODUCTION = """\
This model says which of its classes an input belongs to, or that it belongs to none of them: *unknown*.
It was made with openradial; `openradial inspect` shows the same facts, and `openradial predict` uses it.
"""

LIMITS = """\
- The false-reject rate is a promise about inputs that are drawn like the calibration data. It says nothing about how
  many unknown inputs are found.
- Whatever is unlike the training data should be called unknown, but nothing guarantees that.
"""


def card(record: Mapping[str, Any]) -> str:
    """Markdown text about a bundle, from what ``bundle.json`` says."""
    sections = {
        "Classes": f"{len(record['classes'])}: {listed([_code(name) for name in record['classes']], SHOWN)}\n",
        "Network": _items(_network(record)),
        "Inputs": _items(inputs_facts(record["preprocessing"])),
        "Decision": _items(decision_facts(record["decision"])),
        "Facts": _items(record["facts"]) or "None were given.\n",
        "Versions": _items(record["versions"]),
        "Limits": LIMITS,
        "Files": _items({name: facts["checksum"] for name, facts in record["files"].items()}),
    }
    parts = [f"## {title}\n\n{text}" for title, text in sections.items()]
    return "\n".join(["# Model card\n", INTRODUCTION, *parts])


def _network(record: Mapping[str, Any]) -> dict[str, Any]:
    network = record["network"]
    scorers = [f"{each['kind']} of {each['place']}" for each in record["scorers"]]
    merged = {} if record["combination"] is None else {"combined by": record["combination"]["settings"]["method"]}
    return {
        "name": network["name"],
        "options": network["options"],
        "parameters": f"{network['parameters']:,}",
        "head": record["head"]["kind"],
        **({"unknown-scores": scorers} if scorers else {}),
        **merged,
    }


def inputs_facts(preprocessing: Mapping[str, Any]) -> dict[str, Any]:
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


def decision_facts(decision: Mapping[str, Any] | None) -> dict[str, Any]:
    """The rate that was calibrated for, and the thresholds."""
    if decision is None:
        return {"rejector": "none: nothing is called unknown"}
    return {**decision["settings"], "largest accepted unknown-score at each rate": decision["quantiles"]}


def _items(facts: Mapping[str, Any], depth: int = 0) -> str:
    """A nested list."""
    lines = []
    for name, value in facts.items():
        start = f"{'  ' * depth}- {_plain(name)}:"
        if isinstance(value, Mapping) and value:
            lines.append(f"{start}\n{_items(value, depth + 1)}")
        else:
            lines.append(f"{start} {_value(value)}\n")
    return "".join(lines)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return listed([_value(each) for each in value])
    if isinstance(value, float):
        return f"{value:.6g}"
    return _plain(value)


def _plain(text: object) -> str:
    """Text in one line that Markdown leaves as it is."""
    line = " ".join(str(text).split())
    return "".join(f"\\{letter}" if letter in "\\`*_<>[]#|" else letter for letter in line)


def _code(name: str) -> str:
    return f"`{' '.join(name.replace('`', ' ').split())}`"
