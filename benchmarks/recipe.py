"""How the recipe was chosen, and what each part of it is worth.

python -m benchmarks.recipe choice --work DIR     known classes left out, no test data, no novel data
python -m benchmarks.recipe digits --work DIR     the same for a network without convolutions
python -m benchmarks.recipe ablation --work DIR   the recipe with one thing changed, on five splits of MNIST's classes
python -m benchmarks.recipe cifar10 --work DIR    the same on five splits of CIFAR-10's

Writes benchmarks/results/recipe_{choice,digits,ablation,cifar10}.{json,md}. Killed, it goes on where it was. With
--comparison the last two take the networks that they share with benchmarks.comparison from the folder of that.
"""

import argparse
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.comparison import Comparison, compare
from benchmarks.comparison.methods import (
    CONVOLUTION,
    DIRECTION,
    DIRECTION_CONVOLUTION,
    DISTANCE,
    FULLY,
    LAST,
    NEAR,
    NEAR_CONVOLUTION,
    NETWORKS,
    PARZEN,
    RECIPE,
    Contender,
    LayerScore,
    Method,
    Scores,
    measured,
)
from benchmarks.comparison.protocols import Protocol
from benchmarks.comparison.report import groups, markdown, summarised
from benchmarks.comparison.runs import core_seconds, scores_of, trained
from benchmarks.machine import machine
from benchmarks.run import RESULTS
from openradial.files import write_text
from openradial.scorers import MahalanobisScorer, NeighbourScorer

OURS = NETWORKS[RECIPE]
SQUARED = "radial, squared"  # the recipe's loss without outliers, a network of the comparison too
PAPERS = {"the paper's loss": replace(OURS, recipe=replace(OURS.recipe, loss="distance"))}
ALONE = {
    f"outliers: {kind} alone": replace(OURS, recipe=replace(OURS.recipe, outliers=(kind,)))
    for kind in OURS.recipe.outliers
}
DATA = {"choice": "mnist", "digits": "digits", "ablation": "mnist", "cifar10": "cifar10"}
JUDGED = ("ablation", "cifar10")  # on test data; the others are there to choose by
CHANGED: dict[str, dict[str, Contender]] = {
    "choice": PAPERS
    | {
        "weight 0.1": replace(OURS, recipe=replace(OURS.recipe, outlier_weight=0.1)),
        "weight 1": replace(OURS, recipe=replace(OURS.recipe, outlier_weight=1.0)),
        "constant learning rate": replace(OURS, settings={"schedule": "constant"}),
        "batches of 1024": replace(OURS, settings={"batch_size": 1024}),
    },
    "digits": {},
    "ablation": PAPERS | ALONE,
    "cifar10": PAPERS | ALONE,
}
MEMBERS = 2  # of the small ensemble


def near(k: int, layer: str, *, direction: bool = True) -> LayerScore:
    label = f"{k}-NN, {layer}{', direction' * direction}"
    return LayerScore(label, layer, lambda _: NeighbourScorer(k=k, normalise=direction))


MERGED = (DISTANCE, DIRECTION, DIRECTION_CONVOLUTION)
SCORES: dict[str, tuple[LayerScore, ...]] = {
    "distance": (DISTANCE,),
    "fully connected": (DIRECTION,),
    "convolution": (DIRECTION_CONVOLUTION,),
    "both": (DIRECTION, DIRECTION_CONVOLUTION),
    "distance + fully connected": (DISTANCE, DIRECTION),
    "distance + convolution": (DISTANCE, DIRECTION_CONVOLUTION),
    "distance + both": MERGED,
    "distance + both, not of length one": (DISTANCE, NEAR, NEAR_CONVOLUTION),
    "distance + both, fully connected not of length one": (DISTANCE, NEAR, DIRECTION_CONVOLUTION),
    "distance + both, convolution not of length one": (DISTANCE, DIRECTION, NEAR_CONVOLUTION),
    "distance + both + last hidden": (*MERGED, near(1, LAST)),
    "distance + both, 10 neighbours": (DISTANCE, near(10, FULLY), near(10, CONVOLUTION)),
    "distance + both, 10 neighbours, not of length one": (
        DISTANCE,
        near(10, FULLY, direction=False),
        near(10, CONVOLUTION, direction=False),
    ),
    "distance + Parzen window": (DISTANCE, PARZEN),
    "distance + Mahalanobis": (DISTANCE, LayerScore("Mahalanobis", FULLY, lambda _: MahalanobisScorer())),
}
MERGES = ("standardised", "mean", "min")


def methods(part: str) -> list[Method]:
    """The recipe's network with every score; every other network with the recipe's score."""
    if part == "digits":
        return list(methods_of_digits())
    rows = [Method(f"recipe; {name}", RECIPE, parts, merge_of(parts)) for name, parts in SCORES.items()]
    rows += [Method(f"recipe; distance + both, {merge}", RECIPE, MERGED, merge) for merge in MERGES]
    rows.append(Method("no outliers; distance + both", SQUARED, MERGED, "fisher"))
    return rows + [Method(f"{name}; distance + both", name, MERGED, "fisher") for name in CHANGED[part]]


def methods_of_digits() -> Iterator[Method]:
    for name, part in {"by direction": DIRECTION, "not of length one": NEAR}.items():
        yield Method(f"recipe; fully connected, {name}", RECIPE, (part,))
        for merge in ("standardised", "fisher"):
            yield Method(f"recipe; distance + fully connected, {name}, {merge}", RECIPE, (DISTANCE, part), merge)


def merge_of(parts: tuple[LayerScore, ...]) -> str | None:
    return "fisher" if len(parts) > 1 else None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recipe", description=__doc__)
    parser.add_argument("part", choices=list(DATA))
    parser.add_argument("--work", type=Path, default=Path("runs/recipe"), help="folder for networks and rows")
    parser.add_argument("--comparison", type=Path, help="the --work of benchmarks.comparison, for its networks")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--splits", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    comparison = study(options.part, options.splits)
    folder = options.work / options.part
    if options.comparison and options.part in JUDGED:
        take(options.comparison, folder, comparison)
    rows = compare(comparison, folder, report=Console().print)
    if options.part in JUDGED:
        rows += [
            row for key, seed, make in comparison.protocols() for row in together(comparison, key, seed, make, folder)
        ]
    save(f"recipe_{options.part}", rows)


def study(part: str, splits: int) -> Comparison:
    networks = NETWORKS | CHANGED[part]
    return Comparison(
        DATA[part], splits=splits, whole=False, choosing=part not in JUDGED, methods=methods(part), networks=networks
    )


def take(source: Path, folder: Path, comparison: Comparison) -> None:
    """Copy networks of the same seeds and settings; training would make the same ones again."""
    for key, *_ in comparison.protocols():
        for name in (RECIPE, SQUARED):
            subfolder = name.replace(", ", "-")
            if (source / f"{key}.json").exists() and not (folder / key / subfolder).exists():
                shutil.copytree(source / key / subfolder, folder / key / subfolder)


def together(
    comparison: Comparison, key: str, seed: int, make: Callable[[], Protocol], folder: Path
) -> list[dict[str, Any]]:
    """The recipe with several networks, of other starts: all their scores are added. Kept when it is done."""
    kept = folder / f"{key}-together.json"
    if not kept.exists():
        protocol = make()
        folders = [folder / key / RECIPE.replace(", ", "-")]
        folders += [folder / key / f"recipe-start{i}" for i in range(1, MEMBERS)]
        members = [
            scores_of(trained(OURS, protocol, comparison.training, seed + 100 * i, path), protocol, comparison.training)
            for i, path in enumerate(folders)
        ]
        method = Method(f"recipe, {MEMBERS} networks; distance + both", RECIPE, parts_of(MEMBERS), "fisher")
        rows = measured([method], OURS.recipe.make_head(protocol.num_classes), joined(members), protocol.novel)
        facts = {"protocol": protocol.name, "seed": seed, "training_seconds": sum(map(core_seconds, folders))}
        write_text(kept, json.dumps([row | facts for row in rows], indent=1) + "\n")
    result: list[dict[str, Any]] = json.loads(kept.read_text())
    return result


def parts_of(members: int) -> tuple[LayerScore, ...]:
    return tuple(
        part._replace(label=f"{part.label} {i}", layer=f"{part.layer} {i}") for i in range(members) for part in MERGED
    )


def joined(members: Sequence[Scores]) -> Scores:
    """Layers of several networks side by side. The class is that of the mean output."""
    first = members[0]
    sets = {}
    for name in first.sets:
        layers = {f"{layer} {i}": rows for i, one in enumerate(members) for layer, rows in one.sets[name].items()}
        sets[name] = layers | {"outputs": torch.stack([one.sets[name]["outputs"] for one in members]).mean(0)}
    return Scores(sets, first.labels, first.num_classes)


def save(name: str, rows: list[dict[str, Any]]) -> None:
    where = machine(f"python -m benchmarks.{name.replace('_', ' ')}")
    summaries = {group: summarised(own) for group, own in groups(rows).items()}
    write_text(
        RESULTS / f"{name}.json", json.dumps({"machine": where, "summary": summaries, "rows": rows}, indent=1) + "\n"
    )
    head = f"Written by `{where['command']}` on {where['date']}: {where['cpu']}, {where['cores']} cores."
    write_text(RESULTS / f"{name}.md", f"{head}\n\n{markdown(rows)}")


if __name__ == "__main__":
    main()
