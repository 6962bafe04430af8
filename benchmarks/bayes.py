"""Measure Bayesian networks and write benchmarks/results/bayes.{json,md}: their speed and their predictions.

The speed part times :func:`openradial.bayes.predict` beside a loop of forward passes. The spiral part trains Bayesian
networks as the paper does, ten seeds each, and asks them about training points and about points far away.
``python -m benchmarks.bayes``, with ``--quick`` in quick mode; ``--only speed`` or ``--only spiral`` for one part. What
the spiral part has finished is stored in ``--work``, and a stopped run resumes.
"""

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn
from torch.func import functional_call

from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from benchmarks.timing import Run, duel
from openradial import RadialLoss
from openradial.bayes import ElboObjective, MCDropout, SampledPrediction, posterior, predict, to_bayesian
from openradial.bayes.layers import START
from openradial.data.sets.spiral import spiral
from openradial.files import write_text
from openradial.heads import RadialHead
from openradial.models import MLP, build
from openradial.training import Objective, Settings
from paper.ensemble_training import train_ensemble

Cases = dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]
COMMAND = "python -m benchmarks.bayes"
POINTS = spiral(2000)
FAR = {
    radius: radius * torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]]) for radius in (2.0, 3.0, 5.0)
}
PAPER = Settings(epochs=3000, batch_size=50, optimiser="rmsprop", learning_rate=5e-4, decay=0.9)
SHORT = replace(PAPER, epochs=150, learning_rate=2e-3)
STARTS = (0.001, 0.005, 0.02, 0.1, 0.3)  # deviations of all weights before training
BATCHES, SAMPLES = 40, 100
LEAST_ACCURACY, LEAST_SEEDS = 0.97, 0.9
# network, its shape of inputs, classes, samples, at least so many times faster, and for which numbers of inputs
SPEED = [
    ("spiral_radial", (2,), 3, 100, 5.0, (2, 4, 50)),
    ("spiral_radial", (2,), 3, 100, None, (200, 2000)),
    ("spiral_softmax", (2,), 3, 100, 5.0, (2, 4, 50)),
    ("mnist_radial", (1, 28, 28), 10, 20, 1.5, (1, 10, 100)),
]
BAYESIAN: dict[str, tuple[str, float, tuple[int, ...]]] = {
    "radial, beta 1": ("radial", 1.0, (50, 50, 50)),
    "radial, beta 5": ("radial", 5.0, (50, 50, 50)),
    "radial, beta 20": ("radial", 20.0, (50, 50, 50)),
    "softmax": ("softmax", 1.0, (50, 50, 50)),
    "softmax, 2 hidden units": ("softmax", 1.0, (50, 50, 2)),
}
OTHERS = ("radial", "softmax")


def main() -> None:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="few rounds and epochs; for trying it out, not for the docs"
    )
    parser.add_argument("--only", choices=("speed", "spiral"), help="one part")
    parser.add_argument("--work", type=Path, default=Path("runs/bayes"), help="folder for what is finished")
    parser.add_argument("--jobs", type=int, default=2, help="processes that train at the same time")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    options = parser.parse_args()
    console, results = Console(), kept_results(options.out / "bayes.json", options.only)
    if options.only != "spiral":
        results["speed"] = {"rows": measure_speed(3 if options.quick else 15, console), "environment": environment()}
    if options.only != "speed":
        seeds = list(range(2 if options.quick else 10))
        short, long = (replace(SHORT, epochs=4), replace(PAPER, epochs=20)) if options.quick else (SHORT, PAPER)
        made = run_cases(start_cases(short, seeds) | spiral_cases(long, seeds), options.work, options.jobs, console)
        results["start"] = start_results(made, short)
        results["spiral"] = spiral_results(made, long, seeds) | {"environment": environment()}
    options.out.mkdir(parents=True, exist_ok=True)
    write_text(options.out / "bayes.json", json.dumps(results, indent=1) + "\n")
    text = markdown(results)
    write_text(options.out / "bayes.md", text)
    console.print(text, markup=False)
    console.print(f"written: {options.out}/bayes.json, bayes.md")


def kept_results(path: Path, only: str | None) -> dict[str, Any]:
    """The part that is not measured this time, as it was."""
    return json.loads(path.read_text()) if only and path.exists() else {}


def environment() -> dict[str, Any]:
    return machine(COMMAND) | {
        "samples": SAMPLES,
        "points": len(POINTS),
        "settings": PAPER.as_dict(),
        "load_average": os.getloadavg()[1],  # of 5 minutes, at the end
    }


def measure_speed(rounds: int, console: Console) -> list[dict[str, Any]]:
    rows = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for name, shape, classes, samples, limit, counts in SPEED:
            for count in counts:
                with console.status(f"{name}, {count} inputs, {threads} threads"):
                    row = {"network": name, "inputs": count, "samples": samples, "threads": threads, "at_least": limit}
                    rows.append(row | race(name, shape, classes, samples, count, rounds))
    return rows


def race(name: str, shape: tuple[int, ...], classes: int, samples: int, count: int, rounds: int) -> dict[str, Any]:
    """Both sides draw their weights, run the network and make log-probabilities."""
    torch.manual_seed(0)
    network, x = to_bayesian(build(name, classes)).train(), torch.randn(count, *shape)
    head = RadialHead(classes).log_probs if name.endswith("radial") else nn.LogSoftmax(-1)

    @torch.no_grad()
    def loop() -> Tensor:
        return torch.stack([head(network(x)) for _ in range(samples)])

    rivals: dict[str, Run] = {"loop": loop, "predict": lambda: predict(network, x, samples, head=head)}
    timings = duel(rivals, rounds=rounds)
    return {
        "seconds": {rival: timing.as_dict() for rival, timing in timings.items()},
        "ratio": timings["loop"].median / timings["predict"].median,
        "largest_difference": difference(network, x, samples, head),
    }


@torch.no_grad()
def difference(network: nn.Module, x: Tensor, samples: int, head: Callable[[Tensor], Tensor]) -> float:
    """Between log-probabilities of the one pass and of a loop with the same weights."""
    predicted = predict(network, x, samples, head=head, seed=0).log_probs
    network.eval()
    torch.manual_seed(0)
    q = posterior(network)
    alone = torch.stack([head(functional_call(network, q.named(row), (x,))) for row in q.draw(samples)])
    network.train()
    return float((predicted - alone).abs().max())


def spiral_cases(settings: Settings, seeds: list[int]) -> Cases:
    """Bayesian networks of several heads and betas; then ensembles and dropout of the same networks."""
    cases: Cases = {f"Bayesian, {kind}": (bayesian, (*case, settings, seeds)) for kind, case in BAYESIAN.items()}
    return cases | {f"others, {head}": (others, (head, settings, seeds)) for head in OTHERS}


def spiral_results(made: dict[str, Any], settings: Settings, seeds: list[int]) -> dict[str, Any]:
    kinds = {name: made[name] for name in made if name.startswith("Bayesian")}
    for head in OTHERS:
        kinds |= made[f"others, {head}"]
    return {"epochs": settings.epochs, "seeds": seeds, "far": list(FAR), "kinds": kinds}


def run_cases(cases: Cases, work: Path, jobs: int, console: Console) -> dict[str, Any]:
    """The result of each case, several at the same time; those that were finished before are read."""
    kept = {name: work / f"{name.replace(', ', '-').replace(' ', '-')}.json" for name in cases}
    missing = [name for name in cases if not kept[name].exists()]
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        running = {
            pool.submit(function, *arguments): name for name, (function, arguments) in cases.items() if name in missing
        }
        for done in as_completed(running):
            write_text(kept[running[done]], json.dumps(done.result()) + "\n")
            console.print(f"finished: {running[done]}")
    return {name: json.loads(kept[name].read_text()) for name in cases}


def parts(head: str, beta: float) -> tuple[Callable[[Tensor, Tensor], Tensor], nn.Module]:
    """The loss and the head of a network on the spiral."""
    return (
        (RadialLoss(beta=beta), RadialHead(3, beta=beta)) if head == "radial" else (F.cross_entropy, nn.LogSoftmax(-1))
    )


def start_cases(settings: Settings, seeds: list[int]) -> Cases:
    """Short trainings with several deviations at the start."""
    shape = BAYESIAN["radial, beta 1"]
    return {f"start, {sigma}": (bayesian, (*shape, settings, seeds, sigma)) for sigma in STARTS}


def start_results(made: dict[str, Any], settings: Settings) -> dict[str, Any]:
    accuracies = {str(sigma): [row["accuracy"] for row in made[f"start, {sigma}"]["seeds"]] for sigma in STARTS}
    return {"settings": settings.as_dict(), "accuracies": accuracies}


def bayesian(
    head: str, beta: float, hidden: tuple[int, ...], settings: Settings, seeds: list[int], sigma: float = START
) -> dict[str, Any]:
    loss, layer = parts(head, beta)
    start = time.perf_counter()
    networks = trained(
        lambda: to_bayesian(MLP(3, inputs=2, hidden=hidden), sigma=sigma),
        ElboObjective(loss, batches=BATCHES, batch_size=settings.batch_size),
        settings,
        seeds,
    )
    seconds = time.perf_counter() - start
    return {"seconds_of_training": seconds, "seeds": [asked(network, layer) for network in networks]}


def trained(build: Callable[[], nn.Module], objective: Any, settings: Settings, seeds: list[int]) -> list[nn.Module]:
    """One network per seed, trained together."""
    return train_ensemble(
        build,
        objective,
        POINTS,
        seeds,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        decay=settings.decay,
    )[0]


def others(head: str, settings: Settings, seeds: list[int]) -> dict[str, Any]:
    """One ensemble of as many networks as there are seeds, and dropout of each of them; radial with beta 5."""
    loss, layer = parts(head, 5.0)
    plain = trained(lambda: MLP(3, inputs=2), Objective(loss), settings, seeds)
    dropped = trained(lambda: MLP(3, inputs=2, dropout=0.1), Objective(loss), settings, seeds)
    name = head if head == "softmax" else "radial, beta 5"
    return {
        f"ensemble of {len(seeds)}, {name}": {"seeds": [asked(plain, layer)]},
        f"dropout 0.1, {name}": {"seeds": [asked(MCDropout(network), layer) for network in dropped]},
    }


def asked(network: nn.Module | list[nn.Module], layer: nn.Module) -> dict[str, Any]:
    """What the networks of a prediction say about training points and about points far away."""
    near = predict(network, POINTS.inputs, SAMPLES, head=layer, seed=0)
    far = {str(radius): uncertainties(predict(network, x, SAMPLES, head=layer, seed=0)) for radius, x in FAR.items()}
    accuracy = float((near.labels == POINTS.labels).float().mean())
    return {"accuracy": accuracy, "training_points": uncertainties(near), "far": far}


def uncertainties(sampled: SampledPrediction) -> dict[str, float]:
    """Means over the points; the deviation is that over samples, at each point."""
    values = {
        "winning": sampled.winning_probs.mean(),
        "deviation": sampled.winning_probs.std(0).mean(),
        "predictive_entropy": sampled.predictive_entropy.mean(),
        "mutual_information": sampled.mutual_information.mean(),
        "missing_mass": sampled.missing_mass.mean(),
    }
    return {name: float(value) for name, value in values.items()}


def markdown(results: dict[str, Any]) -> str:
    lines: list[str] = []
    if "speed" in results:
        rows = results["speed"]["rows"]
        lines += [
            *origin(results["speed"]["environment"], "--only speed"),
            "**Prediction**: `predict` beside a loop of forward passes, both drawing their weights; milliseconds, "
            "median (middle half of the rounds).",
            "",
            *table(
                ["network", "inputs", "samples", "threads", "loop", "predict", "ratio", "at least", "holds"],
                [speed_row(row) for row in rows],
            ),
            "",
            f"Largest difference of a log-probability for equal weights: "
            f"{max(row['largest_difference'] for row in rows):.1e}.",
            "",
        ]
    if "spiral" in results:
        env = results["spiral"]["environment"]
        lines += [*origin(env, "--only spiral"), *start_lines(results["start"]), *spiral_lines(results["spiral"], env)]
    return "\n".join(lines)


def origin(env: dict[str, Any], option: str) -> list[str]:
    return [
        f"Written by `{env['command']} {option}` on {env['date']}: {env['cpu']}, {env['cores']} cores, torch "
        f"{env['torch']}, Python {env['python']}, float32. Load average at the end {env['load_average']:.1f}.",
        "",
    ]


def speed_row(row: dict[str, Any]) -> list[str]:
    times = [
        "{:.2f} ({:.2f}–{:.2f})".format(*(1e3 * timing[key] for key in ("median_s", "quartile_1_s", "quartile_3_s")))
        for timing in row["seconds"].values()
    ]
    limit = row["at_least"]
    holds = "" if limit is None else "yes" if row["ratio"] >= limit else "NO"
    counts = [str(row[key]) for key in ("inputs", "samples", "threads")]
    return [row["network"], *counts, *times, f"{row['ratio']:.1f}", f"{limit or ''}", holds]


def start_lines(result: dict[str, Any]) -> list[str]:
    settings = result["settings"]
    rows = [
        [
            sigma,
            f"{min(values):.3f}",
            f"{max(values):.3f}",
            f"{sum(v >= LEAST_ACCURACY for v in values)} of {len(values)}",
        ]
        for sigma, values in result["accuracies"].items()
    ]
    return [
        f"**Start**: the spiral, radial, beta 1, after {settings['epochs']} epochs of RMSprop "
        f"{settings['learning_rate']:g}; accuracy of the mean prediction on the training points.",
        "",
        *table(["deviation at the start", "lowest", "highest", f"seeds with at least {LEAST_ACCURACY}"], rows),
        "",
    ]


def spiral_lines(result: dict[str, Any], env: dict[str, Any]) -> list[str]:
    lines = [
        f"**Spiral**: {env['points']:,} points, {result['epochs']:,} epochs of 40 batches of 50, RMSprop 5e-4, M = 40, "
        f"the paper's prior, {len(result['seeds'])} seeds, {env['samples']} samples. Accuracy of the mean prediction "
        "on the training points, and the winning probability there: means over seeds.",
        "",
        *table(
            [
                "",
                "accuracy, lowest",
                "highest",
                f"seeds with at least {LEAST_ACCURACY}",
                "holds",
                "winning probability",
            ],
            [accuracy_row(kind, case["seeds"]) for kind, case in result["kinds"].items()],
        ),
        "",
    ]
    for radius in result["far"]:
        header = [
            "",
            "winning probability",
            "its deviation over samples",
            "missing mass",
            "entropy",
            "mutual information",
        ]
        rows = [far_row(kind, case["seeds"], str(radius)) for kind, case in result["kinds"].items()]
        lines += [
            f"Four points far away, (±{radius:g}, ±{radius:g}): means over points and seeds (lowest–highest seed).",
            "",
        ]
        lines += [*table(header, rows), ""]
    return lines


def accuracy_row(kind: str, seeds: list[dict[str, Any]]) -> list[str]:
    values = [row["accuracy"] for row in seeds]
    good = sum(value >= LEAST_ACCURACY for value in values)
    winning = sum(row["training_points"]["winning"] for row in seeds) / len(seeds)
    asks = kind.startswith("Bayesian, radial")
    holds = "" if not asks else "yes" if good >= LEAST_SEEDS * len(seeds) else "NO"
    return [kind, f"{min(values):.4f}", f"{max(values):.4f}", f"{good} of {len(seeds)}", holds, f"{winning:.2f}"]


def far_row(kind: str, seeds: list[dict[str, Any]], radius: str) -> list[str]:
    names = ("winning", "deviation", "missing_mass", "predictive_entropy", "mutual_information")
    columns = [[row["far"][radius][name] for row in seeds] for name in names]
    first, *rest = ([sum(values) / len(values), min(values), max(values)] for values in columns)
    return [kind, "{:.2f} ({:.2f}–{:.2f})".format(*first), *(f"{values[0]:.2f}" for values in rest)]


if __name__ == "__main__":
    main()
