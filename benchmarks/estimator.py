"""Measure the estimator on the digits and write benchmarks/results/estimator.{json,md}: accuracy and time of a fit.

python -m benchmarks.estimator
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import sklearn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from benchmarks.machine import machine
from benchmarks.run import RESULTS, table, write
from openradial import RadialClassifier

AT_MOST, AT_LEAST = 10.0, 0.97  # seconds, accuracy: set before measuring
SPLITS = range(5)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.estimator", description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    options = parser.parse_args()
    rows = [measure(seed) for seed in SPLITS]
    results = {"environment": environment(), "rows": rows}
    write(options.out / "estimator.json", json.dumps(results, indent=1) + "\n")
    write(options.out / "estimator.md", markdown(results))
    print((options.out / "estimator.md").read_text())


def measure(seed: int) -> dict[str, Any]:
    """A fit on four fifths of the digits, judged on the last one; beside scikit-learn's network of the same widths."""
    x, y = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(x, y, test_size=0.2, random_state=seed, stratify=y)
    row: dict[str, Any] = {"seed": seed}
    rivals = {
        "radial": RadialClassifier(random_state=seed),
        "mlp": MLPClassifier((100, 100), random_state=seed),
    }
    for name, estimator in rivals.items():
        start = time.perf_counter()
        estimator.fit(train_x, train_y)
        row[name] = {"seconds": time.perf_counter() - start, "accuracy": float(estimator.score(test_x, test_y))}
    return row


def environment() -> dict[str, Any]:
    return machine("python -m benchmarks.estimator") | {
        "sklearn": sklearn.__version__,
        "load_average": os.getloadavg()[1],
    }


def markdown(results: dict[str, Any]) -> str:
    env = results["environment"]
    heading = (
        f"Written by `python -m benchmarks.estimator` on {env['date']}: {env['cpu']}, {env['cores']} cores, torch "
        f"{env['torch']}, scikit-learn {env['sklearn']}, Python {env['python']}; load average "
        f"{env['load_average']:.1f}. The digits, a fifth held out; the first fit of the process also loads what it "
        f"needs. Asked for: at most {AT_MOST:g} s and an accuracy of at least {AT_LEAST:g}."
    )
    cells = [
        [
            str(row["seed"]),
            f"{row['radial']['accuracy']:.3f}",
            f"{row['radial']['seconds']:.1f}",
            "yes" if holds(row["radial"]) else "NO",
            f"{row['mlp']['accuracy']:.3f}",
            f"{row['mlp']['seconds']:.1f}",
        ]
        for row in results["rows"]
    ]
    names = ["seed", "RadialClassifier, accuracy", "fit, s", "holds", "MLPClassifier, accuracy", "fit, s"]
    return "\n".join([heading, "", *table(names, cells), ""])


def holds(found: dict[str, float]) -> bool:
    return found["seconds"] <= AT_MOST and found["accuracy"] >= AT_LEAST


if __name__ == "__main__":
    main()
