"""Measure what an identifier and a date cost in a table: as categories, by inferred types, and left out.

python -m benchmarks.table_columns (about a minute)

Tables are made: eight classes of 130 rows in eight columns of numbers and one of colours that tells nothing, a date at
random, and an identifier. Two classes are novel. Writes benchmarks/results/table_columns.{json,md}.
"""

import csv
import json
import statistics
import tempfile
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

import openradial
from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from openradial.files import write_text

SEEDS, CLASSES, ROWS, NUMBERS = 5, 8, 130, 8
COMMAND = "python -m benchmarks.table_columns"
WAYS: dict[str, dict[str, Any]] = {
    "both as categories": {"categorical": "id,when"},
    "types inferred": {},
    "both left out": {"drop": "id,when"},
}


def write_table(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(CLASSES, NUMBERS)) * 1.3
    labels = rng.permutation(np.repeat(np.arange(CLASSES), ROWS))
    values = means[labels] + rng.normal(size=(len(labels), NUMBERS))
    ids = rng.choice(10**6, len(labels), replace=False)
    days = [date(2022, 1, 1) + timedelta(days=int(day)) for day in rng.integers(2000, size=len(labels))]
    colours = rng.choice(["red", "green", "blue"], len(labels))
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "when", "colour", *(f"x{i}" for i in range(NUMBERS)), "kind"])
        for k, row, number, day, colour in zip(labels, values, ids, days, colours, strict=True):
            writer.writerow([f"C{number:06}", day, colour, *(f"{value:.4f}" for value in row), "abcdefgh"[k]])


def measure(path: Path, options: dict[str, Any]) -> dict[str, float]:
    model = openradial.fit(path, label="kind", novel="g,h", show_progress=False, **options)
    report, inputs = model.report, model.preprocessing
    assert report.accuracy is not None
    assert report.novel is not None
    return {
        "inputs": inputs.shape[0] or 0,
        "accuracy": report.accuracy,
        "detected": report.novel.detected,
        "auroc": report.novel.auroc,
    }


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(SEEDS):
            write_table(path := Path(folder) / f"{seed}.csv", seed)
            rows += [{"seed": seed, "way": way, **measure(path, options)} for way, options in WAYS.items()]
    results = {"environment": machine(COMMAND), "rows": rows}
    write_text(RESULTS / "table_columns.json", json.dumps(results, indent=1) + "\n")
    write_text(RESULTS / "table_columns.md", markdown(results))


def markdown(results: dict[str, Any]) -> str:
    heading = (
        f"Written by `{COMMAND}` on {results['environment']['date']}: made tables of {CLASSES} classes with an "
        f"identifier and a date, six classes known and two novel; medians over {SEEDS} seeds."
    )
    cells = []
    for way in WAYS:
        runs = [row for row in results["rows"] if row["way"] == way]
        middle = {
            name: statistics.median(run[name] for run in runs) for name in ("inputs", "accuracy", "detected", "auroc")
        }
        cells.append([way, f"{middle.pop('inputs'):,.0f}", *(f"{100 * value:.1f} %" for value in middle.values())])
    return "\n".join([heading, "", *table(["columns", "inputs", "accuracy", "novel detected", "AUROC"], cells), ""])


if __name__ == "__main__":
    main()
