"""What a folder of finished experiments says: the claims with their verdicts, then the figures."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openradial.errors import TrainingError
from openradial.files import write_text
from paper.catalog import IDS, find
from paper.claims import CLAIMS, Claim, Measures, Verdict, shown
from paper.experiment import Experiment
from paper.pictures import save_picture, size_statement
from paper.plan import read_json
from paper.report_html import page
from paper.report_markdown import markdown

Record = dict[str, Any]
KEYS = {"experiment", "size", "settings", "numbers", "seconds", "parts", "finished", "versions"}
FIRST = 4  # numbers of a claim that stand in the table itself


@dataclass(frozen=True)
class Row:
    """One line of the table of claims; ``verdict`` is None where an experiment is missing."""

    claim: Claim
    measures: Measures
    verdict: Verdict | None
    missing: tuple[str, ...]

    @property
    def ours(self) -> list[str]:
        """Our first numbers as text, mean and error over seeds: a claim begins with those that its rule is about."""
        return self._numbers()[:FIRST]

    @property
    def others(self) -> list[str]:
        """All our other numbers as text."""
        return self._numbers()[FIRST:]

    def _numbers(self) -> list[str]:
        return [f"{name}: {shown(values)}" for name, values in self.measures.items()]

    @property
    def said(self) -> str:
        """The verdict as text."""
        return self.verdict or f"not run: needs {', '.join(self.missing)}"


@dataclass(frozen=True)
class Section:
    """One figure with its facts."""

    experiment: Experiment
    record: Record
    picture: Path

    @property
    def facts(self) -> str:
        """Size, settings and time, in one sentence."""
        record = self.record
        size = "full size" if record["size"] == "full" else size_statement(record)
        settings = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in record["settings"].items())
        return f"{size}; settings: {settings}; {record['seconds']:,.0f} s, finished {record['finished']}"


def write_report(folder: Path) -> list[Path]:
    """Write ``report.md`` and ``report.html`` about every finished experiment of a folder; their paths."""
    records = finished(folder)
    if not records:
        raise TrainingError(f"{folder} holds no finished experiment; run one with openradial reproduce")
    rows = table(records)
    sections = [Section(find(id), record, folder / f"{id}.svg") for id, record in records.items()]
    for section in sections:
        if not section.picture.exists():  # a run can be killed between numbers and picture
            save_picture(section.experiment, section.record, folder)
    summary = summed_up(rows, records)
    made = {"report.md": markdown(summary, rows, sections), "report.html": page(summary, rows, sections)}
    for name, text in made.items():
        write_text(folder / name, text)
    return [folder / name for name in made]


def summed_up(rows: Sequence[Row], records: Mapping[str, Record]) -> str:
    """How many claims hold, how large the runs were, how long they took and what they ran with."""
    verdicts = Counter(row.verdict or "not run" for row in rows)
    said = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    sizes = " and ".join(dict.fromkeys(record["size"] for record in records.values()))
    parts = {name: took for record in records.values() for name, took in record["parts"].items()}
    own = sum(record["seconds"] - sum(record["parts"].values()) for record in records.values())
    minutes = (sum(parts.values()) + own) / 60  # parts that several experiments share count once
    versions = next(iter(records.values()))["versions"]
    return (
        f"Claims: {said}. {len(records)} experiments of {sizes} size, {minutes:,.0f} minutes of computing in all; "
        f"openradial {versions['openradial']}, torch {versions['torch']}, Python {versions['python']}. Numbers are "
        "means ± 2 s over seeds; s is the corrected standard deviation. Rules were fixed before the numbers were there."
    )


def finished(folder: Path) -> dict[str, Record]:
    """Records of the finished experiments, in the paper's order."""
    paths = {id: folder / f"{id}.json" for id in IDS}
    return {id: read_record(path) for id, path in paths.items() if path.exists()}


def read_record(path: Path) -> Record:
    """The file of a finished experiment."""
    record = read_json(path)
    if not (isinstance(record, dict) and record.keys() >= KEYS):
        raise TrainingError(f"{path} was written by another version; delete it and go on with --resume")
    return record


def table(records: Mapping[str, Record], claims: Sequence[Claim] = CLAIMS) -> list[Row]:
    """Every claim with what the records say about it."""
    numbers = {id: record["numbers"] for id, record in records.items()}
    return [_row(claim, numbers) for claim in claims]


def _row(claim: Claim, numbers: Mapping[str, Any]) -> Row:
    missing = tuple(id for id in claim.experiments if id not in numbers)
    if missing:
        return Row(claim, {}, None, missing)
    measures = claim.measure(numbers)
    return Row(claim, measures, claim.verdict(measures), ())
