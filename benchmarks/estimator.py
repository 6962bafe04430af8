"""Measure the estimator and write benchmarks/results/estimator.{json,md}: accuracy, time of a fit, classes left out.

python -m benchmarks.estimator [--quick]
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn.datasets import load_digits, make_classification
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from openradial import RadialClassifier
from openradial.files import write_text
from openradial.metrics import auroc

AT_MOST, AT_LEAST = 10.0, 0.97  # seconds, accuracy: set before measuring
SPLITS = 5
RATE = 0.05
WAYS: dict[str, dict[str, Any]] = {
    "the paper's loss": {"loss": "distance", "outliers": 0, "neighbours": False},
    "squared, outliers": {"neighbours": False},
    "squared, outliers, neighbours": {},
}
Arrays = tuple[NDArray[Any], NDArray[Any]]


class Set(NamedTuple):
    """A table, how many of its classes are known, and options that go with it."""

    rows: Callable[[], Arrays]
    known: int
    options: dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.estimator", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one split, not for the docs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    options = parser.parse_args()
    seeds = range(1 if options.quick else SPLITS)
    results = {
        "environment": environment(),
        "rows": [measure(seed) for seed in seeds],
        "left_out": [left_out(name, way, seed) for name in SETS for way in WAYS for seed in seeds],
    }
    write_text(options.out / "estimator.json", json.dumps(results, indent=1) + "\n")
    write_text(options.out / "estimator.md", markdown(results))
    print((options.out / "estimator.md").read_text())


def measure(seed: int) -> dict[str, Any]:
    """Fit four fifths of the digits and test on the rest, and so with scikit-learn's network of the same widths."""
    x, y = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(x, y, test_size=0.2, random_state=seed, stratify=y)
    row: dict[str, Any] = {"seed": seed}
    rivals = {
        "radial": RadialClassifier(false_reject_rate=None, random_state=seed),
        "mlp": MLPClassifier((100, 100), random_state=seed),
    }
    for name, estimator in rivals.items():
        start, cpu = time.perf_counter(), time.process_time()
        estimator.fit(train_x, train_y)
        took = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
        row[name] = took | {"accuracy": float(estimator.score(test_x, test_y))}
    return row


def pixels() -> Arrays:
    """Return the digits with one scale for all pixels, as a user would divide an image by 255."""
    x, y = load_digits(return_X_y=True)
    return x / 16 - 0.3, y


def synthetic() -> Arrays:
    x, y = make_classification(1200, 20, n_informative=10, n_classes=6, class_sep=2.0, random_state=0)
    return x, y


SETS = {
    "digits": Set(lambda: load_digits(return_X_y=True), 6, {}),
    "digits, pixels / 16, not standardised": Set(pixels, 6, {"standardise": False}),
    "make_classification": Set(synthetic, 4, {}),
}


def left_out(name: str, way: str, seed: int) -> dict[str, Any]:
    """Fit some classes, and test on a fifth of their rows and on all rows of the other classes."""
    x, y = SETS[name].rows()
    known = np.isin(y, np.random.default_rng(seed).permutation(np.unique(y))[: SETS[name].known])
    train_x, test_x, train_y, test_y = train_test_split(
        x[known], y[known], test_size=0.2, random_state=seed, stratify=y[known]
    )
    options = SETS[name].options | WAYS[way]
    classifier = RadialClassifier(false_reject_rate=RATE, random_state=seed, **options).fit(train_x, train_y)
    numbers = {
        "auroc": float(auroc(classifier.unknown_score(test_x), classifier.unknown_score(x[~known]))),
        "false_rejects": float((classifier.predict(test_x) == -1).mean()),
        "detected": float((classifier.predict(x[~known]) == -1).mean()),
    }
    classifier.set_params(false_reject_rate=None)
    return {"set": name, "way": way, "seed": seed, **numbers, "accuracy": float(classifier.score(test_x, test_y))}


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
        f"needs. Requirement: at most {AT_MOST:g} s and an accuracy of at least {AT_LEAST:g}."
    )
    cells = [
        [
            str(row["seed"]),
            f"{row['radial']['accuracy']:.3f}",
            f"{row['radial']['seconds']:.1f}",
            f"{row['radial']['cpu_seconds']:.1f}",
            "yes" if holds(row["radial"]) else "NO",
            f"{row['mlp']['accuracy']:.3f}",
            f"{row['mlp']['seconds']:.1f}",
        ]
        for row in results["rows"]
    ]
    names = ["seed", "RadialClassifier, accuracy", "fit, s", "CPU time, s", "holds"]
    names += ["MLPClassifier, accuracy", "fit, s"]
    return "\n".join([heading, "", *table(names, cells), "", *left_out_lines(results["left_out"]), ""])


def left_out_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Return each set and way with the means over the splits."""
    splits = len({row["seed"] for row in rows})
    heading = (
        f"Novel classes: some classes are known, the others are not in the training data; means over {splits} splits, "
        f"with a false_reject_rate of {RATE:g}. The last row of each set is the default."
    )
    cells = []
    for name in SETS:
        for way in WAYS:
            runs = [row for row in rows if (row["set"], row["way"]) == (name, way)]
            numbers = [mean(run[key] for run in runs) for key in ("auroc", "detected", "false_rejects", "accuracy")]
            cells.append([f"{name}: {way}", *(f"{number:.3f}" for number in numbers)])
    names = ["set and way", "AUROC", "unknown rows rejected", "known rows rejected", "accuracy without rejection"]
    return [heading, "", *table(names, cells)]


def holds(row: dict[str, float]) -> bool:
    return row["seconds"] <= AT_MOST and row["accuracy"] >= AT_LEAST


if __name__ == "__main__":
    main()
