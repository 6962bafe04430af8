"""Time the exact search for neighbours beside scikit-learn's, and check it: python -m benchmarks.heads_knn --quick."""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from benchmarks.memory import _status
from benchmarks.run import table
from benchmarks.timing import duel
from openradial.scorers import NeighbourScorer

SEED, K, WIDTH, CLASSES = 0, 10, 320, 10
AT_MOST = 20.0  # seconds for 10,000 queries among 60,000 references on two cores: set before measuring
SPREADS = {"ten wide classes": 1.0, "ten tight classes": 1e-4}  # in the tight ones float32 products tell nothing
CHECKED = 50


def measure_knn(quick: bool) -> dict[str, Any]:
    """Seconds for all queries, the largest relative error of some, and peak memory; on as many threads as torch has."""
    references, queries, rounds = (6_000, 1_000, 2) if quick else (60_000, 10_000, 5)
    result = {"references": references, "queries": queries, "features": WIDTH, "k": K, "seed": SEED}
    cases = [
        measure_case(name, features(references, 1, spread), features(queries, 2, spread), rounds)
        for name, spread in SPREADS.items()
    ]
    limit = None if quick else AT_MOST
    holds = None if quick else all(case["openradial"]["median_s"] <= AT_MOST for case in cases)
    return result | {"threads": torch.get_num_threads(), "at_most_s": limit, "holds": holds, "cases": cases}


def measure_case(name: str, references: Tensor, queries: Tensor, rounds: int) -> dict[str, Any]:
    head = NeighbourScorer(K).fit(references)
    oracle = NearestNeighbors(n_neighbors=K, algorithm="brute").fit(references.numpy())
    grown = peak_growth(partial(head.unknown_score, queries))
    rivals = {
        "openradial": partial(head.unknown_score, queries),
        "scikit-learn, brute force": partial(oracle.kneighbors, queries.numpy()),
    }
    timings = {rival: timing.as_dict() for rival, timing in duel(rivals, rounds=rounds).items()}
    one = duel({"one": partial(head.unknown_score, queries[:1])}, rounds=rounds)["one"].as_dict()
    errors = {"largest relative error": largest_error(head.double(), references, queries[:CHECKED])}
    return {"data": name} | timings | {"one query": one} | errors | {"peak memory, MB": grown}


def features(count: int, seed: int, spread: float) -> Tensor:
    """Features of ten classes, float32: a centre each, and noise."""
    centres = torch.randn(CLASSES, WIDTH, generator=torch.Generator().manual_seed(SEED))
    rng = torch.Generator().manual_seed(SEED + seed)
    return centres[torch.arange(count) % CLASSES] + spread * torch.randn(count, WIDTH, generator=rng)


def largest_error(head: NeighbourScorer, references: Tensor, queries: Tensor) -> float:
    """Against the distances to all references, from differences in float64."""
    rows = references.double()
    exact = torch.stack([torch.linalg.vector_norm(rows - q, dim=1).kthvalue(K).values for q in queries.double()])
    return float(((head.unknown_score(queries.double()) - exact).abs() / exact).max())


def peak_growth(run: partial[Tensor]) -> float | None:
    """How much memory a call takes at its peak, in MB."""
    forget = Path("/proc/self/clear_refs")
    if not forget.exists():
        return None
    run()
    before = _status("VmRSS")
    forget.write_text("5")
    run()
    return (_status("VmHWM") - before) / 1e6


def markdown_knn(result: dict[str, Any]) -> str:
    """What was measured, as a table."""
    ways = ("openradial", "scikit-learn, brute force", "one query")
    rows = []
    for case in result["cases"]:
        seconds = [f"{case[way]['median_s']:.3g}" for way in ways]
        memory = case["peak memory, MB"]
        error = f"{case['largest relative error']:.1e}"
        rows.append([case["data"], *seconds, error, "" if memory is None else f"{memory:.0f}"])
    head = ["data", *(f"{way}, s" for way in ways), "largest relative error", "peak memory, MB"]
    verdict = (
        "" if result["holds"] is None else f" At most {result['at_most_s']:g} s: {'yes' if result['holds'] else 'NO'}."
    )
    text = (
        f"The {result['k']} nearest of {result['references']:,} references x {result['features']} features for "
        f"{result['queries']:,} queries, {result['threads']} threads, medians.{verdict}"
    )
    return "\n".join([text, "", *table(head, rows), ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.heads_knn")
    parser.add_argument("--quick", action="store_true", help="few rounds and rows; for trying it out")
    print(markdown_knn(measure_knn(parser.parse_args().quick)))
