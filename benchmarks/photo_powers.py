"""What a power of the features of photographs before they are divided by their length is worth: left-out known classes.

python -m benchmarks.photo_powers --tiny PATH (five minutes on two cores; features are those of middle_layer)

Training images of 48 known classes of Tiny-ImageNet: 24 classes are known, 12 left out and novel, and the same for
further choices. The features of efficientnet_lite0 are means of activations from 0 to 6; a power of 0.5 is the square
root, which makes few large ones count less. Writes benchmarks/results/photo_powers.{json,md}.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from benchmarks.machine import machine
from benchmarks.middle_layer import CLASSES, LAST, TEST, TRAIN, columns_of, load
from benchmarks.run import RESULTS, table
from openradial.files import write_text
from openradial.fitting.closed_form import calibrate_cross, fit_closed_form
from openradial.fitting.cross import FeatureSet
from openradial.metrics import auroc
from openradial.models.features import Features
from openradial.recipe import MIDDLE, closed_form_recipe

COMMAND = "python -m benchmarks.photo_powers --tiny PATH"
RUNS, KNOWN, NOVEL = 4, 24, 12
POWERS = (1.0, 0.5)


def measure(data: dict[str, Tensor], power: float, seed: int) -> dict[str, Any]:
    """Return accuracy and AUROC for one choice of known and left-out classes."""
    drawn = torch.randperm(CLASSES, generator=torch.Generator().manual_seed(100 + seed))
    code = torch.full((CLASSES,), -1)
    code[drawn[NOVEL : NOVEL + KNOWN].sort().values] = torch.arange(KNOWN)
    y, t = code.repeat_interleave(TRAIN), code.repeat_interleave(TEST)
    is_novel = torch.isin(torch.arange(CLASSES).repeat_interleave(TEST), drawn[:NOVEL])
    at = columns_of("sixteenth")

    def features(part: str) -> Tensor:
        z = torch.nn.functional.normalize(data[part][:, :LAST].clamp_min(0) ** power)
        return torch.cat([z, data[part][:, at]], 1)

    z, x = features("train")[y >= 0], features("test")
    known = FeatureSet(z[:, :LAST], y[y >= 0], middle=z[:, LAST:])
    recipe = closed_form_recipe("images", len(z), far_axis=False, layers=("outputs", MIDDLE))
    net = Features(z.shape[1], num_middle=len(at))
    model, _ = fit_closed_form(net, recipe, tuple(map(str, range(KNOWN))), known, seed)
    model, _ = calibrate_cross(model, recipe, 0.05, known, seed)
    found = model.decide(x)
    return {
        "accuracy": float((found.nearest == t)[t >= 0].double().mean()),
        "AUROC": auroc(found.unknown_score[t >= 0], found.unknown_score[is_novel]),
        "called unknown": float((found.labels < 0)[t >= 0].double().mean()),
        "detected": float((found.labels < 0)[is_novel].double().mean()),
    }


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", type=Path, required=True)
    data = load(parser.parse_args().tiny)
    results: dict[str, Any] = {"environment": machine(COMMAND), "runs": {str(power): [] for power in POWERS}}
    for seed in range(RUNS):
        for power in POWERS:
            results["runs"][str(power)].append(measure(data, power, seed))
            Console().print(seed, power, json.dumps(results["runs"][str(power)][-1]))
    write(results)


def write(results: dict[str, Any]) -> None:
    """Write the results, with a table of means."""
    rows = []
    for name, runs in results["runs"].items():
        ahead = sum(run["AUROC"] > usual["AUROC"] for run, usual in zip(runs, results["runs"]["1.0"], strict=True))
        rows.append([name, *(f"{fmean(run[key] for run in runs):.3f}" for key in runs[0]), f"{ahead} of {RUNS}"])
    environment = results["environment"]
    lines = [
        f"Means over {RUNS} choices of {KNOWN} known and {NOVEL} left-out classes among {CLASSES} of Tiny-ImageNet,",
        f"{TRAIN} training images of each to fit and {TEST} others to test; the last column counts the choices with a",
        "higher AUROC than power 1.",
        "",
        *table(["power", "accuracy", "AUROC", "called unknown", "detected", "ahead"], rows),
        "",
        f"`{COMMAND}`, {environment['cpu']}, {environment['date']}",
    ]
    write_text(RESULTS / "photo_powers.json", json.dumps(results, indent=1))
    write_text(RESULTS / "photo_powers.md", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
