"""What finds inputs of another kind by efficientnet_lite0, and what it costs: a middle layer, and octaves of the image.

python -m benchmarks.middle_layer --tiny PATH (ten minutes on two cores; features are cached)

PATH is a folder or an archive of Tiny-ImageNet. Only training images of classes that are known in the first split of
benchmarks.pretrained are used: the first 40 of a class to fit, the next 10 to test, two more to change. A quarter of
the classes is left out in turn and serves as novel. Other kinds: MNIST digits, large photographs, and photographs of
the known classes at half the size, blurred, as JPEG of low quality, as contours, in two colours or with noise; never
the sets of benchmarks.pretrained. Writes benchmarks/results/middle_layer.{json,md}.
"""

import argparse
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFilter
from rich.console import Console
from torch import Tensor

from benchmarks.machine import machine
from benchmarks.photos import split_layers, write_photos
from benchmarks.run import RESULTS, table
from openradial import encoders
from openradial.data import Examples, sources
from openradial.encoders import FeatureCache
from openradial.files import write_text
from openradial.fitting.cross import FeatureSet, assign_folds, cross_fit
from openradial.metrics import auroc
from openradial.recipe import FAR_LAYERS, OUTPUTS, closed_form_recipe
from openradial.scorers import Combination, MahalanobisScorer
from openradial.scorers.combination import START, STEEP
from paper.imagenet.tiny_imagenet import tiny_imagenet

COMMAND = "python -m benchmarks.middle_layer --tiny PATH"
LAST, CLASSES, FOLDS = 1280, 48, 5
TRAIN, TEST, CHANGED = 40, 10, 2  # images of a class
KNOWN = {20: 4, 48: 2}  # classes of a run, a quarter of them left out: how many runs
NONE, BOTH = "classes alone", f"both, from {START:g}"
WAYS: dict[str, tuple[dict[str, Any], float, float]] = {  # layers and how they are shrunk, start and slope of the tail
    NONE: ({}, START, STEEP),
    "middle layer": ({"middle": "oas"}, START, STEEP),
    "bands": ({"bands": 0.02}, START, STEEP),
    "both, from 3": (FAR_LAYERS, 3.0, STEEP),
    BOTH: (FAR_LAYERS, START, STEEP),
    "both, from 3.5": (FAR_LAYERS, 3.5, STEEP),
    "both, a third as steep": (FAR_LAYERS, START, STEEP / 3),
    "both, bands shrunk by oas": ({"middle": "oas", "bands": "oas"}, START, STEEP),
    "both, bands shrunk by 0.01": ({"middle": "oas", "bands": 0.01}, START, STEEP),
    "both, bands shrunk by 0.03": ({"middle": "oas", "bands": 0.03}, START, STEEP),
}


def _jpeg(image: Image.Image, quality: int) -> Image.Image:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return Image.open(stream).convert("RGB")


def _noisy(image: Image.Image) -> Image.Image:
    noise = np.random.default_rng(0).normal(0, 25, (image.height, image.width, 3))
    return Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8))


CHANGES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "half the size": lambda image: image.resize((32, 32), Image.Resampling.BOX),
    "blurred": lambda image: image.filter(ImageFilter.GaussianBlur(1)),
    "JPEG 20": lambda image: _jpeg(image, 20),
    "contours": lambda image: image.filter(ImageFilter.CONTOUR),
    "two colours": lambda image: image.convert("L").point(lambda value: 255 * (value > 128)).convert("RGB"),
    "noise added": _noisy,
    "JPEG 75": lambda image: _jpeg(image, 75),
    "51 pixels": lambda image: image.resize((51, 51), Image.Resampling.BICUBIC),
}
MILD = ("JPEG 75", "51 pixels")  # such photographs should not be called unknown


def load(tiny: Path) -> dict[str, Tensor]:
    """Return the features of all images; those of Tiny-ImageNet are in the order of the classes."""
    encoder = encoders.load("efficientnet_lite0")
    cache = FeatureCache(encoder.key)

    def encode(raw: list[Any]) -> Tensor:
        return encoders.encode(encoder, raw, cache=cache)[0]

    folder = tiny_imagenet(tiny, "train")
    drawn = torch.randperm(200, generator=torch.Generator().manual_seed(0))[:CLASSES].tolist()
    rows = [(folder.labels == k).nonzero().squeeze(1).tolist() for k in drawn]
    middle, end = TRAIN + TEST, TRAIN + TEST + CHANGED
    paths = {part: [Path(folder.paths[i]) for row in rows for i in row[at:to]]
             for part, at, to in (("train", 0, TRAIN), ("test", TRAIN, middle), ("changed", middle, end))}  # fmt: skip
    found = {part: encode(paths[part]) for part in ("train", "test")}
    for name, change in CHANGES.items():
        found[name] = encode([np.asarray(change(Image.open(path).convert("RGB"))) for path in paths["changed"]])
    digits = sources.open("mnist").test
    assert isinstance(digits, Examples)
    some = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))[:80]
    pixels = digits.inputs[some].permute(0, 2, 3, 1).expand(-1, -1, -1, 3)
    found["MNIST"] = encode([image.contiguous().numpy() for image in pixels])
    with tempfile.TemporaryDirectory() as home:
        photos = sorted(write_photos(Path(home), 100).rglob("*.JPEG"))[:40]
        found["large photographs"] = encode(photos)
    return found


def measure(data: dict[str, Tensor], count: int, seed: int) -> dict[str, dict[str, float]]:
    """Return the numbers of every way for one choice of known and left-out classes."""
    drawn = torch.randperm(CLASSES, generator=torch.Generator().manual_seed(seed))[:count]
    code = torch.full((CLASSES,), -1)
    code[drawn[count // 4 :].sort().values] = torch.arange(count - count // 4)

    def rows(part: str, each: int) -> Tensor:
        return code.repeat_interleave(each)[: len(data[part])]

    y = rows("train", TRAIN)
    z, y = data["train"][y >= 0], y[y >= 0]
    parts = {"known": data["test"][rows("test", TEST) >= 0]}
    parts["novel"] = data["test"][torch.isin(torch.arange(CLASSES).repeat_interleave(TEST), drawn[: count // 4])]
    for name in ("MNIST", "large photographs", *CHANGES):
        parts[name] = data[name][rows(name, CHANGED) >= 0] if name in CHANGES else data[name]
    results = {}
    recipe = closed_form_recipe("images", len(z), int(y.max()) + 1)
    last, layers = split_layers(z, LAST)
    known, folds = FeatureSet(last, y, layers=layers), assign_folds(y, FOLDS, None, seed)
    head = recipe.make_closed_form_head(tuple(map(str, range(int(y.max()) + 1))), LAST, seed).fit(last, y)
    head.score = recipe.score
    scorers = [(OUTPUTS, MahalanobisScorer(normalise=True, shrinkage="oas"))]
    names = {(layer, shrunk) for layers, _, _ in WAYS.values() for layer, shrunk in layers.items()}
    keys = sorted(names, key=str)
    scorers += [(layer, MahalanobisScorer(shrinkage=shrunk)) for layer, shrunk in keys]
    held_out = cross_fit(head, scorers, known, folds, (), seed).scores
    for layer, scorer in scorers:
        scorer.fit_statistics(known.statistics(layer, scorer.normalise))
    scores = {}
    for name, part in parts.items():
        x, others = split_layers(part, LAST)
        columns = [head.compute(x).unknown_score, *(each.unknown_score(others.get(at, x)) for at, each in scorers)]
        scores[name] = torch.stack([column.double() for column in columns], 1)
    for way, (used, start, slope) in WAYS.items():
        chosen = [0, 1, *(2 + keys.index(pair) for pair in used.items())]
        results[way] = _numbers({name: _merged(held_out, each, chosen, start, slope, recipe.weights) for name, each in
                                 {"held out": held_out, **scores}.items()})  # fmt: skip
    for layer, shrunk in FAR_LAYERS.items():
        at = 2 + keys.index((layer, shrunk))
        results[f"{layer} alone"] = {name: auroc(scores["known"][:, at], each[:, at]) for name, each in scores.items()
                                     if name not in ("known", *MILD)}  # fmt: skip
    return results


def _merged(
    held_out: Tensor, scores: Tensor, columns: list[int], start: float, slope: float, weights: tuple[float, ...]
) -> Tensor:
    """Return scores merged as by a combination, with another start and slope of the tail."""
    merge = Combination("standardised", weights=weights[:2], tail=len(columns) - 2).fit(held_out[:, columns])
    logs = merge.columns.log()
    standardised = (scores[:, columns].log() - logs.mean(0)) / logs.std(0)
    if (start, slope) == (START, STEEP):
        return merge.unknown_score(scores[:, columns])
    tail = slope * (standardised[:, 2:] - start).clamp_min(0)
    return standardised[:, :2] @ logs.new_tensor(weights[:2]) + sum(weights[:2]) * tail.sum(1)


def _numbers(found: dict[str, Tensor]) -> dict[str, float]:
    limit = torch.quantile(found["held out"], 0.95)
    others = (name for name in found if name not in ("held out", "known", *MILD))
    values = {name: auroc(found["known"], found[name]) for name in others}
    unknown = {f"called unknown: {name}": float((found[name] > limit).double().mean()) for name in ("known", *MILD)}
    return values | unknown


def markdown(results: dict[str, Any]) -> str:
    """Return one table for each number of classes: means over runs."""
    lines = [
        "AUROC against other inputs, means over runs; the last three columns are the shares of known photographs, also",
        "changed a little, that are called unknown at 5 %. Tiny-ImageNet's training images alone; a quarter of the",
        f"classes is left out and novel. fit uses both layers from {START:g} standard deviations on, the bands shrunk",
        f"by {FAR_LAYERS['bands']}.",
        "",
    ]
    for count, runs in results["runs"].items():
        columns = list(runs[0][NONE])
        rows = []
        for name in runs[0]:
            cells = [f"{fmean(run[name][key] for run in runs):.3f}" if key in runs[0][name] else "" for key in columns]
            rows.append([name, *cells])
        lines += [
            f"### {count} classes, {int(count) // 4} of them left out",
            "",
            *table(["layers", *columns], rows),
            "",
        ]
    environment = results["environment"]
    return "\n".join([*lines, f"`{COMMAND}`, {environment['cpu']}, {environment['date']}"]) + "\n"


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", type=Path, required=True)
    data = load(parser.parse_args().tiny)
    results: dict[str, Any] = {"environment": machine(COMMAND), "runs": {}}
    console = Console()
    for count, repeats in KNOWN.items():
        runs = results["runs"].setdefault(str(count), [])
        for seed in range(repeats):
            runs.append(measure(data, count, seed))
            console.print(count, seed, runs[-1][BOTH])
            write_text(RESULTS / "middle_layer.json", json.dumps(results, indent=1))
            write_text(RESULTS / "middle_layer.md", markdown(results))


if __name__ == "__main__":
    main()
