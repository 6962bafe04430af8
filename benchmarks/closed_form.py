"""Measure the head that is solved in closed form and write benchmarks/results/closed_form.{json,md}.

python -m benchmarks.closed_form [--only fit stream predict add_class rates] [--quick]

Points that are not measured again stay in the file. The exit code is 1 if a limit does not hold.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sklearn
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeClassifierCV
from torch import Tensor
from torch.nn import functional as F

from benchmarks.closed_form_rates import measure_rates
from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from benchmarks.timing import Run, Timing, duel
from openradial.classifier import OpenClassifier
from openradial.files import write_text as write
from openradial.fitting.closed_form import calibrate_cross, with_scorers
from openradial.fitting.cross import FeatureSet
from openradial.heads import ClosedFormRadialHead
from openradial.heads.ridge import RidgePath, alphas, solve
from openradial.models.features import Features
from openradial.recipe import REFERENCES, Recipe, closed_form_recipe
from openradial.scorers import Combination, NeighbourScorer

EXAMPLES, SIZE, CLASSES = 15_000, 512, 150
RANDOM_FEATURES = 2_000
FIT_LIMITS = {  # (ours, rival): times the rival's time. All limits were set before measuring.
    ("closed form", "LogisticRegression"): 0.4,
    ("closed form", "RidgeClassifierCV"): 1.5,
    ("2,000 random features", "LogisticRegression"): 2.0,
}
STREAMED, CHUNK, MOST_MEMORY = 1_000_000, 10_000, 1e9
BATCHES = ((1, 512, 150), (256, 512, 150), (4096, 512, 150), (256, 1280, 1000))  # rows, features, classes
JUDGED, PRODUCT_LIMIT = ((4096, 512, 150), (256, 1280, 1000)), 1.2  # times one matrix product
ADDED, KNOWN_CLASSES, ADD_SIZES = 100, 1_000, (512, 1280)
ADD_LIMIT, ADD_ERROR = 1.0, 1e-6  # seconds; relative to the largest weight of a fresh fit


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.closed_form", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=tuple(POINTS), default=tuple(POINTS), help="points to measure")
    parser.add_argument("--quick", action="store_true", help="few rounds and rows; for trying it out, not for the docs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument("--stream", type=int, help=argparse.SUPPRESS)  # in a process of its own
    options = parser.parse_args()
    if options.stream:
        print(json.dumps(stream(options.stream)))
        return 0
    path = options.out / "closed_form.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    for name in options.only:
        results[name] = {"environment": environment(name), **POINTS[name](options.quick)}
        print(f"{name}: " + json.dumps(results[name], indent=1))
    options.out.mkdir(parents=True, exist_ok=True)
    write(path, json.dumps(results, indent=1) + "\n")
    write(options.out / "closed_form.md", markdown(results))
    print((options.out / "closed_form.md").read_text())
    return int(any(not verdict["holds"] for name in options.only for verdict in results[name]["verdicts"]))


def environment(name: str) -> dict[str, Any]:
    return machine(f"python -m benchmarks.closed_form --only {name}") | {
        "sklearn": sklearn.__version__,
        "threads": torch.get_num_threads(),
        "load_average": os.getloadavg()[0],
    }


def verdict(what: str, value: float, limit: float, unit: str = "x", least: float = 0.0) -> dict[str, Any]:
    return {
        "what": what,
        "value": value,
        "at_least": least,
        "at_most": limit,
        "unit": unit,
        "holds": least <= value <= limit,
    }


def features(n: int, d: int, k: int, seed: int = 0, *, rank: int = 36, noise: float = 1.1) -> tuple[Tensor, Tensor]:
    """Draw features of unit length, like those of a network: classes differ in few directions, with noise in all."""
    generator = torch.Generator().manual_seed(0)
    basis, means = torch.randn(rank, d, generator=generator), torch.randn(k, rank, generator=generator)
    generator.manual_seed(seed + 1)
    y = torch.randint(k, (n,), generator=generator)
    y[: min(n, k)] = torch.arange(min(n, k))  # each class has an example
    z = (means[y] + noise * torch.randn(n, rank, generator=generator)) @ basis
    z += 0.5 * rank**0.5 * torch.randn(n, d, generator=generator)
    return F.normalize(z, dim=1), y


def measure_fit(quick: bool) -> dict[str, Any]:
    """Time the whole fit: alpha by the leave-one-out error, the solution, and the calibration."""
    z, y = features(EXAMPLES // 10 if quick else EXAMPLES, SIZE, CLASSES)
    test = features(5_000, SIZE, CLASSES, seed=1)
    head_only = Recipe(method="closed-form")  # its score is the radial distance
    random = Recipe(method="closed-form", random_features=RANDOM_FEATURES)
    recipe = closed_form_recipe("points", len(z))  # with Mahalanobis distance and nearest neighbour
    fits: dict[str, Run] = {
        "closed form": lambda: fit(z, y, head_only),
        "2,000 random features": lambda: fit(z, y, random),
        "closed form, all scores": lambda: fit(z, y, recipe),
        "LogisticRegression": lambda: LogisticRegression(max_iter=10_000).fit(z.numpy(), y.numpy()),
        "LogisticRegression, tol=1e-6": lambda: LogisticRegression(tol=1e-6, max_iter=10_000).fit(z.numpy(), y.numpy()),
        "RidgeClassifierCV": lambda: RidgeClassifierCV().fit(z.numpy(), y.numpy()),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        timings = duel(fits, rounds=2 if quick else 3)
        accuracy = {name: score(run(), *test) for name, run in fits.items()}
    verdicts = [
        verdict(f"{ours} / {rival}", timings[ours].fastest / timings[rival].fastest, limit)
        for (ours, rival), limit in FIT_LIMITS.items()
    ]
    return {
        "examples": len(z),
        "seconds": {name: timing.as_dict() for name, timing in timings.items()},
        "accuracy": accuracy,
        "profile": {name: profile(z, y, count) for name, count in (("features", 0), ("random", RANDOM_FEATURES))},
        "verdicts": verdicts,
    }


def fit(z: Tensor, y: Tensor, recipe: Recipe) -> OpenClassifier:
    """Fit head and scorers, choose alpha and calibrate by cross-fitting."""
    known, classes = FeatureSet(z, y), tuple(map(str, range(CLASSES)))
    head = recipe.make_closed_form_head(classes, z.shape[1]).fit(z, y)
    model = with_scorers(Features(z.shape[1]), head, recipe, known)
    return calibrate_cross(model, recipe, 0.05, known)[0]


def score(model: Any, z: Tensor, y: Tensor) -> float:
    if isinstance(model, OpenClassifier | ClosedFormRadialHead):
        predicted = (model.head if isinstance(model, OpenClassifier) else model).predict(z)
    else:
        predicted = torch.from_numpy(model.predict(z.numpy()))
    return float((predicted == y).double().mean())


def profile(z: Tensor, y: Tensor, random_features: int) -> dict[str, float]:
    """Return the seconds of each step of a fit."""
    head = ClosedFormRadialHead(CLASSES, z.shape[1], random_features=random_features)
    seconds: dict[str, float] = {}

    def step(name: str, run: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        made = run()
        seconds[name] = time.perf_counter() - start
        return made

    step("fit, with alpha", lambda: head.fit(z, y))
    if random_features:
        step("  of that: width", lambda: head._choose_width(z, y))
    step("  of that: sums", lambda: head.sums_of(z, y))
    step("  of that: alpha", lambda: head._best_alpha(z, y, head._kept_alpha))
    path = step("    of that: eigendecomposition", lambda: RidgePath.of(head.sums.statistics))
    alpha = alphas(head.sums.statistics)[10]
    rows = step("    expanding 1,000 rows", lambda: head.expand(z[:1_000]))
    projected = step("    projecting them", lambda: path.project(rows))
    step("    leave-one-out of one alpha", lambda: path.leave_one_out(projected, y[:1_000], alpha))
    step("one Cholesky solution", lambda: solve(head.sums.statistics, alpha))
    recipe, known = Recipe(method="closed-form", random_features=random_features), FeatureSet(z, y)
    model = OpenClassifier(Features(z.shape[1]), head)
    step("calibration by cross-fitting", lambda: calibrate_cross(model, recipe, 0.05, known))
    step("leave-one-out outputs of all examples", lambda: head.leave_one_out(z, y))
    return seconds


def measure_stream(quick: bool) -> dict[str, Any]:
    """Stream examples in a process of its own, and take its peak memory."""
    rows = STREAMED // 50 if quick else STREAMED
    command = [sys.executable, "-m", "benchmarks.closed_form", "--stream", str(rows)]
    made: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return made | {
        "verdicts": [verdict("peak memory of a million rows", made["peak_bytes"] / 1e9, MOST_MEMORY / 1e9, "GB")]
    }


def stream(rows: int) -> dict[str, Any]:
    head = ClosedFormRadialHead(CLASSES, SIZE)
    seconds = 0.0
    for at in range(0, rows, CHUNK):
        z, y = features(CHUNK, SIZE, CLASSES, seed=at)
        start = time.perf_counter()
        head.partial_fit(z, y)
        seconds += time.perf_counter() - start
    start = time.perf_counter()
    head.solve()
    z, y = features(5_000, SIZE, CLASSES, seed=rows)
    return {
        "rows": rows,
        "partial_fit_s": seconds,
        "solve_s": time.perf_counter() - start,
        "accuracy": score(head, z, y),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def measure_predict(quick: bool) -> dict[str, Any]:
    """Time a prediction beside one matrix product of the same size and the neighbour search."""
    cases, verdicts = [], []
    for rows, d, k in BATCHES:
        head = ClosedFormRadialHead(k, d, alpha=1.0).partial_fit(*features(4 * k, d, k)).solve()
        near = NeighbourScorer(1, normalise=True).fit(features(REFERENCES, d, k, seed=2)[0])
        model = OpenClassifier(
            Features(d), head, scorers=[("outputs", head), ("outputs", near)], combination=Combination("standardised")
        )
        model.fit_combination([features(1_000, d, k, seed=3)[0]])
        timings = time_prediction(model, near, features(rows, d, k, seed=1)[0], 3 if quick else 15)
        ratio = timings["prediction"].fastest / timings["product and search"].fastest
        cases.append({"rows": rows, "d": d, "k": k, "ratio": ratio, **{n: t.as_dict() for n, t in timings.items()}})
        if (rows, d, k) in JUDGED:
            what = f"prediction / matrix product and neighbour search, {rows} x {d}, {k} classes"
            verdicts.append(verdict(what, ratio, PRODUCT_LIMIT))
    return {"cases": cases, "verdicts": verdicts}


@torch.no_grad()
def time_prediction(model: OpenClassifier, near: NeighbourScorer, z: Tensor, rounds: int) -> dict[str, Timing]:
    weight, bias = torch.randn(model.head.num_classes, z.shape[1]), torch.randn(model.head.num_classes)
    rivals: dict[str, Run] = {
        "product": lambda: torch.addmm(bias, z, weight.T),
        "head": lambda: model.head.compute(z),
        "product and search": lambda: (torch.addmm(bias, z, weight.T), near.unknown_score(z)),
        "prediction": lambda: model.decide(z),
    }
    return duel(rivals, rounds=rounds)


def measure_add_class(quick: bool) -> dict[str, Any]:
    """Time adding a class to many, with the solution, and compare with a fresh fit."""
    verdicts, cases = [], []
    for d in ADD_SIZES:
        z, y = features(20 * KNOWN_CLASSES, d, KNOWN_CLASSES)
        new = features(ADDED, d, 1, seed=7)[0]
        seconds = []
        for _ in range(1 if quick else 3):
            head = ClosedFormRadialHead(KNOWN_CLASSES, d, alpha=1.0).partial_fit(z, y).solve()
            start = time.perf_counter()
            head.add_class("new", new).solve()
            seconds.append(time.perf_counter() - start)
        names = [*map(str, range(KNOWN_CLASSES)), "new"]
        both, labels = torch.cat([z, new]), torch.cat([y, torch.full((ADDED,), KNOWN_CLASSES)])
        fresh = ClosedFormRadialHead(names, d, alpha=1.0).partial_fit(both, labels).solve()
        error = largest_difference(head, fresh)
        cases.append({"d": d, "seconds": min(seconds), "error": error})
        verdicts.append(verdict(f"adding a class to {KNOWN_CLASSES:,}, d = {d:,}", min(seconds), ADD_LIMIT, "s"))
        verdicts.append(verdict(f"its difference to a fresh fit, d = {d:,}", error, ADD_ERROR, ""))
    return {"cases": cases, "verdicts": verdicts}


def largest_difference(head: ClosedFormRadialHead, fresh: ClosedFormRadialHead) -> float:
    mine, theirs = (each.tensors()["weight"] for each in (head, fresh))
    return float((mine - theirs).abs().max() / theirs.abs().max())


def rates(quick: bool) -> dict[str, Any]:
    rows = measure_rates(5 if quick else 200)
    verdicts = [
        verdict(f"false-reject rate at {row['rate']:g}, {row['set']}", row["mean"], 0.06, "", 0.04) for row in rows
    ]
    return {"sets": rows, "verdicts": verdicts}


POINTS: dict[str, Callable[[bool], dict[str, Any]]] = {
    "fit": measure_fit,
    "stream": measure_stream,
    "predict": measure_predict,
    "add_class": measure_add_class,
    "rates": rates,
}


def markdown(results: dict[str, Any]) -> str:
    lines = []
    for name in POINTS:
        if name not in results:
            continue
        point = results[name]
        env = point["environment"]
        lines += [
            f"Written by `{env['command']}` on {env['date']}: {env['cpu']}, {env['threads']} threads, torch "
            f"{env['torch']}, scikit-learn {env['sklearn']}; load average {env['load_average']:.1f}.",
            "",
            *table(["point", "measured", "limit", "holds"], [cells(each) for each in point["verdicts"]]),
            "",
            *TABLES[name](point),
            "",
        ]
    return "\n".join(lines)


def cells(verdict: dict[str, Any]) -> list[str]:
    least = f"{verdict['at_least']:g} to " if verdict["at_least"] else ""
    limit = f"{least}{verdict['at_most']:g} {verdict['unit']}".strip()
    return [
        verdict["what"],
        f"{verdict['value']:.3g} {verdict['unit']}".strip(),
        limit,
        "yes" if verdict["holds"] else "NO",
    ]


def fit_lines(point: dict[str, Any]) -> list[str]:
    rows = [
        [name, f"{seconds['fastest_s']:.2f}", f"{seconds['median_s']:.2f}", f"{point['accuracy'][name]:.3f}"]
        for name, seconds in point["seconds"].items()
    ]
    steps = list(dict.fromkeys(step for one in point["profile"].values() for step in one))
    profiles = [
        [step.strip(), *(f"{one[step]:.3f}" if step in one else "" for one in point["profile"].values())]
        for step in steps
    ]
    heading = f"{point['examples']:,} examples, {SIZE} features, {CLASSES} classes; test accuracy on 5,000 others."
    names = ["", "fit, fastest, s", "median, s", "accuracy"]
    return [heading, "", *table(names, rows), "", *table(["step, s", "features", "random features"], profiles)]


def stream_lines(point: dict[str, Any]) -> list[str]:
    names = ["rows", "partial_fit, s", "solve, s", "peak memory, GB", "accuracy"]
    numbers = [f"{point['partial_fit_s']:.1f}", f"{point['solve_s']:.2f}", f"{point['peak_bytes'] / 1e9:.2f}"]
    return table(names, [[f"{point['rows']:,}", *numbers, f"{point['accuracy']:.3f}"]])


def predict_lines(point: dict[str, Any]) -> list[str]:
    rows = [
        [f"{case['rows']:,} x {case['d']:,}", f"{case['k']:,}"]
        + [f"{1e3 * case[name]['fastest_s']:.3f}" for name in ("product", "head", "product and search", "prediction")]
        + [f"{case['ratio']:.2f}"]
        for case in point["cases"]
    ]
    names = ["one matrix product, ms", "head alone, ms", "product and neighbour search, ms", "prediction, ms", "ratio"]
    return [f"{REFERENCES:,} references.", "", *table(["batch", "classes", *names], rows)]


def add_lines(point: dict[str, Any]) -> list[str]:
    rows = [[f"{case['d']:,}", f"{case['seconds']:.3f}", f"{case['error']:.1e}"] for case in point["cases"]]
    return table(["features", "adding a class and solving, s", "relative difference to a fresh fit"], rows)


def rate_lines(point: dict[str, Any]) -> list[str]:
    keys = ("mean", "std", "low", "high", "accuracy")
    rows = [[row["set"], str(row["splits"]), *(f"{row[key]:.4f}" for key in keys)] for row in point["sets"]]
    names = ["set", "splits", "mean rate", "standard deviation", "5th percentile", "95th percentile", "accuracy"]
    return table(names, rows)


TABLES: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "fit": fit_lines,
    "stream": stream_lines,
    "predict": predict_lines,
    "add_class": add_lines,
    "rates": rate_lines,
}


if __name__ == "__main__":
    sys.exit(main())
