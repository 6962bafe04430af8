"""Time the two commands with a quick mode, and write benchmarks/results/quick_mode.{json,md}.

python -m benchmarks.quick_mode, on a quiet machine; the data sets must have been downloaded before.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from openradial.files import write_text
from paper import report

COMMANDS: dict[str, float] = {  # and the minutes that each may take on two cores, set before measuring
    "python -m paper all --quick --jobs 2": 5.0,
    "python -m benchmarks.comparison --data mnist --quick": 3.0,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quick_mode", description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"environment": environment(), "seconds": {}}
    for command in COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "made"
            results["seconds"][command] = timed(command, made)
            if "paper" in command:
                rows = report.table(report.finished(made))
                results["claims"] = {
                    row.claim.number: {"verdict": row.verdict_text, "ours": row.ours, "others": row.others}
                    for row in rows
                }
    results["environment"]["load_average_at_end"] = os.getloadavg()[1]
    write_text(options.out / "quick_mode.json", json.dumps(results, indent=1) + "\n")
    write_text(options.out / "quick_mode.md", markdown(results))
    print((options.out / "quick_mode.md").read_text())


def timed(command: str, made: Path) -> float:
    """Return the seconds of a command, imports included."""
    start = time.perf_counter()
    subprocess.run([*program(command), "--out", str(made)], check=True)
    return time.perf_counter() - start


def program(command: str) -> list[str]:
    """Return a command with this Python, which may not be on the path."""
    name, *arguments = command.split()
    return [sys.executable, *(["-m", name] if name != "python" else []), *arguments]


def environment() -> dict[str, Any]:
    return machine("python -m benchmarks.quick_mode") | {"load_average_at_start": os.getloadavg()[1]}


def markdown(results: dict[str, Any]) -> str:
    where = results["environment"]
    lines = [
        f"Written by `{where['command']}` on {where['date']}: {where['cpu']}, {where['cores']} cores, "
        f"torch {where['torch']}, Python {where['python']}. Load average at the start "
        f"{where['load_average_at_start']:.1f}, at the end {where['load_average_at_end']:.1f}. Data sets: cached.",
        "",
        *table(
            ["command", "time, min", "at most, min", "holds"],
            [
                [f"`{command}`", f"{seconds / 60:.1f}", f"{COMMANDS[command]:g}", verdict(command, seconds)]
                for command, seconds in results["seconds"].items()
            ],
        ),
        "",
        "Verdicts of the quick mode on the paper's claims, by the rules of the full run:",
        "",
        *[f"{n}. **{claim['verdict']}**: {'; '.join(claim['ours'])}" for n, claim in results["claims"].items()],
    ]
    return "\n".join(lines) + "\n"


def verdict(command: str, seconds: float) -> str:
    return "yes" if seconds <= 60 * COMMANDS[command] else "**no**"


if __name__ == "__main__":
    main()
