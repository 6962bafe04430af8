"""A report as one HTML file that needs nothing else: figures, tables and the most confident mistakes."""

import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

import numpy as np

from openradial.bundle import Bundle
from openradial.evaluation.measuring import Answered, Evaluation
from openradial.evaluation.mistakes import Mistake, accepted_novel, rejected_known, wrong_known
from openradial.evaluation.pictures import figures, thumbnail
from openradial.files import write_text
from openradial.metrics import Interval

PAGE, NUMBERS = "report.html", "report.json"
CAPTIONS = {
    "scores": ("Unknown-scores", "Left of the dashed line an input is accepted, right of it called unknown."),
    "rates": (
        "Another false-reject rate",
        "What the model would do at each rate that could be asked for. The known line should follow the dotted one.",
    ),
    "roc": ("Known against novel (ROC)", "The nearer to the upper left corner, the better the two are told apart."),
    "oscr": ("Right class and novelty (OSCR)", "As the ROC curve, but a known input counts only with its right class."),
    "reliability": (
        "Reliability",
        "How often a prediction is right that has this probability. Larger dots: more of them.",
    ),
    "risk": ("Risk and coverage", "The share of errors when only the most certain inputs are accepted."),
}


def write_report(evaluation: Evaluation, bundle: Bundle, folder: Path | str, title: str = "Evaluation") -> Path:
    """Write ``report.html`` and ``report.json`` to a folder, and return the path of the page."""
    folder = Path(folder).expanduser()
    write_text(folder / NUMBERS, json.dumps(evaluation.as_dict(), indent=1) + "\n")
    write_text(folder / PAGE, page(evaluation, bundle, title))
    return folder / PAGE


def page(evaluation: Evaluation, bundle: Bundle, title: str = "Evaluation") -> str:
    """The report as HTML."""
    style = files("openradial.evaluation").joinpath("report.css").read_text(encoding="utf-8")
    sections = [
        _headline(evaluation, bundle),
        _novel_table(evaluation),
        _figures(figures(evaluation)),
        _mistakes(evaluation, bundle),
        _classes(evaluation),
        _notes(evaluation),
    ]
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n<main>\n<h1>{escape(title)}</h1>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main>\n</body>\n</html>\n"
    )


def _headline(evaluation: Evaluation, bundle: Bundle) -> str:
    rejects = evaluation.false_rejects
    low, high = 100 * rejects.low, 100 * rejects.high
    tiles = [
        (
            _percent(evaluation.accuracy.value),
            "accuracy",
            f"known inputs, none rejected; {_range(evaluation.accuracy)}",
        ),
        (_percent(rejects.measured), "known rejected", f"asked {_percent(rejects.asked)}; {low:.1f} to {high:.1f} %"),
    ]
    if evaluation.numbers:
        last = evaluation.numbers[-1]
        tiles.append((_percent(last.detected), "novel detected", f"of {last.examples:,} inputs of no known class"))
        area = last.metrics["auroc"]
        tiles.append((_percent(area.value), "AUROC", f"known against novel; {_range(area)}"))
    shown = "".join(
        f'<div class="tile"><b>{value}</b><span>{name}</span><small>{escape(text)}</small></div>'
        for value, name, text in tiles
    )
    facts = (
        f"{len(bundle.classes)} classes · {escape(bundle.network)}, {bundle.parameters:,} parameters · "
        f"{len(evaluation.known.labels):,} known inputs from {escape(evaluation.known.name)}"
    )
    return f'<p class="facts">{facts}</p>\n<div class="tiles">{shown}</div>'


def _novel_table(evaluation: Evaluation) -> str:
    heads = ("novel set", "inputs", "detected", "AUROC", "FPR95", "AUPR", "OSCR")
    rows = [
        (each.name, f"{each.examples:,}", _percent(each.detected), *(_with_range(each.metrics[m]) for m in _ORDER))
        for each in evaluation.numbers
    ]
    text = "<p>In %, with 95 % intervals. FPR95: novel inputs accepted where 95 % of the known ones are.</p>"
    return _section("Novel inputs", text + _table(heads, rows)) if rows else ""


_ORDER = ("auroc", "fpr_at_tpr", "aupr_novel", "oscr")


def _figures(drawn: dict[str, str]) -> str:
    cards = "".join(
        f"<figure>{svg}<figcaption><b>{CAPTIONS[name][0]}.</b> {CAPTIONS[name][1]}</figcaption></figure>"
        for name, svg in drawn.items()
    )
    return f'<section class="figures">{cards}</section>'


def _mistakes(evaluation: Evaluation, bundle: Bundle) -> str:
    groups = [
        (
            "Novel, but accepted",
            "What was said, what it is, and the p-value; the most certain first.",
            accepted_novel(evaluation),
        ),
        ("Known, accepted, but taken for another class", "The most certain first.", wrong_known(evaluation)),
        ("Known, but called unknown", "The least certain first.", rejected_known(evaluation)),
    ]
    parts = [
        f"<h3>{name} ({len(found):,})</h3><p>{text}</p>{_shown(found[:MOST], bundle)}"
        for name, text, found in groups
        if found
    ]
    return _section("The most confident mistakes", "".join(parts)) if parts else ""


MOST = 12  # mistakes of a kind that are shown


def _shown(found: Sequence[Mistake], bundle: Bundle) -> str:
    pictures = [thumbnail(mistake.row, bundle.preprocessing) for mistake in found]
    if any(pictures):
        return f'<div class="thumbs">{"".join(map(_card, found, pictures))}</div>'
    columns = list(found[0].row.raw)[:8] if isinstance(found[0].row.raw, dict) else []
    rows = [
        (each.row.name, each.said, each.true, f"{each.p:.3g}", *(str(each.row.raw.get(name, "")) for name in columns))
        for each in found
    ]
    return _table(("input", "said", "is", "p-value", *columns), rows)


def _card(mistake: Mistake, picture: str | None) -> str:
    image = f'<img alt="" src="{picture}">' if picture else ""
    said = f"<b>{escape(mistake.said)}</b><span>is {escape(mistake.true)}</span><small>p {mistake.p:.3g}</small>"
    return f'<figure title="{escape(mistake.row.name)}">{image}<figcaption>{said}</figcaption></figure>'


def _classes(evaluation: Evaluation) -> str:
    known = evaluation.known
    rows = [_class_row(evaluation, known, k) for k in np.unique(known.labels).tolist()]
    rows.sort(key=lambda row: float(row[2].rstrip(" %")))
    heads = ("class", "inputs", "right", "called unknown", "most often taken for")
    return _section("Known classes, the hardest first", _table(heads, rows))


def _class_row(evaluation: Evaluation, known: Answered, k: int) -> tuple[str, ...]:
    own = known.labels == k
    wrong = known.said.nearest[own & ~known.correct]
    other = evaluation.classes[np.bincount(wrong).argmax()] + f" ({np.bincount(wrong).max()})" if len(wrong) else ""
    right, rejected = _percent(known.correct[own].mean()), _percent((known.said.labels[own] < 0).mean())
    return evaluation.classes[k], f"{int(own.sum()):,}", right, rejected, other


def _notes(evaluation: Evaluation) -> str:
    broken = [pair for part in (evaluation.known, *evaluation.novel) for pair in part.broken]
    notes = [
        *evaluation.notes,
        f"Intervals are at 95 %. Calibration error of the probability: {_percent(evaluation.ece)} on known inputs, "
        f"{_percent(evaluation.open_ece)} with the novel ones.",
        *(f"could not be read: {name}: {reason}" for name, reason in broken[:20]),
    ]
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return _section("Notes", f"<ul>{items}</ul>")


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(head)}</th>" for head in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _range(interval: Interval) -> str:
    return f"{100 * interval.low:.1f} to {100 * interval.high:.1f} %"


def _with_range(interval: Interval) -> str:
    return f"{100 * interval.value:.1f} ({100 * interval.low:.1f}–{100 * interval.high:.1f})"
