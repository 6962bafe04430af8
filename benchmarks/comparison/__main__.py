"""Compare methods for open-world classification: one network per loss, every score on the same outputs.

python -m benchmarks.comparison --out DIR [--data cifar10] [--peers PATH]; killed, it goes on.

Writes comparison.{json,md,png} to the folder. The comparison with the usual seeds, splits and novel sets also writes
benchmarks/results/comparison_{mnist,cifar10}.{json,md,png}; with --peers, pytorch-ood's detectors are in the table too.
"""

import argparse
import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.comparison import METHODS, Comparison, compare
from benchmarks.comparison.methods import measured
from benchmarks.comparison.report import draw, groups, markdown, summarised
from benchmarks.comparison.runs import core_seconds, scores_of, trained
from benchmarks.machine import machine
from benchmarks.peers import agreement, detectors, methods, peers, summary, version
from benchmarks.run import RESULTS, table
from openradial.files import write_text


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparison", description=__doc__)
    parser.add_argument("--data", default="mnist", help="digits, mnist or cifar10")
    parser.add_argument("--out", "--work", type=Path, default=Path("runs/comparison"), help="folder for all files")
    parser.add_argument("--seeds", type=int, help="networks per loss with all classes known (5)")
    parser.add_argument("--splits", type=int, help="splits into six known and the other classes (5)")
    parser.add_argument("--novel", type=novel_set, action="append", help="another novel set, as NAME=FILE (NPZ or idx)")
    parser.add_argument("--quick", action="store_true", help="few epochs, one seed, one split")
    parser.add_argument("--peers", type=Path, help="folder that pip installed pytorch-ood into")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    console = Console()
    usual = 1 if options.quick else 5
    seeds, splits = (usual if runs is None else runs for runs in (options.seeds, options.splits))
    comparison = Comparison(options.data, seeds, splits, quick=options.quick, novel=dict(options.novel or []))
    rows = compare(comparison, options.out, report=console.print)
    peer_runs = with_peers(comparison, options.out, options.peers, console) if options.peers else {}
    rows += [row for run in peer_runs.values() for row in run["rows"]]
    command = f"python -m benchmarks.comparison --data {options.data}"
    facts: dict[str, Any] = {"machine": machine(command), "threads": options.threads}
    facts["minutes"] = round(sum(seconds(options.out, key) for key, *_ in comparison.protocols()) / 60, 1)
    if peer_runs:
        facts["peers"] = f"pytorch-ood {version(options.peers)}"
        facts["agreement"] = summary({key: run["agreement"] for key, run in peer_runs.items()})
    save(options.out / "comparison", facts, rows)
    console.print(markdown(rows))
    if comparison == Comparison(options.data):
        publish(options.out, f"comparison_{options.data}")


def novel_set(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if not (name and path):
        raise argparse.ArgumentTypeError(f"a novel set must be NAME=FILE, got {text!r}")
    return name, Path(path)


def with_peers(comparison: Comparison, work: Path, path: Path, console: Console) -> dict[str, dict[str, Any]]:
    """The peers' rows of every run, each kept when it is done."""
    module, result = detectors(path), {}
    for key, seed, make in comparison.protocols():
        kept = work / f"{key}-peers.json"
        if not kept.exists():
            console.print(f"peers: {key}")
            write_text(kept, json.dumps(one_run(comparison, module, make(), seed, work / key), indent=1) + "\n")
        result[key] = json.loads(kept.read_text())
    return result


def one_run(comparison: Comparison, module: Any, protocol: Any, seed: int, folder: Path) -> dict[str, Any]:
    network = comparison.networks["softmax"]
    net = trained(network, protocol, comparison.training, seed, folder / "softmax")
    detectors = peers(module, net, protocol.num_classes)
    scores = scores_of(net, protocol, comparison.training)
    rows = measured(methods(detectors), network.recipe.make_head(protocol.num_classes), scores, protocol.novel)
    seconds = core_seconds(folder / "softmax")
    facts = {"protocol": protocol.name, "seed": seed, "training_seconds": seconds}
    return {"rows": [row | facts for row in rows], "agreement": agreement(detectors, scores, ["test", *protocol.novel])}


def seconds(work: Path, key: str) -> float:
    return float(json.loads((work / f"{key}.json").read_text())["run"]["seconds"])


def save(path: Path, facts: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    summaries = {group: summarised(own) for group, own in groups(rows).items()}
    write_text(path.with_suffix(".json"), json.dumps(facts | {"summary": summaries, "rows": rows}, indent=1) + "\n")
    where = facts["machine"]
    lines = [
        f"Written by `{where['command']}` on {where['date']}: {where['cpu']}, {where['cores']} cores, "
        f"torch {where['torch']}. Training and measuring took {facts['minutes']} minutes of one core.",
        "",
        markdown(rows),
    ]
    lines += [lead(name, own) for name, own in groups(rows).items()] + [""]
    if "agreement" in facts:
        cells = [[detector, f"{low:.6f}", f"{high:.6f}"] for detector, (low, high) in facts["agreement"].items()]
        lines += [
            f"Rank correlation of {facts['peers']} with the same score here, over all inputs of a run:",
            "",
            *table(["detector", "smallest", "largest"], cells),
            "",
        ]
    write_text(path.with_suffix(".md"), "\n".join(lines))
    draw(summaries, path.with_suffix(".png"))


def publish(folder: Path, name: str) -> None:
    """Copy the results to benchmarks/results, and the figure to the documentation."""
    for suffix in (".json", ".md", ".png"):
        shutil.copy(folder / f"comparison{suffix}", RESULTS / f"{name}{suffix}")
    shutil.copy(folder / "comparison.png", RESULTS.parents[1] / "docs" / "images" / f"{name}.png")


def lead(name: str, rows: list[dict[str, Any]]) -> str:
    """In how many runs another method has a higher AUROC than the recipe, on the mean of its novel sets."""
    aurocs: dict[str, list[float]] = {}
    for row in rows:
        aurocs.setdefault(row["method"], []).append(statistics.fmean(each["auroc"] for each in row["novel"].values()))
    ours = [method.name for method in METHODS if method.is_ours and method.name in aurocs][-1]
    behind = {
        method: sum(theirs >= value for value, theirs in zip(aurocs[ours], values, strict=True))
        for method, values in aurocs.items()
        if method != ours
    }
    others = ", ".join(f"{method} ({count})" for method, count in behind.items() if count) or "none"
    runs = len(aurocs[ours])
    return f"- {name}: as high a mean AUROC as *{ours}* has, in how many of {runs} runs: {others}."


if __name__ == "__main__":
    main()
