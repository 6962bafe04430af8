"""Detect novel classes and other kinds of images on frozen features: the closed-form recipe and its rivals.

python -m benchmarks.frozen_features --tiny PATH (a folder or an archive of Tiny-ImageNet; half an hour on two cores)

Features are those of EfficientNet-Lite0 at 224 pixels, pre-trained on ImageNet, which has seen Tiny-ImageNet's novel
classes: the table is marked "pre-trained". Writes benchmarks/results/frozen_features.{json,md}. Features are
cached, and so are the results of the rivals, so a second run is fast.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from torch import Tensor

from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from openradial import models
from openradial.data import Examples, sources
from openradial.data.inputs import ImageInputs
from openradial.files import cache_home, read_tensors, write_tensors, write_text
from openradial.fitting.closed_form import calibrate_cross, fit_closed_form, with_scorers
from openradial.fitting.cross import FeatureSet
from openradial.heads import ClosedFormRadialHead
from openradial.metrics import auroc
from openradial.models.features import Features
from openradial.recipe import closed_form_recipe
from openradial.scorers import MahalanobisScorer, Scorer
from paper.imagenet.tiny_imagenet import tiny_imagenet

SIZE, CHUNK = 224, 500
TRAIN, VAL, FAR = 40, 20, 400  # images per class of Tiny-ImageNet, and of each other set
KNOWN, SPLITS = 20, 5
BATCH = 25
COMMAND = "python -m benchmarks.frozen_features --tiny PATH"
Labelled = tuple[Tensor, Tensor]


def encoder() -> Callable[[list[Any]], Tensor]:
    """Return what makes features of images: paths or arrays."""
    weights = models.imagenet_weights("efficientnet_lite0")
    net = models.build("efficientnet_lite0", 2, weights="imagenet").eval()
    inputs = ImageInputs(SIZE, 3, tuple(weights.mean), tuple(weights.std))

    @torch.inference_mode()
    def encode(images: list[Any]) -> Tensor:
        return net.forward_features(inputs.transform(inputs.prepare(images)))  # type: ignore[operator, no-any-return]

    return encode


def features(name: str, images: list[Any], encode: Callable[[list[Any]], Tensor], console: Console) -> Tensor:
    """Return the features of images, from the cache or computed in chunks that are cached one by one."""
    folder, parts = cache_home() / "benchmarks" / "frozen_features", []
    folder.mkdir(parents=True, exist_ok=True)
    for start in range(0, len(images), CHUNK):
        path = folder / f"{name}-{len(images)}-{start}.safetensors"
        if not path.exists():
            chunk = images[start : start + CHUNK]
            made = [encode(chunk[i : i + BATCH]) for i in range(0, len(chunk), BATCH)]
            write_tensors(path, {"z": torch.cat(made)}, {})
            console.print(f"{name}: {start + len(chunk):,} of {len(images):,}")
        parts.append(read_tensors(path)[0]["z"])
    return torch.cat(parts)


def per_class(folder: Any, count: int) -> tuple[list[Path], Tensor]:
    """Return the first images of each class, and their labels."""
    labels = folder.labels
    rows = torch.cat([(labels == k).nonzero().squeeze(1)[:count] for k in range(len(folder.classes))])
    return [Path(folder.paths[i]) for i in rows.tolist()], labels[rows]


def other_images() -> Iterator[tuple[str, list[NDArray[np.uint8]]]]:
    """Yield images of other kinds."""
    for name in ("fashion-mnist", "quickdraw", "cifar10"):
        data = sources.open(name).test
        assert isinstance(data, Examples)
        rows = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[:FAR]
        pixels = data.inputs[rows].permute(0, 2, 3, 1)  # (n, h, w, c)
        yield name, [image.expand(-1, -1, 3).contiguous().numpy() for image in pixels]
    noise = np.random.default_rng(0).integers(0, 256, (FAR, 64, 64, 3), dtype=np.uint8)
    yield "noise", list(noise)


def rivals(z: Tensor, y: Tensor) -> tuple[Callable[[Tensor], Tensor], dict[str, Callable[[Tensor], Tensor]]]:
    """Return the classes and the unknown scores of logistic regression, whose C is selected on known data."""
    rows = torch.nn.functional.normalize(z).numpy()
    search = GridSearchCV(LogisticRegression(max_iter=5_000), {"C": [1, 10, 100, 1_000]}, cv=3)
    model = search.fit(rows, y.numpy()).best_estimator_

    def logits(x: Tensor) -> Tensor:
        return torch.from_numpy(model.decision_function(torch.nn.functional.normalize(x).numpy()))

    scores: dict[str, Callable[[Tensor], Tensor]] = {
        "logistic regression: maximum probability": lambda x: -logits(x).softmax(1).amax(1),
        "logistic regression: maximum logit": lambda x: -logits(x).amax(1),
        "logistic regression: energy": lambda x: -logits(x).logsumexp(1),
    }
    return lambda x: logits(x).argmax(1), scores


def ours(z: Tensor, y: Tensor, seed: int) -> tuple[Callable[[Tensor], Tensor], dict[str, Callable[[Tensor], Tensor]]]:
    """Return the classes and the unknown scores of the closed-form recipe: each alone, and combined as fit does."""
    recipe = closed_form_recipe("points", len(z))
    known, classes = FeatureSet(z, y), tuple(map(str, range(KNOWN)))
    model, _ = fit_closed_form(Features(z.shape[1]), recipe, classes, known, seed)
    model, _ = calibrate_cross(model, recipe, 0.05, known, seed)
    every = with_scorers(Features(z.shape[1]), cast("ClosedFormRadialHead", model.head), recipe, known, seed, (1, 1, 1))
    parts = dict(
        zip(
            ("head, as chosen: radial distance or projection", "Mahalanobis++", "nearest neighbour, cosine"),
            every.scorers,
            strict=True,
        )
    )
    scores: dict[str, Callable[[Tensor], Tensor]] = {
        name: cast("Scorer", scorer).unknown_score for name, scorer in parts.items()
    }
    scores["closed-form recipe"] = lambda x: model.decide(x).unknown_score
    relative = MahalanobisScorer(relative=True, normalise=True, shrinkage="oas").fit(z, y)
    scores["relative Mahalanobis++"] = relative.unknown_score
    return model.head.predict, scores


def measure(
    seed: int, train: Labelled, val: Labelled, far: dict[str, Tensor], before: dict[str, Any] | None
) -> dict[str, Any]:
    """Return accuracy and AUROC against novel classes and other kinds of images, for one split of the classes.

    ``before`` are earlier results on the same features: those of rivals are not computed again.
    """
    classes = torch.randperm(200, generator=torch.Generator().manual_seed(seed))
    code = torch.full((200,), -1)
    code[classes[:KNOWN]] = torch.arange(KNOWN)
    y, test = code[train[1]], code[val[1]]
    z, known, novel = train[0][y >= 0], val[0][test >= 0], val[0][test < 0]
    results = {name: value for name, value in (before or {}).items() if name.startswith(("logistic", "accuracy rival"))}
    groups = [("ours", ours(z, y[y >= 0], seed)), *([] if results else [("rival", rivals(z, y[y >= 0]))])]
    for group, (predict, scores) in groups:
        results[f"accuracy {group}"] = float((predict(known) == test[test >= 0]).double().mean())
        for name, score in scores.items():
            base = score(known)
            results[name] = {"novel classes": auroc(base, score(novel))}
            results[name] |= {kind: auroc(base, score(images)) for kind, images in far.items()}
    return results


def markdown(results: dict[str, Any]) -> str:
    """Return the table of medians over splits."""
    runs = results["splits"]
    names = [name for name in runs[0] if not name.startswith("accuracy")]
    kinds = list(runs[0][names[0]])
    rows = [[name, *(f"{median(run[name][kind] for run in runs):.3f}" for kind in kinds)] for name in names]
    accuracy = {group: median(run[f"accuracy {group}"] for run in runs) for group in ("ours", "rival")}
    lines = [
        f"AUROC, median over {len(runs)} splits of Tiny-ImageNet's classes into {KNOWN} known and 180 novel ones,",
        f"{TRAIN} images per class, EfficientNet-Lite0 at {SIZE} pixels. The encoder was trained on ImageNet,",
        "which has the novel classes.",
        f"Accuracy: closed form {accuracy['ours']:.3f}, logistic regression {accuracy['rival']:.3f}.",
        "",
        *table(["score", *kinds], rows),
        "",
        f"`{COMMAND}`, {results['environment']['cpu']}, {results['environment']['date']}",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Make features, measure, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", type=Path, required=True)
    arguments = parser.parse_args()
    console, encode = Console(), encoder()
    parts = {}
    for part, count in (("train", TRAIN), ("val", VAL)):
        paths, labels = per_class(tiny_imagenet(arguments.tiny, part), count)
        parts[part] = features(f"tiny-{part}", paths, encode, console), labels
    far = {name: features(name, images, encode, console) for name, images in other_images()}
    path = RESULTS / "frozen_features.json"
    before = json.loads(path.read_text())["splits"] if path.exists() else [None] * SPLITS
    results: dict[str, Any] = {"environment": machine(COMMAND), "splits": []}
    for seed in range(SPLITS):
        results["splits"].append(measure(seed, parts["train"], parts["val"], far, before[seed]))
        console.print(f"split {seed} of {SPLITS} measured")
    write_text(path, json.dumps(results, indent=1))
    write_text(RESULTS / "frozen_features.md", markdown(results))


if __name__ == "__main__":
    main()
