"""Measure what ``fit --finetune`` is worth on images far from ImageNet: clothes of Fashion-MNIST, enlarged, as files.

python -m benchmarks.finetuning (a few minutes on two cores; a run that was killed resumes)

Five of the ten classes are known, the others are novel and used for testing alone. "frozen" is what fit does;
"--finetune" is what it does with the option: it starts from the frozen encoder, trains it, and keeps the one that is
more accurate on held-out known images. Writes benchmarks/results/finetuning.{json,md}.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from rich.console import Console

import openradial
from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from openradial.data import Examples, sources
from openradial.files import write_text
from openradial.metrics import auroc

PATH = RESULTS / "finetuning.json"
COMMAND = "python -m benchmarks.finetuning"
SPLITS, SIDE = 1, 64  # pixels of the files
NAME, CLASSES, TRAIN, TEST = "fashion-mnist", 10, 100, 50  # images of each class
WAYS: dict[str, dict[str, Any]] = {"--finetune": {"finetune": True}, "frozen": {}}


def write_files(data: Examples, classes: list[int], count: int, root: Path) -> Path:
    """Write the first images of classes, enlarged, in a folder for each class."""
    for k in classes:
        folder = root / f"class{k:03}"
        folder.mkdir(parents=True)
        for number, row in enumerate((data.labels == k).nonzero().squeeze(1)[:count].tolist()):
            image = Image.fromarray(data.inputs[row, 0].numpy())
            image.resize((SIDE, SIDE), Image.Resampling.BILINEAR).save(folder / f"{number}.png")
    return root


def measure(seed: int, options: dict[str, Any]) -> dict[str, Any]:
    """Fit on the known classes of a split, and return the numbers on test images of all classes."""
    source = sources.open(NAME)
    assert isinstance(source.train, Examples)
    assert isinstance(source.test, Examples)
    order = torch.randperm(CLASSES, generator=torch.Generator().manual_seed(seed)).tolist()
    known, novel = sorted(order[: CLASSES // 2]), sorted(order[CLASSES // 2 :])
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        photos = write_files(source.train, known, TRAIN, folder / "train")
        began = time.perf_counter()
        model = openradial.fit(photos, size=SIDE, far_axis=False, baseline=False, show_progress=False, **options)
        seconds = time.perf_counter() - began
        files = sorted(write_files(source.test, known, TEST, folder / "known").rglob("*.png"))
        others = sorted(write_files(source.test, novel, TEST, folder / "novel").rglob("*.png"))
        usual, unusual = model.predict(files), model.predict(others)
    truth = torch.tensor([model.classes.index(path.parent.name) for path in files])
    return {
        "accuracy": float((torch.from_numpy(usual.nearest) == truth).double().mean()),
        "AUROC": auroc(torch.from_numpy(usual.unknown_score), torch.from_numpy(unusual.unknown_score)),
        "called unknown": float((usual.labels < 0).mean()),
        "detected": float((unusual.labels < 0).mean()),
        "seconds": round(seconds, 1),
        "note": model.report.notes[-1] if options.get("finetune") else "",
    }


def markdown(results: dict[str, Any]) -> str:
    """Return a table with one row for each set, split and way."""
    columns, rows = ("accuracy", "AUROC", "called unknown", "detected"), []
    for split, ways in results["runs"].items():
        for way, run in ways.items():
            rows.append([split, way, *(f"{run[column]:.3f}" for column in columns), f"{run['seconds']:.0f}"])
    notes = [f"- split {split}: {run['note']}" for split, ways in results["runs"].items() for run in ways.values()]
    lines = [
        f"{CLASSES // 2} of {CLASSES} classes of Fashion-MNIST are known, the others novel and used for testing alone.",
        f"{TRAIN} images of each known class to fit, {TEST} of every class to test, enlarged from 28 to {SIDE} pixels.",
        f"Encoder efficientnet_lite0 at {SIDE} pixels; false-reject rate 5 %. Seconds of fit on two cores that others",
        "used as well; those of the frozen encoder without encoding, as its features were in the cache.",
        "",
        *table(["split", "fit", *columns, "seconds"], rows),
        "",
        *(note for note in notes if not note.endswith(": ")),
    ]
    environment = results["environment"]
    return "\n".join([*lines, "", f"`{COMMAND}`, {environment['cpu']}, {environment['date']}"]) + "\n"


def main() -> None:
    """Measure what is missing in the file of results, and write the table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    results: dict[str, Any] = json.loads(PATH.read_text()) if PATH.exists() else {"runs": {}}
    results["environment"] = machine(COMMAND)
    for seed in range(SPLITS):
        runs = results["runs"].setdefault(str(seed), {})
        for way, options in WAYS.items():
            if way not in runs:
                runs[way] = measure(seed, options)
                Console().print(seed, way, json.dumps(runs[way]))
                write_text(PATH, json.dumps(results, indent=1))
                write_text(RESULTS / "finetuning.md", markdown(results))


if __name__ == "__main__":
    main()
