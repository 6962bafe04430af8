"""Run all fuzzers and write benchmarks/results/fuzz.{json,md}: ``make fuzz``, or python tests/fuzz/run.py [PART ...].

Parts are ``hypothesis``, ``endpoints`` and the names of the parsers in targets.py; without one, all run and the file
begins again, with --resume only those that it does not have. Results of parts that are not run again stay in the file,
with the date of their run. Needs the extra ``fuzz``.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "fuzz"), str(ROOT / "tests" / "bundle")]
RESULTS = ROOT / "benchmarks" / "results" / "fuzz.json"
COVERED = ("functional", "heads", "conformal", "metrics", "estimator", "encoders", "scorers", "nn", "data", "bundle")


def main() -> int:
    from targets import TARGETS

    parser = argparse.ArgumentParser(prog="python tests/fuzz/run.py", description="Run all fuzzers.")
    parser.add_argument("parts", nargs="*", help="hypothesis, endpoints, or names of parsers; all by default")
    parser.add_argument("--runs", type=int, default=1_000_000, help="of all parsers together")
    parser.add_argument("--seconds", type=int, default=1800, help="at most, for each parser and each endpoint")
    parser.add_argument("--examples", type=int, default=200, help="of each Hypothesis test")
    parser.add_argument("--requests", type=int, default=1000, help="to each endpoint, valid ones and as many others")
    parser.add_argument("--resume", action="store_true", help="run the parts that an interrupted run did not finish")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="parsers at the same time")
    options = parser.parse_args()
    parts = options.parts or ["hypothesis", *TARGETS, "endpoints"]
    if unknown := set(parts) - {"hypothesis", "endpoints", *TARGETS}:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; choose from hypothesis, {', '.join(TARGETS)}")
    keep = RESULTS.exists() and (options.parts or options.resume)
    results = json.loads(RESULTS.read_text()) if keep else {}
    if options.resume:
        parts = [part for part in parts if part not in results]
    total = sum(each.share for each in TARGETS.values())
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(options.jobs) as pool:
        found = Path(scratch)

        def run(part: str) -> None:
            start = time.monotonic()
            if part == "hypothesis":
                result = hypothesis(options.examples)
            elif part == "endpoints":
                result = endpoints(options.requests, options.seconds, found)
            else:
                result = parser_runs(part, options.runs * TARGETS[part].share // total, options.seconds, found)
            date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
            results[part] = result | {"seconds": round(time.monotonic() - start), "date": date}
            print(f"{part}: {result['runs']:,} runs, {len(result['failures'])} failures", flush=True)
            write(results)

        list(pool.map(run, parts))
    for part in parts:
        for failure in results[part]["failures"]:
            print(f"\n{part}: {failure['name']}\n{failure['error']}")
    return 1 if any(results[part]["failures"] for part in parts) else 0


def parser_runs(name: str, runs: int, seconds: int, scratch: Path) -> dict:
    found = scratch / name
    found.mkdir()
    command = [sys.executable, str(ROOT / "tests/fuzz/fuzzer.py"), name, str(runs), str(seconds), str(found)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace")
    count = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    failures = found_failures(found)
    for path in found.iterdir():
        if path.suffix != ".txt":  # kept for a test: tests/fuzz/cases
            print(f"{path.name}: {path.read_bytes()[:2000]!r}", flush=True)
    if done.returncode or count is None:
        failures.append({"name": "fuzzer", "error": done.stderr[-2000:]})
    return {"runs": int(count[1]) if count else 0, "asked": runs, "failures": failures}


def found_failures(folder: Path) -> list:
    return [{"name": path.stem, "error": path.read_text()} for path in sorted(folder.glob("*.txt"))]


def hypothesis(examples: int) -> dict:
    """Run the Hypothesis tests with new random seeds, and count their examples."""
    environment = os.environ | {"HYPOTHESIS_PROFILE": "fuzz", "HYPOTHESIS_EXAMPLES": str(examples)}
    folders = [f"tests/{name}" for name in COVERED]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "hypothesis", "--hypothesis-show-statistics", *folders]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    tests: dict[str, int] = {}
    name = ""
    for line in done.stdout.splitlines():
        if match := re.match(r"(tests/\S+?::\S+?):$", line):
            name = match[1]
        for passing, failing, invalid in re.findall(r"(\d+) passing, (\d+) failing(?:, and|,) (\d+) invalid", line):
            tests[name] = tests.get(name, 0) + int(passing) + int(failing) + int(invalid)
    failures = [] if done.returncode == 0 else [{"name": "pytest", "error": done.stdout[-5000:]}]
    folders = {each: sum(n for name, n in tests.items() if name.startswith(f"tests/{each}/")) for each in COVERED}
    return {"runs": sum(tests.values()), "tests": len(tests), "folders": folders, "failures": failures}


def endpoints(requests: int, seconds: int, scratch: Path) -> dict:
    found, counts = scratch / "endpoints", scratch / "counts.json"
    found.mkdir()
    script = [sys.executable, str(ROOT / "tests/fuzz/endpoints.py"), str(requests), str(seconds)]
    done = subprocess.run([*script, str(counts), str(found)], cwd=ROOT, capture_output=True, text=True)
    failures = found_failures(found)
    if done.returncode:
        failures.append({"name": "endpoints", "error": done.stderr[-3000:]})
    each = json.loads(counts.read_text()) if counts.exists() else {}
    return {"runs": sum(each.values()), "endpoints": each, "failures": failures}


def write(results: dict) -> None:
    from openradial.files import write_text

    write_text(RESULTS, json.dumps(results, indent=1) + "\n")
    write_text(RESULTS.with_suffix(".md"), markdown(results))


def markdown(results: dict) -> str:
    rows = {name: each for name, each in results.items() if name not in ("hypothesis", "endpoints")}
    if each := results.get("hypothesis"):
        tested = ", ".join(name for name, count in each["folders"].items() if count)
        rows[f"Hypothesis, {each['tests']} tests ({tested})"] = each
    if each := results.get("endpoints"):
        served = ", ".join(dict.fromkeys(name.partition(" ")[0] for name in each["endpoints"]))
        rows[f"schemathesis, {len(each['endpoints'])} endpoints ({served})"] = each
    lines = [
        f"**{sum(each['runs'] for each in results.values()):,} executions in all**, "
        f"{sum(len(each['failures']) for each in results.values())} failures in the last run of each part. "
        f"The parts took {sum(each['seconds'] for each in results.values()) / 60:.0f} minutes, one after the other.",
        "",
        "| part | executions | failures | seconds | date |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for name, each in rows.items():
        lines.append(f"| {name} | {each['runs']:,} | {len(each['failures'])} | {each['seconds']:,} | {each['date']} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
