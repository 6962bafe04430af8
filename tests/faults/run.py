"""Kill commands, fill disks, misbehave as a mirror, and write benchmarks/results/faults.{json,md}: ``make faults``.

python tests/faults/run.py [--kills 240] [--jobs 2]. Needs root for the disks, which are small tmpfs mounts.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

FOLDER = Path(__file__).parent
RESULTS = FOLDER.parents[1] / "benchmarks" / "results" / "faults.json"
SHARES = {"fit": 45, "resume": 40, "export": 15, "evaluate": 30, "download": 55, "cache": 55}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/faults/run.py", description="Break things, and look.")
    parser.add_argument("--kills", type=int, default=sum(SHARES.values()), help="of all commands together")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="commands at the same time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(options.jobs) as pool:

        def run(name: str) -> dict:
            path = Path(scratch) / f"{name}.json"
            count = max(1, round(options.kills * SHARES.get(name, 0) / sum(SHARES.values())))
            script = (
                ["environment.py", str(path)] if name == "environment" else ["kills.py", name, str(count), str(path)]
            )
            done = subprocess.run(
                [sys.executable, str(FOLDER / script[0]), *script[1:]],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
            )
            print(f"{name}: ended with exit code {done.returncode}", flush=True)
            lost = {"kills": 0, "failures": [{"error": done.stderr[-2000:]}]}
            return json.loads(path.read_text()) if path.exists() else lost

        names = [*SHARES, "environment"]
        results = dict(zip(names, pool.map(run, names), strict=True))
    return write(results)


def write(results: dict) -> int:
    from openradial.files import write_text

    environment = results.pop("environment")
    results = {"date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "kills": results, "environment": environment}
    write_text(RESULTS, json.dumps(results, indent=1) + "\n")
    write_text(RESULTS.with_suffix(".md"), markdown(results))
    print(RESULTS.with_suffix(".md").read_text())
    failed = any(each["failures"] for each in results["kills"].values())
    return int(failed or not all(each["holds"] for each in environment.values()))


def markdown(results: dict) -> str:
    kills = results["kills"]
    total = sum(each["kills"] for each in kills.values())
    lines = [
        f"Written by `tests/faults/run.py` on {results['date']}: **{total} times `kill -9`**, "
        f"{sum(len(each['failures']) for each in kills.values())} failures.",
        "",
        "| command | kills | at a change of a file | at a random moment | failures |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, each in kills.items():
        counts = (each["kills"], each.get("at_change", 0), each.get("at_random", 0), len(each["failures"]))
        lines.append(f"| {name} | {' | '.join(map(str, counts))} |")
    lines += ["", "| fault | result |", "| --- | --- |"]
    for name, each in results["environment"].items():
        last = each["messages"][-1] if each["holds"] else each["error"].strip().splitlines()[-1]
        text = last.replace("|", "/").replace("\n", " ")[:220]
        verdict = f"holds in {len(each['messages'])} cases, the last" if each["holds"] else "DOES NOT HOLD"
        lines.append(f"| {name} | {verdict}: {text} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
