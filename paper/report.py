"""The report about a folder of finished experiments: claims with their verdicts, then the figures."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openradial.errors import TrainingError
from paper.claims import CLAIMS, Claim, Measures, Verdict, shown
from paper.experiment import IDS, Experiment, find
from paper.plan import read_json, write_text, written_at_once
from paper.report_html import page

RunRecord = dict[str, Any]
KEYS = {"experiment", "size", "settings", "numbers", "seconds", "parts", "finished", "versions"}
STYLE: Any = {
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "openradial",  # equal numbers give an equal file
}
MAIN = {"epochs": "epochs", "bayesian_epochs": "Bayesian epochs", "seeds": "seeds"}  # stated on smaller figures


@dataclass(frozen=True)
class Row:
    """One row of the table of claims; ``verdict`` is None where an experiment is missing."""

    claim: Claim
    measures: Measures
    verdict: Verdict | None
    missing: tuple[str, ...]

    @property
    def ours(self) -> list[str]:
        """Our first measures as text, mean and error over seeds; a claim begins with those its rule is about."""
        return self._texts()[: self.claim.first]

    @property
    def others(self) -> list[str]:
        """All our other measures as text."""
        return self._texts()[self.claim.first :]

    def _texts(self) -> list[str]:
        return [f"{name}: {shown(values)}" for name, values in self.measures.items()]

    @property
    def verdict_text(self) -> str:
        """The verdict as text."""
        return self.verdict or f"not run: needs {', '.join(self.missing)}"


@dataclass(frozen=True)
class Section:
    """One figure with its facts."""

    experiment: Experiment
    record: RunRecord
    picture: Path

    @property
    def facts(self) -> str:
        """Size, settings and time, in one sentence."""
        record = self.record
        size = "full size" if record["size"] == "full" else size_statement(record)
        settings = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in record["settings"].items())
        return f"{size}; settings: {settings}; {record['seconds']:,.0f} s, finished {record['finished']}"


def write_report(folder: Path) -> list[Path]:
    """Write ``report.md`` and ``report.html`` about every finished experiment of a folder, and return their paths."""
    records = finished(folder)
    if not records:
        raise TrainingError(f"{folder} holds no finished experiment; run one with: python -m paper run ID")
    rows = table(records)
    sections = [Section(find(id), record, folder / f"{id}.svg") for id, record in records.items()]
    for section in sections:
        if not section.picture.exists():  # a run can be killed between numbers and figure
            draw_figure(section.experiment, section.record, folder)
    summary = summarise(rows, records)
    texts = {"report.md": markdown(summary, rows, sections), "report.html": page(summary, rows, sections)}
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]


def summarise(rows: Sequence[Row], records: Mapping[str, RunRecord]) -> str:
    """Return a sentence with the verdicts, the size of the runs, their duration and the versions used."""
    verdicts = Counter(row.verdict or "not run" for row in rows)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    sizes = " and ".join(dict.fromkeys(record["size"] for record in records.values()))
    parts = {name: took for record in records.values() for name, took in record["parts"].items()}
    rest = sum(record["seconds"] - sum(record["parts"].values()) for record in records.values())
    minutes = (sum(parts.values()) + rest) / 60  # parts that several experiments share count once
    versions = next(iter(records.values()))["versions"]
    return (
        f"Claims: {counts}. {len(records)} experiments of {sizes} size, {minutes:,.0f} minutes of computing in all; "
        f"openradial {versions['openradial']}, torch {versions['torch']}, Python {versions['python']}. Numbers are "
        "means ± 2 s over seeds; s is the corrected standard deviation. The rules were fixed before the numbers were "
        "computed."
    )


def finished(folder: Path) -> dict[str, RunRecord]:
    """Return the records of the finished experiments, in the paper's order."""
    paths = {id: folder / f"{id}.json" for id in IDS}
    return {id: read_record(path) for id, path in paths.items() if path.exists()}


def read_record(path: Path) -> RunRecord:
    """Read the file of a finished experiment."""
    record = read_json(path)
    if not (isinstance(record, dict) and record.keys() >= KEYS):
        raise TrainingError(f"{path} was written by another version; delete it and continue with --resume")
    return record


def table(records: Mapping[str, RunRecord], claims: Sequence[Claim] = CLAIMS) -> list[Row]:
    """Return a row per claim with the measures and the verdict that follow from the records."""
    numbers = {id: record["numbers"] for id, record in records.items()}
    rows = []
    for claim in claims:
        missing = tuple(id for id in claim.experiments if id not in numbers)
        measures = {} if missing else claim.measure(numbers)
        rows.append(Row(claim, measures, None if missing else claim.verdict(measures), missing))
    return rows


def markdown(summary: str, rows: Sequence[Row], sections: Sequence[Section]) -> str:
    """Return the report as Markdown: claims as a table, rules below it, then the figures beside the file."""
    lines = ["# The paper, reproduced", "", summary, ""]
    lines += ["| claim | ours | the paper's | verdict |", "|---|---|---|---|"]
    for row in rows:
        cells = [
            f"{row.claim.number}. {row.claim.text}",
            "<br>".join(row.ours),
            row.claim.paper,
            f"**{row.verdict_text}**",
        ]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    lines += ["", "## Rules", ""]
    for row in rows:
        lines += [f"- **{row.claim.number}.** {row.claim.rule}"]
        lines += [f"  Our other numbers: {'; '.join(row.others)}."] if row.others else []
    for section in sections:
        experiment = section.experiment
        lines += ["", f"## {experiment.id}: {experiment.title}", "", f"![{experiment.title}]({experiment.id}.png)"]
        lines += ["", experiment.caption, "", f"*{section.facts}*"]
    return "\n".join([*lines, ""])


def draw_figure(experiment: Experiment, record: Mapping[str, Any], folder: Path) -> None:
    """Draw a result and write ``<id>.png`` and ``<id>.svg``; a figure below full size states its size."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        figure = experiment.draw(record["numbers"])
        if record["size"] != "full":
            figure.text(0.5, -0.01, size_statement(record), ha="center", va="top", fontsize=8, style="italic")
        for kind, options in {"png": {"dpi": 150}, "svg": {"dpi": 150, "metadata": {"Date": None}}}.items():
            with written_at_once(folder / f"{experiment.id}.{kind}") as scratch:
                figure.savefig(scratch, bbox_inches="tight", **options)  # type: ignore[arg-type]


def size_statement(record: Mapping[str, Any]) -> str:
    """Return how a run below full size differs from the paper's.

    >>> size_statement({"size": "quick", "settings": {"epochs": 150, "seeds": 2}})
    "quick size, not the paper's settings: 150 epochs, 2 seeds"
    """
    settings = record["settings"]
    main = [f"{settings[name]:,} {words}" for name, words in MAIN.items() if name in settings]
    return f"{record['size']} size, not the paper's settings" + (": " if main else "") + ", ".join(main)
