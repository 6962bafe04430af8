"""Write an evaluation as one self-contained HTML file: metrics, figures, tables and the most confident mistakes."""

import base64
import io
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openradial import metrics
from openradial.classifier import OpenClassifier
from openradial.data.inputs import ImageInputs, Inputs
from openradial.data.readers.columns import is_missing
from openradial.data.readers.images import read_bytes, read_pixels
from openradial.data.sources import RawInput
from openradial.errors import DataError, require
from openradial.evaluation.evaluation import Evaluation, Mistake, PredictedSample, as_one_class, find_mistakes, text_of
from openradial.files import write_text
from openradial.heads import ClosedFormRadialHead

SHOWN, COLUMNS, UNREADABLE = 12, 8, 20  # mistakes of a kind, columns of a table row, unreadable inputs in the report
INK = "#010203"  # stands for the text colour of the page
SIZE = (5.0, 3.3)  # inches
LARGEST = 96  # pixels of a thumbnail
RATES = np.concatenate([np.linspace(0.001, 0.02, 20), np.linspace(0.025, 0.3, 56)])


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
    made = f"{bundle.network[0]}, {bundle.num_parameters:,} parameters"
    if isinstance(bundle.head, ClosedFormRadialHead):
        made = f"closed-form head on {bundle.head.num_features:,} features"
    page: str = environment.get_template("report.html.j2").render(
        title=title,
        evaluation=evaluation,
        bundle=bundle,
        made=made,
        fitted=bundle.metadata.get("measured", {}),
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
        table = _table(mistakes[:SHOWN], are_texts=bundle.preprocessing.kind == "texts")
        shown = {"pictures": pictures} if any(url for _, url in pictures) else {"table": table}
        groups += [{"title": title, "text": text, "mistakes": mistakes, **shown}] if mistakes else []
    return groups


def _table(mistakes: Sequence[Mistake], are_texts: bool) -> list[list[Any]]:
    """Return header and rows of a table of mistakes, with the texts, or the columns of table rows."""
    if are_texts:
        texts = [
            [text_of(each.row.raw), *each[1:3], f"{each.probability:.3f}", f"{each.p_value:.3g}"] for each in mistakes
        ]
        return [["text", "true class", "predicted", "probability", "p-value"], *texts]
    columns = next((list(each.row.raw)[:COLUMNS] for each in mistakes if isinstance(each.row.raw, dict)), [])
    rows = [
        [each.row.name, each.predicted, each.true, f"{each.p_value:.3g}"]
        + ["" if is_missing(value) else value for value in (each.row.raw.get(c) for c in columns)]
        for each in mistakes
    ]
    return [["input", "predicted", "true class", "p-value", *columns], *rows]


def _classes(evaluation: Evaluation) -> list[dict[str, Any]]:
    """Return accuracy, rejections and the most frequent confusion of each known class, the least accurate first."""
    known, rows = evaluation.known, []
    for each in evaluation.per_class:
        wrong = known.predictions.nearest[(known.labels == evaluation.classes.index(each.name)) & ~known.correct]
        confused = np.bincount(wrong, minlength=1)
        worst = f"{evaluation.classes[confused.argmax()]} ({confused.max()})" if confused.any() else ""
        rows.append({**asdict(each), "confused_with": worst})
    return sorted(rows, key=lambda row: row["accuracy"])


def figures(evaluation: Evaluation) -> dict[str, str]:
    """Return SVG figures by name: scores, rates, roc, oscr, reliability, risk."""
    require("matplotlib", "plot", "the report")
    from openradial.evaluation import plots

    known, novel = evaluation.known, {each.name: each for each in evaluation.novel}
    scores = {name: each.scores for name, each in novel.items()}
    groups, bins, risks = {"known": [known]}, {}, {}
    groups |= {"known and novel": [known, *evaluation.novel]} if novel else {}
    for name, parts in groups.items():
        bins[name] = metrics.reliability_bins(*as_one_class(*parts), bins=10)
        scored = np.concatenate([each.scores for each in parts]), np.concatenate([each.correct for each in parts])
        risks[name] = metrics.risk_coverage_curve(*scored)
    rocs = {name: metrics.roc_curve(known.scores, each) for name, each in scores.items()}
    oscrs = {name: metrics.oscr_curve(known.scores, each, known.correct) for name, each in scores.items()}
    detected = {name: _rejected(each) for name, each in novel.items()}
    drawn: dict[str, Any] = {
        "scores": partial(plots.plot_scores, known.scores, scores, evaluation.threshold),
        "rates": partial(plots.plot_rates, RATES, _rejected(known), detected),
        "roc": partial(plots.plot_roc, rocs),
        "oscr": partial(plots.plot_oscr, oscrs),
        "reliability": partial(plots.plot_reliability, bins),
        "risk": partial(plots.plot_risk_coverage, risks),
    }
    return {name: _svg(name, draw) for name, draw in drawn.items() if novel or name not in ("roc", "oscr")}


def thumbnail(row: RawInput, inputs: Inputs) -> str | None:
    """Return a small image of an input as a data URL, or None if the input is not an image."""
    if not isinstance(inputs, ImageInputs):
        return None
    pillow = require("PIL.Image", "images", "thumbnails")
    try:
        pixels = _pixels(row.raw) if isinstance(row.raw, np.ndarray) else read_pixels(read_bytes(row.raw))
        image = pillow.fromarray(pixels).convert("RGB")
    except (OSError, ValueError, DataError):
        return None
    if max(image.size) < 32:  # enlarge tiny images without blurring them
        factor = LARGEST // max(image.size)
        image = image.resize((image.width * factor, image.height * factor), pillow.Resampling.NEAREST)
    image.thumbnail((LARGEST, LARGEST))
    image.save(stream := io.BytesIO(), "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"


def _pixels(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return grey images as (h, w), and stretch a small range of values, such as 0 to 16, to the full range."""
    pixels = array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array
    peak = int(pixels.max(initial=1)) or 1
    return (pixels.astype(np.uint16) * 255 // peak).astype(np.uint8) if peak < 64 else pixels


def _rejected(part: PredictedSample) -> NDArray[np.float64]:
    """Return the share of inputs whose p-value is at most each of RATES."""
    assert part.predictions.p_values is not None
    ordered = np.sort(np.nan_to_num(part.predictions.p_values))
    return np.searchsorted(ordered, RATES, side="right") / len(ordered)


def _svg(name: str, draw: Any) -> str:
    """Return a figure as SVG without fixed size and background; lines and text take the colour of the page."""
    import matplotlib
    from matplotlib.figure import Figure

    from openradial.evaluation.plots.colors import KNOWN_COLOR

    inks = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    style: dict[Any, Any] = dict.fromkeys(inks, INK)
    style |= {"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 10, "font.family": "sans-serif"}
    style |= {"axes.spines.top": False, "axes.spines.right": False}
    with matplotlib.rc_context(style):
        figure = Figure(SIZE, layout="constrained")
        draw(figure.subplots())
        stream = io.StringIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = stream.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = svg.replace(INK, "currentColor").replace(KNOWN_COLOR.lower(), "var(--known)")
    svg = svg.replace("'sans-serif'", "inherit").replace("sans-serif", "inherit")
    svg = svg.replace('id="', f'id="{name}-').replace('"#', f'"#{name}-').replace("url(#", f"url(#{name}-")
    width, height = (72 * side for side in SIZE)
    return f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{name}">{svg.split(">", 1)[1]}'
