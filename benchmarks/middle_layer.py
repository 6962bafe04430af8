"""Which layer of efficientnet_lite0 finds inputs of another kind, and what letting it count more costs.

python -m benchmarks.middle_layer --tiny PATH (ten minutes on two cores; features are cached)

PATH is a folder or an archive of Tiny-ImageNet. Only training images of classes that are known in the first split of
benchmarks.pretrained are used: the first 40 of a class to fit, the next 10 to test, two more to change. A quarter of
the classes is left out in turn and serves as novel. Other kinds: MNIST digits, large photographs, and photographs of
the known classes at half the size, blurred, or as JPEG of low quality; never the sets of benchmarks.pretrained.
Writes benchmarks/results/middle_layer.{json,md}.
"""

import argparse
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageFilter
from rich.console import Console
from torch import Tensor

from benchmarks.machine import machine
from benchmarks.photos import write_photos
from benchmarks.run import RESULTS, table
from openradial import encoders
from openradial.data import Examples, sources
from openradial.encoders import Encoder, FeatureCache
from openradial.files import write_text
from openradial.fitting.closed_form import fit_closed_form
from openradial.fitting.cross import FeatureSet, assign_folds, cross_fit
from openradial.metrics import auroc
from openradial.models.features import Features
from openradial.models.imagenet import STAGES
from openradial.recipe import OUTPUTS, closed_form_recipe
from openradial.scorers import Combination, MahalanobisScorer
from paper.imagenet.tiny_imagenet import tiny_imagenet

COMMAND = "python -m benchmarks.middle_layer --tiny PATH"
LAST, CLASSES, FOLDS = 1280, 48, 5
TRAIN, TEST, CHANGED = 40, 10, 2  # images of a class
KNOWN = {20: 4, 48: 2}  # classes of a run, a quarter of them left out: how many runs
LAYERS = {"quarter": (2, "mean"), "eighth": (3, "mean"), "eighth and std": (3, "both"), "sixteenth": (4, "mean")}
WEIGHTS = (0.5, 1.0, 2.0, 4.0)


def _jpeg(image: Image.Image, quality: int) -> Image.Image:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return Image.open(stream).convert("RGB")


CHANGES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "half the size": lambda image: image.resize((32, 32), Image.Resampling.BOX),
    "blurred": lambda image: image.filter(ImageFilter.GaussianBlur(1)),
    "JPEG 20": lambda image: _jpeg(image, 20),
    "JPEG 75": lambda image: _jpeg(image, 75),
    "51 pixels": lambda image: image.resize((51, 51), Image.Resampling.BICUBIC),
}
MILD = ("JPEG 75", "51 pixels")  # such photographs should not be called unknown


CHANNELS = 32 + sum(stage[4] for stage in STAGES)  # of the stem and all stages


class Stages(NamedTuple):
    """An encoder with mean and standard deviation of each channel of the stem and of every stage."""

    encoder: Encoder
    num_features: int = LAST
    num_middle: int = 2 * CHANNELS

    @property
    def inputs(self) -> Any:
        """What the network takes."""
        return self.encoder.inputs

    @torch.no_grad()
    def features(self, raw: Any) -> Tensor:
        """Return the last layer, then mean and standard deviation of each stage."""
        body: Any = self.encoder.net.body
        maps = body.stem(self.inputs.transform(self.inputs.ready(raw)))
        found, start = [maps], 0
        for stage in STAGES:
            maps, start = body.blocks[start : start + stage[0]](maps), start + stage[0]
            found.append(maps)
        columns = [torch.nn.functional.normalize(body.pool(body.head(maps)).flatten(1))]
        for each in found:
            columns += [each.mean((2, 3)), each.std((2, 3), correction=0)]
        return torch.cat(columns, 1)


def columns_of(layer: str) -> Tensor:
    """Return the columns of the statistics of a layer."""
    stage, kind = LAYERS[layer]
    widths = [32, *(each[4] for each in STAGES)]
    start, width = LAST + 2 * sum(widths[:stage]), widths[stage]
    return torch.arange(start, start + (2 * width if kind == "both" else width))


def load(tiny: Path) -> dict[str, Tensor]:
    """Return the statistics of all images; those of Tiny-ImageNet are in the order of the classes."""
    encoder = encoders.load("efficientnet_lite0")
    cache = FeatureCache(f"middle-layer-{encoder.key}")

    def encode(raw: list[Any]) -> Tensor:
        return encoders.encode(Stages(encoder), raw, cache=cache)[0]  # type: ignore[arg-type]

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
    """Return the numbers of every layer and weight for one choice of known and left-out classes."""
    drawn = torch.randperm(CLASSES, generator=torch.Generator().manual_seed(seed))[:count]
    code = torch.full((CLASSES,), -1)
    code[drawn[count // 4 :].sort().values] = torch.arange(count - count // 4)

    def rows(part: str, each: int) -> Tensor:
        return code.repeat_interleave(each)[: len(data[part])]

    y = rows("train", TRAIN)
    z, y = data["train"][y >= 0], y[y >= 0]
    recipe = closed_form_recipe("images", len(z), far_axis=False)
    names = tuple(map(str, range(int(y.max()) + 1)))
    model, _ = fit_closed_form(Features(LAST), recipe, names, FeatureSet(z[:, :LAST], y), seed)
    parts = {"known": data["test"][rows("test", TEST) >= 0]}
    parts["novel"] = data["test"][torch.isin(torch.arange(CLASSES).repeat_interleave(TEST), drawn[: count // 4])]
    for name in ("MNIST", "large photographs", *CHANGES):
        parts[name] = data[name][rows(name, CHANGED) >= 0] if name in CHANGES else data[name]
    scores = {name: model.layer_scores([part[:, :LAST]]) for name, part in parts.items()}
    scorers: list[Any] = [scorer for scorer in model.scorers if scorer is not model.head]
    head, folds, results = model.head, assign_folds(y, FOLDS, None, seed), {}
    layers = [(OUTPUTS, scorer) for scorer in scorers]
    without = cross_fit(head, layers, FeatureSet(z[:, :LAST], y), folds, (), seed).scores  # type: ignore[arg-type]
    for layer in LAYERS:
        at, last = columns_of(layer), torch.empty(len(y), 1, dtype=torch.float64)
        for fold in range(FOLDS):
            here = folds == fold
            last[here, 0] = (
                MahalanobisScorer(shrinkage="oas").fit(z[~here][:, at]).unknown_score(z[here][:, at]).double()
            )
        held_out, far = torch.cat([without, last], 1), MahalanobisScorer(shrinkage="oas").fit(z[:, at])
        merged = {
            name: torch.cat([columns.double(), far.unknown_score(parts[name][:, at]).double().unsqueeze(1)], 1)
            for name, columns in scores.items()
        }
        own: list[float] = model.combination.weights  # type: ignore[union-attr, assignment]
        usual = [Combination("standardised", weights=own).fit(held_out[:, :-1])]
        usual += [Combination("standardised", weights=[*own, weight], tail=True).fit(held_out) for weight in WEIGHTS]
        for weight, merge in zip((0.0, *WEIGHTS), usual, strict=True):
            columns = slice(None if weight else -1)
            limit = torch.quantile(merge.unknown_score(held_out[:, columns]), 0.95)
            found = {name: merge.unknown_score(each[:, columns]) for name, each in merged.items()}
            values = {name: auroc(found["known"], each) for name, each in found.items() if name not in ("known", *MILD)}
            values |= {
                f"called unknown: {name}": float((found[name] > limit).double().mean()) for name in ("known", *MILD)
            }
            results[f"{layer}, weight {weight:g}" if weight else "no such layer"] = values
        alone = {name: auroc(merged["known"][:, -1], each[:, -1]) for name, each in merged.items()}
        results[f"{layer}, alone"] = {name: value for name, value in alone.items() if name not in ("known", *MILD)}
    return results


def markdown(results: dict[str, Any]) -> str:
    """Return one table for each number of classes: means over runs."""
    lines = [
        "AUROC against other inputs, means over runs; the last three columns are the shares of known photographs, also",
        "changed a little, that are called unknown at 5 %. Tiny-ImageNet's training images alone; a quarter of the",
        "classes is left out and novel. Layers by the pixels per side; weight 1 of the sixteenth is what fit uses.",
        "",
    ]
    for count, runs in results["runs"].items():
        columns = list(runs[0]["no such layer"])
        rows = []
        for name in runs[0]:
            cells = [f"{fmean(run[name][key] for run in runs):.3f}" if key in runs[0][name] else "" for key in columns]
            rows.append([name, *cells])
        lines += [f"### {count} classes, {int(count) // 4} of them left out", "", *table(["layer", *columns], rows), ""]
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
            console.print(count, seed, runs[-1]["no such layer"])
            write_text(RESULTS / "middle_layer.json", json.dumps(results, indent=1))
            write_text(RESULTS / "middle_layer.md", markdown(results))


if __name__ == "__main__":
    main()
