"""Measure which copies of photographs the perceptual hash finds, and how many different photographs it joins.

python -m benchmarks.near_duplicates --tiny PATH (minutes)

The training part of CIFAR-10, and Tiny-ImageNet from a folder or an archive. Of 1,000 images of each, copies are made
in several ways; a copy is found if its hash differs from that of its original in at most so many bits. Writes
benchmarks/results/near_duplicates.{json,md}.
"""

import argparse
import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from openradial import data
from openradial.data.near_duplicates import MOST_BITS, image_hashes, near_duplicate_groups
from openradial.files import write_text
from paper.imagenet.tiny_imagenet import tiny_imagenet

COMMAND = "python -m benchmarks.near_duplicates --tiny PATH"
COPIES, BITS = 1000, (0, 2, 4, 6, 7)
Picture = Image.Image


def compressed(image: Picture, quality: int) -> Picture:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return Image.open(stream).convert("RGB")


def resized(image: Picture, factor: float) -> Picture:
    side = round(image.width * factor)
    return image.resize((side, side), Image.Resampling.BICUBIC)


WAYS: dict[str, Callable[[Picture], Picture]] = {
    "JPEG, quality 90": lambda image: compressed(image, 90),
    "JPEG, quality 50": lambda image: compressed(image, 50),
    "JPEG, quality 20": lambda image: compressed(image, 20),
    "half the size": lambda image: resized(image, 0.5),
    "twice the size": lambda image: resized(image, 2),
    "3/4 of the size, JPEG 75": lambda image: compressed(resized(image, 0.75), 75),
    "10 % brighter": lambda image: image.point(lambda value: min(255, value * 1.1)),
}


def as_images(pictures: list[Picture], side: int) -> Tensor:
    """Return the pictures as ``fit`` decodes them, at one size."""
    pixels = [np.asarray(each.resize((side, side), Image.Resampling.BILINEAR)) for each in pictures]
    return torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)


def measure(images: Tensor) -> dict[str, Any]:
    """Return the bits that differ between copies, and groups at several distances."""
    chosen = np.random.default_rng(0).choice(len(images), COPIES, replace=False)
    pictures = [Image.fromarray(images[i].permute(1, 2, 0).numpy()) for i in chosen]
    original = image_hashes(images[chosen])
    bits: dict[str, list[int]] = {}
    for name, change in WAYS.items():
        copies = image_hashes(as_images([change(each) for each in pictures], images.shape[-1]))
        bits[name] = [int(each).bit_count() for each in original ^ copies]
    rows = []
    for most in BITS:
        start = time.process_time()
        sizes = torch.unique(near_duplicate_groups(images, most), return_counts=True)[1]
        found = {name: float(np.mean(np.array(each) <= most)) for name, each in bits.items()}
        facts = {"near_duplicates": len(images) - len(sizes), "largest_group": int(sizes.max())}
        rows.append({"bits": most, "found": found, **facts, "cpu_seconds": round(time.process_time() - start, 1)})
    return {"images": len(images), "size": images.shape[-1], "distances": rows}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.near_duplicates")
    parser.add_argument("--tiny", type=Path, required=True, help="Tiny-ImageNet: a folder or an archive.")
    options = parser.parse_args()
    results: dict[str, Any] = {"machine": machine(COMMAND), "most_bits": MOST_BITS, "sets": {}}
    sets = {"CIFAR-10": lambda: data.load("cifar10", "train").inputs}
    sets["Tiny-ImageNet"] = lambda: tiny_imagenet(options.tiny).load(64).inputs
    for name, load in sets.items():
        results["sets"][name] = measure(load())
    write_text(RESULTS / "near_duplicates.json", json.dumps(results, indent=1) + "\n")
    write_text(RESULTS / "near_duplicates.md", markdown(results))


def markdown(results: dict[str, Any]) -> str:
    lines = []
    for name, each in results["sets"].items():
        rows = []
        for row in each["distances"]:
            shares = [f"{100 * share:.1f} %" for share in row["found"].values()]
            bits = f"**{row['bits']}**" if row["bits"] == results["most_bits"] else str(row["bits"])
            rows.append([bits, *shares, f"{row['near_duplicates']:,}", str(row["largest_group"])])
        lines += [f"{name}, {each['images']:,} photographs of {each['size']} x {each['size']} pixels:", ""]
        lines += [*table(["bits", *WAYS, "near-duplicates", "largest group"], rows), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
