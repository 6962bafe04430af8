"""False-reject rate of tables fitted in closed form and calibrated by cross-fitting, without a held-out part."""

import statistics
from typing import Any

import torch

import openradial
from benchmarks.table_data import load
from openradial.data.sources import DataSource

RATE = 0.05
TRAINED_ON = 0.7  # part of the rows; the rate is measured on the others
MOST = {"digits": 1_797, "letter": 3_000}  # rows of a split, drawn at random for each


def measure_rates(splits: int) -> list[dict[str, Any]]:
    """Fit and calibrate on random parts of known data, and count what is rejected of the other part."""
    return [measure_set(name, most, splits) for name, most in MOST.items()]


def measure_set(name: str, most: int, splits: int) -> dict[str, Any]:
    table = load(name)
    rejected, accuracy = [], []
    for seed in range(splits):
        order = torch.randperm(len(table), generator=torch.Generator().manual_seed(seed))[:most]
        train, test = order.tensor_split([int(TRAINED_ON * len(order))])
        source = DataSource(name, "table", table.select(train), table.select(test))
        options: dict[str, Any] = {"calibration": "cross", "false_reject_rate": RATE, "seed": seed}
        report = openradial.fit(source, baseline=False, show_progress=False, **options).report
        rejected.append(report.false_rejects.measured)
        accuracy.append(report.accuracy)
    cuts = statistics.quantiles(rejected, n=20, method="inclusive")
    return {
        "set": name,
        "rows": most,
        "splits": splits,
        "rate": RATE,
        "mean": statistics.mean(rejected),
        "std": statistics.stdev(rejected),
        "low": cuts[0],
        "high": cuts[-1],
        "accuracy": statistics.mean(accuracy),
    }
