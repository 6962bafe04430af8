"""Measure how long fit takes on photographs and sentences, cold and with a warm feature cache, and one prediction.

python -m benchmarks.encoding --banking FOLDER (about five minutes on two quiet cores)

2,300 photographs of 500 by 375 pixels in 27 folders are cut from the two that scikit-learn ships; FOLDER has train.csv
and test.csv of BANKING77. Every measurement is a process of its own with the commands that a user runs. Writes
benchmarks/results/encoding.{json,md}.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import torch

import openradial
from benchmarks import photos
from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from openradial import encoders
from openradial.files import write_text
from openradial.server import Service, create_app

PHOTOS, CLASSES, REQUESTS = 2_300, 27, 200
ROUNDS, ENCODED = 5, 128  # of the network alone and of encode in turn, and images in each
COMMAND = "python -m benchmarks.encoding --banking FOLDER"
LIMITS = {  # set before measuring
    "photographs, cold (s)": 180.0,
    "photographs, warm cache (s)": 5.0,
    "10,000 sentences, minilm, cold (s)": 60.0,
    "10,000 sentences, wordllama, cold (s)": 10.0,
    "one sentence in the service, median (ms)": 20.0,
}
LEAST = {"share of the bare encoder's speed": 0.8}


def fit(folder: Path, cache: Path, data: Path, *options: str) -> float:
    """Run the command in a process of its own; return its seconds."""
    command = [sys.executable, "-m", "openradial", "fit", str(data), "--out", str(folder), "--overwrite", *options]
    # weights stay where they are, features are kept apart
    features, home = cache / "features", Path(openradial.files.cache_home())
    cache.mkdir(exist_ok=True)
    for entry in home.iterdir():
        if entry.name != features.name and not (cache / entry.name).exists():
            (cache / entry.name).symlink_to(entry)
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OPENRADIAL_CACHE": str(cache)})
    return time.perf_counter() - began


def encoder_rates(paths: list[Path]) -> tuple[float, float, float]:
    """Return images per second of the network alone, those of encode from files, and their ratio: medians of rounds.

    Both are measured in turn, so a machine that is slower for a while slows both. The network gets prepared inputs in
    batches of the size of encode.
    """
    encoder, rounds = encoders.load("efficientnet_lite0"), []
    for part in (paths[at : at + ENCODED] for at in range(0, ROUNDS * ENCODED, ENCODED)):
        x = encoder.inputs.transform(encoder.inputs.ready(part[:32]))
        with torch.inference_mode():
            encoder.net(x)
            began = time.perf_counter()
            for _ in range(ENCODED // 32):
                encoder.net(x)
            middle = time.perf_counter()
            encoders.encode(encoder, part)
        rounds.append((ENCODED / (middle - began), ENCODED / (time.perf_counter() - middle)))
    bare, encoding = (statistics.median(column) for column in zip(*rounds, strict=True))
    return bare, encoding, statistics.median(encoded / alone for alone, encoded in rounds)


def one_sentence(model: Path) -> list[float]:
    """Return the milliseconds of single requests to the service, one after the other, without a network."""

    async def ask() -> list[float]:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) - 1))  # as openradial serve does
        app = create_app(Service(openradial.load(model)))
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                found = []
                for number in range(REQUESTS):
                    text = f"My card payment of {number} pounds was declined yesterday, what is wrong?"
                    began = time.perf_counter()
                    answer = await client.post("/v1/predict", json={"inputs": [text]})
                    found.append(1000 * (time.perf_counter() - began))
                    answer.raise_for_status()
                return found[REQUESTS // 4 :]

    return asyncio.run(ask())


def markdown(results: dict[str, Any]) -> str:
    """Return the table of measured values and limits."""
    rows = []
    for name, value in results["measured"].items():
        most, least, digits = LIMITS.get(name), LEAST.get(name), 2 if name in LEAST else 1
        limit = f"{most:,.0f}" if most is not None else f"at least {least}" if least is not None else ""
        held = (most is None or value <= most) and (least is None or value >= least)
        rows.append([name, f"{value:,.{digits}f}", limit, ("yes" if held else "no") if limit else ""])
    environment = results["environment"]
    return "\n".join(
        [
            f"`openradial fit` as a command, with imports and the baseline; {PHOTOS:,} photographs of 500 x 375 pixels",
            f"in {CLASSES} classes, sentences of BANKING77.",
            "",
            *table(["measured", "value", "limit", "held"], rows),
            "",
            f"`{COMMAND}`, {environment['cpu']}, {environment['date']}. Load average before the start:",
            f"{environment['load']}; the limits are for {environment['cores']} quiet cores.",
            "",
        ]
    )


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--banking", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    measured: dict[str, float] = {}
    load = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory() as name:
        root, train = Path(name), arguments.banking / "train.csv"
        folder = photos.write_photos(root / "photos", PHOTOS, classes=CLASSES)
        files = sorted(folder.glob("*/*.JPEG"))
        bare, encoding, share = encoder_rates(files)
        measured["photographs, cold (s)"] = fit(root / "model", root / "cache", folder)
        measured["photographs, warm cache (s)"] = fit(root / "model", root / "cache", folder)
        measured["bare encoder (images per second)"] = bare
        measured["encoding (images per second)"] = encoding
        measured["share of the bare encoder's speed"] = share
        for encoder in ("minilm", "wordllama"):
            options = ("--label", "category", "--encoder", encoder)
            cache, key = root / f"cache-{encoder}", f"10,000 sentences, {encoder}"
            measured[f"{key}, cold (s)"] = fit(root / encoder, cache, train, *options)
            measured[f"{key}, warm cache (s)"] = fit(root / encoder, cache, train, *options)
        times = one_sentence(root / "minilm")
        measured["one sentence in the service, median (ms)"] = statistics.median(times)
        measured["one sentence in the service, 99 % (ms)"] = sorted(times)[int(0.99 * len(times))]
    results = {"environment": machine(COMMAND) | {"load": load}, "measured": measured, "limits": LIMITS, "least": LEAST}
    write_text(arguments.out / "encoding.json", json.dumps(results, indent=1))
    write_text(arguments.out / "encoding.md", markdown(results))


if __name__ == "__main__":
    main()
