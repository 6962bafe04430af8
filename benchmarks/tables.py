"""Compare the closed-form recipe with the gradient-trained one on tables: accuracy and AUROC of left-out classes.

python -m benchmarks.tables (about half an hour on two cores; a run that was killed resumes)

For each split, a random 60 % of the classes are known; 70 % of their rows are fitted on, the others and all rows of the
left-out classes are tested. Writes benchmarks/results/tables.{json,md}.
"""

import argparse
import json
import statistics
import time
from typing import Any

import torch
from rich.console import Console

import openradial
from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from benchmarks.table_data import SETS, load
from openradial.data import Table
from openradial.data.sources import DataSource
from openradial.files import write_text

SPLITS, KNOWN, TRAIN = 5, 0.6, 0.7
METHODS = ("closed-form", "gradient")
COMMAND = "python -m benchmarks.tables"
PATH = RESULTS / "tables.json"


def split(data: Table, seed: int) -> tuple[DataSource, list[str]]:
    """Return training and test rows, and the names of the novel classes, which only the test rows have."""
    generator = torch.Generator().manual_seed(seed)
    k = len(data.classes)
    count = k if k == 2 else max(2, round(KNOWN * k))  # one class of two would leave nothing to classify
    novel = [data.classes[i] for i in torch.randperm(k, generator=generator)[count:].tolist()]
    is_novel = torch.tensor([name in novel for name in data.classes])[data.labels]
    order = torch.randperm(len(data), generator=generator)
    known = order[~is_novel[order]]
    cut = round(TRAIN * len(known))
    test = torch.cat([known[cut:], order[is_novel[order]]])
    return DataSource("table", "table", data.select(known[:cut]), data.select(test)), novel


def measure(data: Table, method: str, seed: int) -> dict[str, Any]:
    """Fit one method on one split."""
    source, novel = split(data, seed)
    began = time.perf_counter()
    options: dict[str, Any] = {"novel": novel} if novel else {}
    model = openradial.fit(source, method=method, seed=seed, baseline=False, show_progress=False, **options)
    report = model.report
    return {
        "seconds": time.perf_counter() - began,
        "accuracy": report.accuracy,
        "rejected": report.false_rejects.measured,
        "auroc": None if report.novel is None else report.novel.auroc,
        "detected": None if report.novel is None else report.novel.detected,
    }


def markdown(results: dict[str, Any]) -> str:
    """Return the table of medians with the range over splits."""
    header = ["table", "rows", "classes", "method", "accuracy %", "AUROC %", "detected %", "false rejects %", "seconds"]
    rows = []
    for name, each in results["tables"].items():
        for method, runs in each["methods"].items():
            cells = [_cell(runs, key, 100) for key in ("accuracy", "auroc", "detected", "rejected")]
            seconds = statistics.median(run["seconds"] for run in runs)
            rows.append([name, f"{each['rows']:,}", str(each["classes"]), method, *cells, f"{seconds:.1f}"])
    lines = [
        f"Median over {SPLITS} splits of classes, smallest and largest in brackets. 60 % of the classes are known,",
        "70 % of their rows are fitted on. Breast cancer has two classes, so none is left out.",
        "False rejects: 5 % asked. The seconds include waiting for other programs on the machine.",
        "",
        *table(header, rows),
        "",
        f"`{COMMAND}`, {results['environment']['cpu']}, {results['environment']['date']}",
    ]
    return "\n".join(lines) + "\n"


def _cell(runs: list[dict[str, Any]], key: str, factor: float) -> str:
    values = [factor * run[key] for run in runs if run[key] is not None]
    if not values:
        return "-"
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def main() -> None:
    """Measure what is missing and write the results after each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", action="store_true", help="measure everything again")
    arguments = parser.parse_args()
    console, results = Console(), {"environment": machine(COMMAND), "tables": {}}
    if PATH.exists() and not arguments.again:
        results["tables"] = json.loads(PATH.read_text())["tables"]
    for name in SETS:
        data = load(name)
        entry = results["tables"].setdefault(name, {"rows": len(data), "classes": len(data.classes), "methods": {}})
        for method in METHODS:
            runs = entry["methods"].setdefault(method, [])
            for seed in range(len(runs), SPLITS):
                runs.append(measure(data, method, seed))
                console.print(name, method, seed, {key: value and round(value, 4) for key, value in runs[-1].items()})
                write_text(PATH, json.dumps(results, indent=1))
    write_text(PATH.with_suffix(".md"), markdown(results))


if __name__ == "__main__":
    main()
