"""Choose the power of the features of photographs, their score and its weights: known classes that are left out.

python -m benchmarks.photo_powers --tiny PATH (five minutes on two cores; features are cached)

Training images alone: of 48 classes of Tiny-ImageNet that are known in the first split of benchmarks.pretrained, up to
24 are known and 12 others left out and novel; of the six known classes of CIFAR-10 in its first split, two are left
out. The features of efficientnet_lite0 are means of activations from 0 to 6; a power of 0.5 is the square root, which
makes few large ones count less. The outputs of the head may have another power than the Mahalanobis distance. Writes
benchmarks/results/photo_powers.{json,md}.
"""

import argparse
import json
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from benchmarks.machine import machine
from benchmarks.middle_layer import CLASSES, LAST, TEST, TRAIN, load
from benchmarks.photos import measure_photographs, published
from benchmarks.pretrained import encode, first_rows, pixels
from benchmarks.run import RESULTS, table
from openradial.data import Examples, sources
from openradial.files import write_text
from openradial.fitting.cross import FeatureSet, assign_folds, cross_fit
from openradial.heads.radial import projection
from openradial.metrics import auroc
from openradial.recipe import OUTPUTS, closed_form_recipe
from openradial.scorers import Combination, MahalanobisScorer

COMMAND = "python -m benchmarks.photo_powers --tiny PATH"
RUNS, KNOWN, NOVEL, FOLDS = 4, 24, 12, 5
COUNTS = (4, 6, 10, 15, 24)  # known classes of Tiny-ImageNet
BOTH = "0.5, of outputs 1"
POWERS = ("1", "0.5", BOTH)
WEIGHTS = {"4 : 1": (4.0, 1.0), "2 : 1": (2.0, 1.0), "1 : 1": (1.0, 1.0), "1 : 2": (1.0, 2.0)}  # head, Mahalanobis
CIFAR, CIFAR_TEST = 250, 50  # images of a class, and how many of them are for testing
PAIRS = 6  # of CIFAR-10's classes that are left out
Rows = tuple[Tensor, Tensor, Tensor, Tensor]  # training features and labels, test features and labels


def tiny_rows(data: dict[str, Tensor], count: int, seed: int) -> Rows:
    """Return features and labels for one choice of known and left-out classes; other classes are not there."""
    drawn = torch.randperm(CLASSES, generator=torch.Generator().manual_seed(100 + seed))
    code = torch.full((CLASSES,), -2)
    code[drawn[:NOVEL]] = -1
    code[drawn[NOVEL : NOVEL + count].sort().values] = torch.arange(count)
    y, t = code.repeat_interleave(TRAIN), code.repeat_interleave(TEST)
    return data["train"][y >= 0], y[y >= 0], data["test"][t > -2], t[t > -2]


def cifar_rows() -> list[Rows]:
    """Return features and labels with two of six classes of CIFAR-10 left out, for several pairs."""
    train = sources.open("cifar10").train
    assert isinstance(train, Examples)
    six = torch.randperm(10, generator=torch.Generator().manual_seed(0))[:6]
    rows = first_rows(train.labels, CIFAR)
    rows = rows[torch.isin(train.labels[rows], six)]
    z, labels = encode("efficientnet_lite0", pixels(train, rows)), train.labels[rows]
    is_test, found = torch.arange(len(rows)) % CIFAR >= CIFAR - CIFAR_TEST, []
    for pair in list(combinations(six.tolist(), 2))[:: 15 // PAIRS][:PAIRS]:
        code = torch.full((10,), -1)
        code[[k for k in six.tolist() if k not in pair]] = torch.arange(4)
        y = code[labels]
        found.append((z[~is_test & (y >= 0)], y[~is_test & (y >= 0)], z[is_test], y[is_test]))
    return found


def with_power(power: str, z: Tensor) -> Tensor:
    """Return features of all layers with this power of those of the last one; the encoder has their square roots."""
    return torch.cat([published(z, LAST), z[:, LAST:]], 1) if power == "1" else z


def merged_scores(rows: Rows, seed: int, squares: bool) -> dict[str, float]:
    """Return the AUROC of both scores of the head with every weight of the Mahalanobis distance."""
    z, y, x, t = rows[0][:, :LAST], rows[1], rows[2][:, :LAST], rows[3]
    recipe = closed_form_recipe("images", len(z), squares=squares)
    head = recipe.make_closed_form_head(tuple(map(str, range(int(y.max()) + 1))), LAST, seed).fit(z, y)
    far = MahalanobisScorer(normalise=True, shrinkage="oas")
    out = cross_fit(head, [(OUTPUTS, far)], FeatureSet(z, y), assign_folds(y, FOLDS, None, seed), (), seed)
    distances, found = far.fit(z, y).unknown_score(x).double(), {}
    held_out = {"distance": out.scores[:, 0], "projection": out.projections}
    new = {"distance": head.compute(x).unknown_score, "projection": projection(head.outputs(x).double(), head.scale)}
    for score, column in new.items():
        for name, weights in WEIGHTS.items():
            merge = Combination("standardised", weights=weights)
            merge.fit(torch.stack([held_out[score], out.scores[:, 1]], 1))
            values = merge.unknown_score(torch.stack([column.double(), distances], 1))
            found[f"{score}, {name}"] = auroc(values[t >= 0], values[t < 0])
    return found


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", type=Path, required=True)
    data = load(parser.parse_args().tiny)
    cases = {f"Tiny-ImageNet, {count}": [tiny_rows(data, count, seed) for seed in range(RUNS)] for count in COUNTS}
    cases = {"CIFAR-10, 4": cifar_rows()} | cases
    results: dict[str, Any] = {"environment": machine(COMMAND), "fits": {}, "scores": {}}
    for power in POWERS:
        results["fits"][power] = []
        for seed, (z, y, x, t) in enumerate(cases[f"Tiny-ImageNet, {KNOWN}"]):
            parts = with_power(power, z), y, with_power(power, x), t
            results["fits"][power].append(measure_photographs(*parts, LAST, seed, power == BOTH))
        for case, choices in cases.items():
            runs = [
                merged_scores((with_power(power, z), y, with_power(power, x), t), seed, power == BOTH)
                for seed, (z, y, x, t) in enumerate(choices)
            ]
            results["scores"].setdefault(power, {})[case] = runs
            Console().print(power, case, {name: round(fmean(run[name] for run in runs), 4) for name in runs[0]})
    write(results)


def write(results: dict[str, Any]) -> None:
    """Write the results, with tables of means."""
    fits, rows = results["fits"], []
    for name, runs in fits.items():
        ahead = sum(run["AUROC"] > usual["AUROC"] for run, usual in zip(runs, fits["1"], strict=True))
        rows.append([name, *(f"{fmean(run[key] for run in runs):.3f}" for key in runs[0]), f"{ahead} of {RUNS}"])
    cases = list(results["scores"]["1"])
    scores = [
        [f"{power}, {name}", *(f"{fmean(run[name] for run in results['scores'][power][case]):.3f}" for case in cases)]
        for power in POWERS
        for name in results["scores"][power][cases[0]][0]
    ]
    environment = results["environment"]
    lines = [
        f"Means over {RUNS} choices of {KNOWN} known and {NOVEL} left-out classes among {CLASSES} of Tiny-ImageNet,",
        f"{TRAIN} training images of each to fit and {TEST} others to test, fitted as openradial.fit does; the last",
        "column counts the choices with a higher AUROC than power 1.",
        "",
        *table(["power", "accuracy", "AUROC", "called unknown", "detected", "ahead"], rows),
        "",
        "AUROC of left-out classes by power, score of the outputs, and weights of that score and the Mahalanobis",
        f"distance; by data and number of known classes. {RUNS} choices of Tiny-ImageNet's classes, {NOVEL} left out;",
        f"{PAIRS} pairs of six classes of CIFAR-10 left out, {CIFAR - CIFAR_TEST} training images of each other class.",
        "",
        *table(["power, score, weights", *cases], scores),
        "",
        f"`{COMMAND}`, {environment['cpu']}, {environment['date']}",
    ]
    write_text(RESULTS / "photo_powers.json", json.dumps(results, indent=1))
    write_text(RESULTS / "photo_powers.md", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
