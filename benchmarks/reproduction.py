"""Copy a full run of the paper's experiments into the docs.

python -m paper all --jobs 2 --out DIR, then python -m benchmarks.reproduction DIR

Numbers go to benchmarks/results/reproduction, report and figures to docs/report.
"""

import argparse
import shutil
from pathlib import Path

from benchmarks.run import RESULTS
from paper.experiment import IDS, find
from paper.report import draw_figure, finished, write_report

NUMBERS, PAGES = RESULTS / "reproduction", RESULTS.parents[1] / "docs" / "report"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduction", description=__doc__)
    parser.add_argument("folder", type=Path, help="of a full run")
    folder = parser.parse_args().folder
    records = finished(folder)
    if not records or any(record["size"] != "full" for record in records.values()):
        parser.error(f"{folder} holds no full run")
    for id, record in records.items():
        draw_figure(find(id), record, folder)
    write_report(folder)
    for target in (NUMBERS, PAGES):
        target.mkdir(parents=True, exist_ok=True)
    for id in records:
        shutil.copy(folder / f"{id}.json", NUMBERS)
        shutil.copy(folder / f"{id}.png", PAGES)
    shutil.copy(folder / "report.md", PAGES)
    print(f"{len(records)} experiments; missing: {', '.join(id for id in IDS if id not in records) or 'none'}")


if __name__ == "__main__":
    main()
