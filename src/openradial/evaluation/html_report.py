"""Write an evaluation as one self-contained HTML file: metrics, figures, tables and the most confident mistakes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from openradial.classifier import OpenClassifier
from openradial.errors import require
from openradial.evaluation.evaluation import Evaluation, Mistake, find_mistakes
from openradial.evaluation.figures import figures, thumbnail
from openradial.files import write_text

SHOWN, COLUMNS, UNREADABLE = 12, 8, 20  # mistakes of a kind, columns of a table row, unreadable inputs in the report


def write_report(evaluation: Evaluation, bundle: OpenClassifier, folder: Path | str, title: str = "Evaluation") -> Path:
    """Write ``report.html`` and ``report.json`` to a folder and return the path of the page."""
    folder = Path(folder).expanduser()
    write_text(folder / "report.json", json.dumps(evaluation.as_dict(), indent=1) + "\n")
    page = folder / "report.html"
    write_text(page, render_report(evaluation, bundle, title))
    return page


def render_report(evaluation: Evaluation, bundle: OpenClassifier, title: str = "Evaluation") -> str:
    """Return the report as HTML."""
    jinja2 = require("jinja2", "report", "the report")
    loader = jinja2.PackageLoader("openradial.evaluation")
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["percent"] = lambda share: f"{100 * share:.1f} %"
    page: str = environment.get_template("report.html.j2").render(
        title=title,
        evaluation=evaluation,
        bundle=bundle,
        figures=figures(evaluation),
        mistakes=_mistakes(evaluation, bundle),
        classes=_classes(evaluation),
        unreadable=[pair for part in (evaluation.known, *evaluation.novel) for pair in part.broken][:UNREADABLE],
    )
    return page


def _mistakes(evaluation: Evaluation, bundle: OpenClassifier) -> list[dict[str, Any]]:
    """Return the groups of mistakes that occur, each with pictures or, where inputs are no images, with a table."""
    groups = []
    titles = ("Novel, but accepted", "Known and accepted, but misclassified", "Known, but called unknown")
    first = "Most confident first."
    texts = (f"Predicted class, true class and p-value. {first}", first, "Least confident first.")
    for title, text, mistakes in zip(titles, texts, find_mistakes(evaluation), strict=True):
        pictures = [(each, thumbnail(each.row, bundle.preprocessing)) for each in mistakes[:SHOWN]]
        shown = {"pictures": pictures} if any(url for _, url in pictures) else {"table": _table(mistakes[:SHOWN])}
        groups += [{"title": title, "text": text, "mistakes": mistakes, **shown}] if mistakes else []
    return groups


def _table(mistakes: Sequence[Mistake]) -> list[list[Any]]:
    """Return header and rows of a table of mistakes, with the columns of the inputs if these are table rows."""
    columns = next((list(each.row.raw)[:COLUMNS] for each in mistakes if isinstance(each.row.raw, dict)), [])
    rows = [
        [each.row.name, each.predicted, each.true, f"{each.p_value:.3g}", *(each.row.raw.get(c, "") for c in columns)]
        for each in mistakes
    ]
    return [["input", "predicted", "true class", "p-value", *columns], *rows]


def _classes(evaluation: Evaluation) -> list[dict[str, Any]]:
    """Return accuracy, rejections and the most frequent confusion of each known class, the least accurate first."""
    known, rows = evaluation.known, []
    for k in np.unique(known.labels).tolist():
        members = known.labels == k
        confused = np.bincount(known.predictions.nearest[members & ~known.correct], minlength=1)
        worst = f"{evaluation.classes[confused.argmax()]} ({confused.max()})" if confused.any() else ""
        row = {"name": evaluation.classes[k], "examples": int(members.sum()), "confused_with": worst}
        row["accuracy"] = float(known.correct[members].mean())
        row["rejected"] = float((known.predictions.labels[members] < 0).mean())
        rows.append(row)
    return sorted(rows, key=lambda row: row["accuracy"])
