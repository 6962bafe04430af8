"""A whole comparison, with pytorch-ood's detectors in the same table.

python -m benchmarks.comparison --work DIR [--data cifar10] [--peers PATH]; killed, it goes on.

Writes benchmarks/results/comparison_{mnist,cifar10}.{json,md,png}.
"""

import argparse
import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.machine import machine
from benchmarks.peers import agreement, detectors, methods, peers, summary, version
from benchmarks.run import RESULTS, table
from openradial.evaluation.comparison import Comparison, compare
from openradial.evaluation.comparison.comparison import core_seconds, scores_of, trained
from openradial.evaluation.comparison.methods import METHODS, measured
from openradial.evaluation.comparison.report import draw, groups, markdown, summarised
from openradial.files import write_text


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparison", description=__doc__)
    parser.add_argument("--data", default="mnist", help="digits, mnist or cifar10")
    parser.add_argument("--work", type=Path, default=Path("runs/comparison"), help="folder for networks and rows")
    parser.add_argument("--peers", type=Path, help="folder that pip installed pytorch-ood into")
    parser.add_argument("--quick", action="store_true", help="one epoch, one seed, one split; writes nothing")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    console = Console()
    few: dict[str, Any] = {"seeds": 1, "splits": 1, "quick": True} if options.quick else {}
    comparison = Comparison(options.data, **few)
    rows = compare(comparison, options.work, resume=True, report=console.print)
    peer_runs = with_peers(comparison, options.work, options.peers, console) if options.peers else {}
    rows += [row for run in peer_runs.values() for row in run["rows"]]
    if options.quick:
        console.print(markdown(rows))
        return
    command = f"python -m benchmarks.comparison --data {options.data}"
    facts: dict[str, Any] = {"machine": machine(command), "threads": options.threads}
    facts["minutes"] = round(sum(seconds(options.work, key) for key, *_ in comparison.protocols()) / 60, 1)
    if peer_runs:
        facts["peers"] = f"pytorch-ood {version(options.peers)}"
        facts["agreement"] = summary({key: run["agreement"] for key, run in peer_runs.items()})
    save(f"comparison_{options.data}", facts, rows)


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


def save(name: str, facts: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    summaries = {group: summarised(own) for group, own in groups(rows).items()}
    write_text(RESULTS / f"{name}.json", json.dumps(facts | {"summary": summaries, "rows": rows}, indent=1) + "\n")
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
    write_text(RESULTS / f"{name}.md", "\n".join(lines))
    draw(summaries, RESULTS / f"{name}.png")
    shutil.copy(RESULTS / f"{name}.png", RESULTS.parents[1] / "docs" / "images" / f"{name}.png")


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
