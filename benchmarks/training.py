"""Training speed: epochs of the MNIST CNN beside a DataLoader loop, one step of VGG-19-BN-8192, small fits by threads.

python -m benchmarks.training                  writes benchmarks/results/training.{json,md} and threads.{json,md}
python -m benchmarks.training --only threads   writes benchmarks/results/threads.{json,md}
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from rich.console import Console
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import openradial
from benchmarks.run import RESULTS, environment, table
from openradial import models
from openradial.data import Batches, Normalise, load
from openradial.files import write_text
from openradial.training import Objective, Settings, devices, fit, limited_threads
from paper.networks import vgg19_bn_fc8192

MEAN, STD, BATCH, EPOCHS = 0.1307, 0.3081, 1024, 4
LIMIT = 1.5
STEPS, TOLERANCE = 20, 1e-5  # steps over which losses must agree, relative; after hundreds, rounding has grown


class UsualDataset(Dataset[tuple[Tensor, int]]):
    """MNIST as most programs have it: an image object per example, converted and normalised one by one."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images.numpy(), labels.tolist()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = Image.fromarray(self.images[index, 0])
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(1, 28, 28)
        return pixels.float().div(255).sub(MEAN).div(STD), self.labels[index]


class SameOrder:
    """Our order of an epoch for a DataLoader, so that both loops see the same batches."""

    def __init__(self, batches: Batches) -> None:
        self.batches, self.epoch = batches, 0

    def __iter__(self) -> Iterator[list[int]]:
        order = self.batches.order(self.epoch)
        assert order is not None
        self.epoch += 1
        return (part.tolist() for part in order.split(BATCH))

    def __len__(self) -> int:
        return len(self.batches)


def network() -> nn.Module:
    torch.manual_seed(0)
    return models.build("mnist_radial", 10)


def ours(batches: Batches, epochs: int = EPOCHS) -> tuple[list[float], list[float]]:
    """Seconds and mean losses of the epochs."""
    settings = Settings(epochs=epochs, batch_size=BATCH, learning_rate=1e-3)
    history = fit(network(), Objective(openradial.RadialLoss()), batches, settings=settings, show_progress=False)
    return [r["seconds"] for r in history.records], [r["loss"] for r in history.records]


def usual(batches: Batches, workers: int, epochs: int = EPOCHS) -> tuple[list[float], list[float]]:
    net, loss = network(), openradial.RadialLoss()
    optimiser = torch.optim.Adam(net.parameters(), 1e-3)
    dataset = UsualDataset(batches.examples.inputs, batches.labels)
    loader = DataLoader(dataset, batch_sampler=SameOrder(batches), num_workers=workers, persistent_workers=workers > 0)
    seconds, losses = [], []
    for _ in range(epochs):
        began, total = time.perf_counter(), 0.0
        for x, y in loader:
            optimiser.zero_grad()
            value = loss(net(x), y)
            value.backward()
            optimiser.step()
            total += value.item() * len(y)
        seconds.append(time.perf_counter() - began)
        losses.append(total / len(dataset))
    return seconds, losses


def mnist_epochs(console: Console) -> dict[str, Any]:
    batches = Batches(load("mnist"), BATCH, shuffle=True, seed=0, transform=Normalise(MEAN, STD))
    runs = {"openradial": lambda: ours(batches)}
    runs |= {f"DataLoader, {n} workers": lambda n=n: usual(batches, n) for n in (0, 2)}  # type: ignore[misc]
    measured: dict[str, Any] = {}
    for name, run in runs.items():
        with console.status(f"MNIST CNN, {EPOCHS} epochs: {name}"):
            seconds, losses = run()
        measured[name] = {"seconds": statistics.median(seconds[1:]), "epochs": seconds, "losses": losses}
    best = min(measured[name]["seconds"] for name in runs if name != "openradial")
    mine = measured["openradial"]
    few = Batches(
        batches.examples.select(torch.arange(STEPS * BATCH)), BATCH, shuffle=True, transform=batches.transform
    )
    (a,), (b,) = ours(few, 1)[1], usual(few, 0, 1)[1]
    apart = abs(a - b) / b
    return {"runs": measured, "ratio": best / mine["seconds"], "at_least": LIMIT, "largest_difference": apart}


def vgg_step(batch: int) -> dict[str, float]:
    """Return seconds and peak memory of one training step, measured in a separate process."""
    command = [sys.executable, "-m", "benchmarks.training", "--step", str(batch)]
    step: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return step


def take_step(batch: int) -> None:
    torch.manual_seed(0)
    net, loss = vgg19_bn_fc8192(1000).train(), openradial.RadialLoss()
    optimiser = torch.optim.Adam(net.parameters(), 1e-4, fused=True)
    x, y, seconds = torch.randn(batch, 3, 224, 224), torch.randint(1000, (batch,)), []
    for _ in range(3):
        began = time.perf_counter()
        optimiser.zero_grad()
        loss(net(x), y).backward()
        optimiser.step()
        seconds.append(time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"batch": batch, "seconds": min(seconds[1:]), "peak_bytes": peak}))


def small_fit(hidden: int, threads: int, epochs: int) -> None:
    """Fit an MLP 64-hidden-hidden-10 on the digits, batch 64, and print the seconds; 0 threads: as fit chooses."""
    if threads:
        devices.ONE_THREAD_BELOW = 0  # keep the number of threads that is set here
    torch.manual_seed(0)
    net = models.build("mlp", 10, inputs=64, hidden=(hidden, hidden))
    batches = Batches(load("digits"), 64, shuffle=True, seed=0, transform=Normalise(0.3, 0.4))
    objective = Objective(openradial.RadialLoss())
    with limited_threads(threads or torch.get_num_threads()):
        for number in (1, epochs):  # the first warms up
            settings = Settings(epochs=number, batch_size=64)
            began = time.perf_counter()
            history = fit(net, objective, batches, settings=settings, show_progress=False)
            seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "steps": history.records[-1]["step"], "loss": history.records[-1]["loss"]}))


def thread_rows(console: Console, epochs: int, rounds: int) -> dict[str, Any]:
    """Measure small fits with one thread, two threads and the chosen number, alone and beside two busy loops."""
    rows: dict[str, Any] = {}
    cases = [(100, False), (100, True), (256, False), (512, False), (512, True)]
    for hidden, busy in cases:
        samples: dict[int, list[float]] = {1: [], 2: [], 0: []}
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 if busy else 0)]
        try:
            for _ in range(rounds):
                for threads, seconds in samples.items():
                    label = f"{hidden} hidden units, {threads or 'chosen'} threads, {len(others)} busy loops"
                    command = [sys.executable, "-m", "benchmarks.training", "--small-fit"]
                    command += [str(hidden), str(threads), str(epochs)]
                    with console.status(label):
                        done = subprocess.run(command, capture_output=True, text=True, check=True)
                    step = json.loads(done.stdout)
                    seconds.append(1000 * step["seconds"] / step["steps"])
        finally:
            for other in others:
                other.kill()
                other.wait()
        rows[f"{hidden}, {'plus two busy loops' if busy else 'no busy loops'}"] = {
            "multiplications": 64 * hidden * hidden,
            "load_average": os.getloadavg()[0],
            "ms_per_step": {str(threads or "chosen"): statistics.median(v) for threads, v in samples.items()},
            "all_ms_per_step": {str(threads or "chosen"): v for threads, v in samples.items()},
        }
    return {"epochs": epochs, "rounds": rounds, "rows": rows}


def threads_markdown(results: dict[str, Any]) -> str:
    env, result = results["environment"], results["threads"]
    rows = [
        [
            name,
            f"{row['multiplications'] / 1e6:.1f}",
            *(f"{row['ms_per_step'][t]:.2f}" for t in ("1", "2", "chosen")),
            f"{row['load_average']:.1f}",
        ]
        for name, row in result["rows"].items()
    ]
    return "\n".join(
        [
            f"Written by `{env['command']} --only threads --epochs {result['epochs']} --rounds {result['rounds']}` on "
            f"{env['date']}: {env['cpu']}, {env['cores']} cores, torch {env['torch']}. Digits, MLP with two hidden "
            f"layers, batch 64, {result['epochs']} epochs; medians of the rounds. "
            "The last column is the machine's load average, with all other programs.",
            "",
            *table(
                [
                    "hidden units",
                    "10⁶ products",
                    "ms per step, 1 thread",
                    "2 threads",
                    "as `fit` chooses",
                    "load",
                ],
                rows,
            ),
            "",
        ]
    )


def markdown(results: dict[str, Any]) -> str:
    env, mnist, step = results["environment"], results["mnist"], results["vgg"]
    rows = [[name, f"{run['seconds']:.2f}", f"{run['losses'][-1]:.5f}"] for name, run in mnist["runs"].items()]
    answer = "yes" if mnist["ratio"] >= LIMIT and mnist["largest_difference"] <= TOLERANCE else "NO"
    return "\n".join(
        [
            f"Written by `{env['command']}` on {env['date']}: {env['cpu']}, {env['cores']} cores, "
            f"torch {env['torch']}.",
            "",
            *table([f"MNIST CNN, batch {BATCH}", "seconds per epoch, median", f"loss of epoch {EPOCHS}"], rows),
            "",
            f"The faster DataLoader loop / openradial: **{mnist['ratio']:.2f}** (at least {LIMIT}: {answer}), at equal "
            f"results: over {STEPS} steps the mean losses differ by {mnist['largest_difference']:.1e}, relative. Over "
            "whole epochs rounding grows, also between two runs of the same loop on two threads: see the last column.",
            "",
            f"One training step of VGG-19-BN with FC-8192 (300,874,536 parameters, 1000 classes, 224 px, Adam, batch "
            f"{step['batch']}): {step['seconds']:.1f} s, {step['peak_bytes'] / 1e9:.1f} GB of memory at most.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument("--step", type=int, help="take one step of VGG with this batch and print its cost")
    parser.add_argument("--small-fit", type=int, nargs=3, metavar=("HIDDEN", "THREADS", "EPOCHS"))
    parser.add_argument("--only", choices=["threads"])
    parser.add_argument("--epochs", type=int, default=20, help="of the small fits")
    parser.add_argument("--rounds", type=int, default=3, help="of the small fits")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.step:
        take_step(options.step)
        return
    if options.small_fit:
        small_fit(*options.small_fit)
        return
    console = Console()
    results: dict[str, Any] = {"environment": environment("python -m benchmarks.training")}
    threads = results | {"threads": thread_rows(console, options.epochs, options.rounds)}
    write_text(options.out / "threads.json", json.dumps(threads, indent=1) + "\n")
    write_text(options.out / "threads.md", threads_markdown(threads))
    console.print(threads_markdown(threads))
    if options.only:
        return
    results["mnist"] = mnist_epochs(console)
    with console.status("one step of VGG-19-BN-8192"):
        results["vgg"] = vgg_step(16)
    write_text(options.out / "training.json", json.dumps(results, indent=1) + "\n")
    write_text(options.out / "training.md", markdown(results))
    console.print(markdown(results))


if __name__ == "__main__":
    main()
