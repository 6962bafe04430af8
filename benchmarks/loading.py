"""Measure what loading costs and write benchmarks/results/loading.{json,md}.

python -m benchmarks.loading --tiny tiny-imagenet.tar.gz
"""

import argparse
import dataclasses
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from benchmarks.machine import machine
from benchmarks.photos import write_photos
from benchmarks.run import RESULTS, table
from openradial import RadialLayer
from openradial.data.batches import Batches, FolderBatches
from openradial.data.readers.folder import ImageFolder, scan
from openradial.data.sets.mnist import mnist
from openradial.data.transforms import Normalise
from openradial.files import write_text
from openradial.models import build
from paper.imagenet.tiny_imagenet import tiny_imagenet

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SEED = 0
AT_MOST, AT_LEAST = 0.05, 2.0  # of the epoch; times the plain loop: set before measuring


class PlainImages(Dataset[tuple[Tensor, int]]):
    """The loop that one writes first: open, convert, resize, crop, to float, normalise, one image at a time."""

    def __init__(self, folder: ImageFolder, size: int, crop: float) -> None:
        self.paths, self.labels = folder.paths, folder.labels.tolist()
        self.size, self.short = size, round(size / crop)
        self.mean, self.std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        with Image.open(self.paths[i]) as opened:
            image = opened.convert("RGB")
        if min(image.size) != self.short:
            factor = self.short / min(image.size)
            shape = (round(image.width * factor), round(image.height * factor))
            image = image.resize(shape, Image.Resampling.BILINEAR)
        if image.size != (self.size, self.size):
            left, top = (image.width - self.size) // 2, (image.height - self.size) // 2
            image = image.crop((left, top, left + self.size, top + self.size))
        x = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div_(255)
        return x.sub_(self.mean).div_(self.std), self.labels[i]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loading", description="Measure what loading costs.")
    parser.add_argument(
        "--tiny", type=Path, help="Tiny-ImageNet: its folder or archive; without it that part is left out"
    )
    parser.add_argument("--photos", type=Path, help="folder for the photographs (default: a temporary one)")
    parser.add_argument("--quick", action="store_true", help="few rounds; for trying it out, not for the docs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    options = parser.parse_args()
    rounds = 2 if options.quick else 9
    with tempfile.TemporaryDirectory() as scratch:
        photos = write_photos(options.photos or Path(scratch), 60 if options.quick else 600, SEED)
        results: dict[str, Any] = {"environment": environment(), "folders": []}
        results["mnist"] = [measure_mnist(rounds, n) for n in (2, 1)]
        for name, folder, size, batch_size, crop in folders(options.tiny, photos, options.quick):
            results["folders"] += measure_folder(name, folder, size, batch_size, crop, rounds)
    results["environment"]["load_average_at_end"] = os.getloadavg()[1]
    options.out.mkdir(parents=True, exist_ok=True)
    write_text(options.out / "loading.json", json.dumps(results, indent=1) + "\n")
    write_text(options.out / "loading.md", markdown(results))
    print((options.out / "loading.md").read_text())


def folders(tiny: Path | None, photos: Path, quick: bool) -> Iterable[tuple[str, ImageFolder, int, int, float]]:
    if tiny is not None:
        everything = tiny_imagenet(tiny)
        drawn = torch.randperm(len(everything), generator=torch.Generator().manual_seed(SEED))[
            : 1000 if quick else 8000
        ]
        yield "Tiny-ImageNet, 64 px", subset(everything, drawn), 64, 256, 1.0
    folder = scan(photos)
    repeated = torch.arange(len(folder)).repeat(1 if quick else 3)  # longer than the start of the workers
    yield "photographs 500 x 375, at 224 px", subset(folder, repeated), 224, 64, 0.875


def subset(folder: ImageFolder, indices: Tensor) -> ImageFolder:
    return dataclasses.replace(folder, paths=[folder.paths[i] for i in indices.tolist()], labels=folder.labels[indices])


def measure_mnist(rounds: int, threads: int) -> dict[str, Any]:
    """An epoch of nothing but batches beside an epoch of training the paper's network on batches made before."""
    torch.set_num_threads(threads)
    batches = Batches(mnist("train"), 1024, shuffle=True, seed=SEED, transform=Normalise(0.1307, 0.3081))
    torch.manual_seed(SEED)
    network, head = build("mnist_radial", 10), RadialLayer(10)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    made = [(x.clone(), y) for x, y in batches.epoch(0)]

    def train() -> None:
        for x, y in made:
            optimiser.zero_grad()
            head.loss(network(x), y).backward()
            optimiser.step()

    def load() -> None:
        for _ in batches.epoch(1):
            pass

    samples: dict[str, list[float]] = {"load": [], "train": []}
    for _ in range(rounds):
        for name, run in (("load", load), ("train", train)):
            samples[name].append(seconds(run))
    load_s, train_s = (statistics.median(samples[name]) for name in ("load", "train"))
    return {
        "threads": threads,
        "batch_size": 1024,
        "load_s": load_s,
        "train_s": train_s,
        "share": load_s / train_s,
        "rounds": rounds,
    }


def measure_folder(
    name: str, folder: ImageFolder, size: int, batch_size: int, crop: float, rounds: int
) -> list[dict[str, Any]]:
    """Images per second and processor time per image, for no workers and two."""
    plain, normalise = PlainImages(folder, size, crop), Normalise(MEAN, STD)
    torch.set_num_threads(1)  # the cores are for the workers; and for one image, threads cost more than they give
    rows = []
    for workers in (0, 2):
        ours = FolderBatches(folder, size, batch_size, transform=normalise, crop=crop, workers=workers)
        rivals: dict[str, Callable[[], Iterable[Any]]] = {
            "plain": partial(DataLoader, plain, batch_size, num_workers=workers),
            "openradial": partial(ours.epoch, 0),
        }
        samples: dict[str, list[tuple[float, float]]] = {rival: [] for rival in rivals}
        for _ in range(rounds):
            for rival, batches in rivals.items():
                samples[rival].append(drained(batches))
        row: dict[str, Any] = {"folder": name, "images": len(folder), "size": size, "batch_size": batch_size}
        row |= {"workers": workers, "rounds": rounds, **compared(samples, len(folder))}
        row["difference"] = difference(DataLoader(plain, batch_size), ours.epoch(0))
        rows.append(row)
    return [*rows, in_memory(rows[-1], folder, size, batch_size, crop, rounds)]


def in_memory(
    row: dict[str, Any], folder: ImageFolder, size: int, batch_size: int, crop: float, rounds: int
) -> dict[str, Any]:
    """Later epochs of a folder that was loaded; beside the plain loop with workers."""
    start = time.perf_counter()
    examples = folder.load(size, crop=crop, workers=2)
    loaded = time.perf_counter() - start
    batches = Batches(examples, batch_size, shuffle=True, transform=Normalise(MEAN, STD))
    samples = [drained(lambda: batches.epoch(0)) for _ in range(rounds)]
    wall = statistics.median(sample[0] for sample in samples)
    ours = {"images_per_s": len(folder) / wall}
    ratio = ours["images_per_s"] / row["plain"]["images_per_s"]
    return row | {"workers": "in memory", "load_s": loaded, "openradial": ours, "speed_ratio": ratio, "cpu_ratio": None}


def compared(samples: dict[str, list[tuple[float, float]]], images: int) -> dict[str, Any]:
    measured: dict[str, Any] = {}
    for rival, values in samples.items():
        wall, cpu = (statistics.median(column) for column in zip(*values, strict=True))
        measured[rival] = {"images_per_s": images / wall, "cpu_us_per_image": 1e6 * cpu / images}
    measured["speed_ratio"] = measured["openradial"]["images_per_s"] / measured["plain"]["images_per_s"]
    measured["cpu_ratio"] = measured["plain"]["cpu_us_per_image"] / measured["openradial"]["cpu_us_per_image"]
    return measured


def drained(batches: Callable[[], Iterable[Any]]) -> tuple[float, float]:
    """Seconds on the clock and of all processors until the last batch is there and the workers are gone."""
    before, start = processor_seconds(), time.perf_counter()
    for _ in batches():
        pass
    return time.perf_counter() - start, processor_seconds() - before


def processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def difference(plain: Iterable[Any], ours: Iterable[Any]) -> float:
    """Mean difference of the first batches, in grey levels of 0..255."""
    (x, y), (u, v) = next(iter(plain)), next(iter(ours))
    assert x.shape == u.shape
    assert torch.equal(y, v)
    return float(((x - u).abs() * torch.tensor(STD).view(3, 1, 1) * 255).mean())


def environment() -> dict[str, Any]:
    return machine("python -m benchmarks.loading " + " ".join(sys.argv[1:])) | {
        "pillow": PIL.__version__,
        "seed": SEED,
        "load_average_at_start": os.getloadavg()[1],
    }


def as_they_come(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each side with its own default: a DataLoader decodes in the process that trains, we in a worker per core."""
    defaults = []
    for plain in (row for row in rows if row["workers"] == 0):
        ours = next(row for row in rows if row["folder"] == plain["folder"] and row["workers"] == 2)
        ratio = ours["openradial"]["images_per_s"] / plain["plain"]["images_per_s"]
        new = {"workers": "defaults: 0 / 2", "openradial": ours["openradial"], "speed_ratio": ratio, "cpu_ratio": None}
        defaults.append(plain | new)
    return defaults


def markdown(results: dict[str, Any]) -> str:
    env, rounds = results["environment"], results["mnist"][0]["rounds"]
    header = ["folder", "workers", "plain, images/s", "openradial, images/s", "ratio", "CPU time ratio", "at least 2"]
    rows = [
        [
            row["folder"],
            str(row["workers"]),
            f"{row['plain']['images_per_s']:,.0f}" if row["workers"] != "in memory" else "",
            f"{row['openradial']['images_per_s']:,.0f}",
            f"{row['speed_ratio']:.2f}",
            f"{row['cpu_ratio']:.2f}" if row["cpu_ratio"] else "",
            "yes" if row["speed_ratio"] >= AT_LEAST else "NO",
        ]
        for row in [*as_they_come(results["folders"]), *results["folders"]]
    ]
    differences = {row["folder"]: row["difference"] for row in results["folders"]}
    digits = [
        [
            str(row["threads"]),
            f"{1e3 * row['load_s']:.0f}",
            f"{1e3 * row['train_s']:,.0f}",
            f"{row['share']:.2%}",
            "yes" if row["share"] < AT_MOST else "NO",
        ]
        for row in results["mnist"]
    ]
    lines = [
        f"Written by `{env['command']}` on {env['date']}: {env['cpu']}, {env['cores']} cores, torch {env['torch']}, "
        f"Pillow {env['pillow']}, Python {env['python']}, seed {env['seed']}; medians of {rounds} rounds, the rivals "
        f"in turn. Load average at the start {env['load_average_at_start']:.1f}, at the end "
        f"{env['load_average_at_end']:.1f}.",
        "",
        "**MNIST**, batches of 1024: an epoch of loading beside an epoch of training the paper's CNN, in milliseconds.",
        "",
        *table(["threads", "loading", "training", "share", "under 5 %"], digits),
        "",
        "**Image folders** beside a plain `DataLoader` + PIL loop: JPEG files to normalised float batches, one torch "
        "thread in this process; *in memory* are the later epochs of a loaded folder, beside the plain loop with 2 "
        "workers.",
        "",
        *table(header, rows),
        "",
        *(f"Mean difference to the plain loop, {name}: {value:.2f} of 255." for name, value in differences.items()),
        "Resizing then cropping (plain) and cutting a box of whole pixels then resizing (openradial) differ by less "
        "than a pixel in place.",
    ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
