"""False-reject rate of a head solved in closed form, calibrated by cross-fitting without a held-out part."""

import statistics
import time
from typing import Any

import torch
from torch import Tensor

from benchmarks.table_data import load
from openradial.conformal import Rejector
from openradial.data.table_encoder import TableEncoder
from openradial.heads import ClosedFormRadialHead

FOLDS = 10
RATE = 0.05
TRAINED_ON = 0.7  # part of the rows; the rate is measured on the others
MOST = {"digits": 1_797, "letter": 3_000}  # rows of a split, drawn anew for each
RANDOM_FEATURES = 500


def cross_scores(
    head: ClosedFormRadialHead, z: Tensor, y: Tensor, folds: int = FOLDS
) -> tuple[Tensor, dict[str, float]]:
    """Score each example by the head without its fold, ``(n,)``; with the seconds of each step."""
    order = torch.randperm(len(z), generator=torch.Generator().manual_seed(0))
    scores = torch.empty(len(z))
    seconds = dict.fromkeys(("sums of the folds", "heads without a fold", "their solutions", "scores"), 0.0)
    for fold in torch.tensor_split(order, folds):
        times = [time.perf_counter()]
        part = head.sums_of(z[fold], y[fold])
        times.append(time.perf_counter())
        rest = head.without(part)
        times.append(time.perf_counter())
        rest.solve()
        times.append(time.perf_counter())
        scores[fold] = rest.compute(z[fold]).unknown_score.float()
        times.append(time.perf_counter())
        for name, start, end in zip(seconds, times, times[1:], strict=False):
            seconds[name] += end - start
    return scores, seconds


def measure_rates(splits: int) -> list[dict[str, Any]]:
    """Fit and calibrate on random parts of known data, and count what is rejected of the other part."""
    return [measure_set(name, most, splits) for name, most in MOST.items()]


def measure_set(name: str, most: int, splits: int) -> dict[str, Any]:
    table = load(name)
    rejected, accuracy = [], []
    for seed in range(splits):
        order = torch.randperm(len(table), generator=torch.Generator().manual_seed(seed))[:most]
        train, test = order[: int(TRAINED_ON * len(order))], order[int(TRAINED_ON * len(order)) :]
        encoder = TableEncoder.fit(table.select(train))
        z, test_z = (encoder.apply(table.select(part)).inputs for part in (train, test))
        head = ClosedFormRadialHead(table.classes, z.shape[1], random_features=RANDOM_FEATURES, seed=seed)
        head.fit(z, table.labels[train])
        rejector = Rejector(RATE).fit(cross_scores(head, z, table.labels[train])[0])
        made = head.compute(test_z)
        rejected.append(float(rejector.rejects(made.unknown_score).double().mean()))
        accuracy.append(float((made.labels == table.labels[test]).double().mean()))
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
