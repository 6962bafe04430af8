"""Time AUROC and FPR at 95 % TPR of ten million scores and write benchmarks/results/metrics.{json,md}.

python -m benchmarks.metrics, or with --quick in quick mode.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score, roc_curve

from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from benchmarks.timing import duel
from openradial import metrics
from openradial.files import write_text

SEED = 0
SCORES, RESAMPLED = 10_000_000, 10_000
AT_MOST, BOOTSTRAP_AT_MOST = 5.0, 2.0  # seconds: set before measuring
TOLERANCE = 1e-9
Scores = NDArray[np.floating]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metrics", description="Time metrics of many scores.")
    parser.add_argument("--quick", action="store_true", help="few scores and rounds; for trying it out")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    options = parser.parse_args()
    size, rounds = (200_000, 1) if options.quick else (SCORES, 5)
    results: dict[str, Any] = {"environment": environment()}
    results["scores"] = [measure_scores(name, make, size, rounds) for name, make in KINDS.items()]
    results["bootstrap"] = measure_bootstrap(20 if options.quick else 1000, rounds)
    results["environment"]["load_average_at_end"] = os.getloadavg()[1]
    options.out.mkdir(parents=True, exist_ok=True)
    write_text(options.out / "metrics.json", json.dumps(results, indent=1) + "\n")
    write_text(options.out / "metrics.md", markdown(results))
    print((options.out / "metrics.md").read_text())


def normal(size: int, dtype: type[np.floating], decimals: int | None = None) -> tuple[Scores, Scores]:
    """As many known as novel scores, one standard deviation apart."""
    random = np.random.default_rng(SEED)
    groups = (random.normal(shift, size=size // 2).astype(dtype) for shift in (0.0, 1.0))
    known, novel = (group if decimals is None else group.round(decimals) for group in groups)
    return known, novel


KINDS: dict[str, Callable[[int], tuple[Scores, Scores]]] = {
    "float64, hardly a tie": partial(normal, dtype=np.float64),
    "float32, some ties": partial(normal, dtype=np.float32),
    "float64 with 3 decimals, nearly all tied": partial(normal, dtype=np.float64, decimals=3),
}


def ours(known: Scores, novel: Scores) -> tuple[float, float]:
    return metrics.auroc(known, novel), metrics.fpr_at_tpr(known, novel)


def ours_together(known: Scores, novel: Scores) -> tuple[float, float]:
    """One sort for both, and for two more metrics on top."""
    summary = metrics.summary(known, novel)
    return summary["auroc"], summary["fpr_at_tpr"]


def theirs(known: Scores, novel: Scores) -> tuple[float, float]:
    is_known, scores = np.repeat([1, 0], [len(known), len(novel)]), -np.concatenate([known, novel])
    fpr, tpr, _ = roc_curve(is_known, scores, drop_intermediate=False)
    return float(roc_auc_score(is_known, scores)), float(fpr[np.argmax(tpr >= 0.95)])


RIVALS = {"openradial": ours, "openradial, summary": ours_together, "scikit-learn": theirs}


def measure_scores(name: str, make: Callable[[int], tuple[Scores, Scores]], size: int, rounds: int) -> dict[str, Any]:
    """Seconds of each rival, and how far their results are apart."""
    known, novel = make(size)
    values = {rival: run(known, novel) for rival, run in RIVALS.items()}
    difference = max(np.abs(np.subtract(each, values["scikit-learn"])).max() for each in values.values())
    assert difference <= TOLERANCE, values
    timings = duel({rival: partial(run, known, novel) for rival, run in RIVALS.items()}, rounds=rounds)
    return {
        "kind": name,
        "scores": len(known) + len(novel),
        "auroc": values["openradial"][0],
        "fpr_at_tpr_0.95": values["openradial"][1],
        "largest_difference": float(difference),
        "seconds": {rival: timing.as_dict() for rival, timing in timings.items()},
        "at_most_s": AT_MOST,
    }


def measure_bootstrap(samples: int, rounds: int) -> dict[str, Any]:
    """The interval of an AUROC, and the time with a sort for each sample."""
    known, novel = normal(RESAMPLED, np.float64)
    fast = partial(metrics.bootstrap, metrics.auroc, known, novel, samples=samples)
    timings = duel({"counts": fast, "sorting": partial(fast, groups=(0, 1))}, rounds=rounds)
    return {
        "scores": RESAMPLED,
        "samples": samples,
        "seconds": {name: timing.as_dict() for name, timing in timings.items()},
        "at_most_s": BOOTSTRAP_AT_MOST,
    }


def environment() -> dict[str, Any]:
    return machine(" ".join(["python -m benchmarks.metrics", *sys.argv[1:]])) | {
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
        "seed": SEED,
        "load_average_at_start": os.getloadavg()[1],
    }


def markdown(results: dict[str, Any]) -> str:
    env, drawn = results["environment"], results["bootstrap"]
    rows = [
        [
            case["kind"],
            f"{case['scores']:,}",
            *(f"{case['seconds'][rival]['median_s']:.2f}" for rival in RIVALS),
            "yes" if case["seconds"]["openradial"]["median_s"] <= case["at_most_s"] else "NO",
        ]
        for case in results["scores"]
    ]
    spent = drawn["seconds"]["counts"]["median_s"]
    lines = [
        f"Written by `{env['command']}` on {env['date']}: {env['cpu']}, {env['cores']} cores, NumPy {env['numpy']}, "
        f"scikit-learn {env['scikit-learn']}, Python {env['python']}, seed {env['seed']}; medians of "
        f"{drawn['seconds']['counts']['rounds']} rounds, the rivals in turn. Load average at the start "
        f"{env['load_average_at_start']:.1f}, at the end {env['load_average_at_end']:.1f}.",
        "",
        "**AUROC and FPR at 95 % TPR**, in seconds. *summary* sorts once for both and adds both AUPR; scikit-learn is "
        "`roc_auc_score` and `roc_curve`. Results differ by at most "
        f"{max(case['largest_difference'] for case in results['scores']):.0e}.",
        "",
        *table(["scores", "number", *RIVALS, f"at most {AT_MOST:g} s"], rows),
        "",
        f"**Bootstrap**: the interval of an AUROC of {drawn['scores']:,} scores with {drawn['samples']:,} samples "
        f"takes {spent:.2f} s (at most {drawn['at_most_s']:g} s: {'yes' if spent <= drawn['at_most_s'] else 'NO'}); "
        f"a sort for each sample takes {drawn['seconds']['sorting']['median_s']:.2f} s.",
    ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
