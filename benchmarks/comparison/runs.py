"""Run a comparison: every protocol with every seed. Networks are trained once and kept, and so are finished runs."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.comparison.methods import (
    METHODS,
    NETWORKS,
    Contender,
    Method,
    NetworkSettings,
    Scores,
    measured,
)
from benchmarks.comparison.protocols import SETS, Protocol, all_known, class_split, left_out, shortened
from openradial import models
from openradial.data.batches import Batches
from openradial.data.splits import train_test_split
from openradial.errors import DataError, OptionError, TrainingError, check_choice, check_count
from openradial.files import write_text
from openradial.nn import hidden_layers
from openradial.training import Settings, fit

MethodRow = dict[str, Any]
PAPERS = Settings(epochs=10, batch_size=256, schedule="cosine", channels_last=True)
TRAININGS = {
    "digits": NetworkSettings("mlp", {"inputs": 64, "hidden": (100, 100)}, Settings(epochs=60, batch_size=64)),
    "mnist": NetworkSettings("mnist_radial", {}, PAPERS),
    "cifar10": NetworkSettings("mnist_radial", {"channels": 3, "size": 32}, PAPERS),
}
SECONDS = "core_seconds.txt"
CHUNK = 1024  # inputs that go through a network together
QUICK = {"digits": 20, "mnist": 1, "cifar10": 1}  # epochs
QUICK_EXAMPLES = 2_000  # test examples, and novel inputs of each set, in quick mode


@dataclass(frozen=True)
class Comparison:
    """What to compare on what: ``splits`` of the classes, and with ``whole`` also all classes against novel data sets.

    With ``choosing`` neither test nor novel data are used: in each split two known classes serve as novel ones.
    """

    data: str = "mnist"
    seeds: int = 5
    splits: int = 5
    whole: bool = True
    quick: bool = False
    choosing: bool = False
    novel: Mapping[str, Path] = field(default_factory=dict)
    methods: Sequence[Method] = METHODS
    networks: Mapping[str, Contender] = field(default_factory=lambda: NETWORKS)

    def __post_init__(self) -> None:
        check_choice("data", self.data, SETS)
        check_count("seeds", self.seeds)
        check_count("splits", self.splits, least=0)
        for path in self.novel.values():
            if not path.exists():
                raise DataError(f"there is no file {path}")
        if not self.splits and not self.has_whole:
            raise OptionError("there is nothing to compare on: ask for splits, or name a novel set")

    @property
    def has_whole(self) -> bool:
        return self.whole and not self.choosing and (self.data == "mnist" or bool(self.novel))

    @property
    def training(self) -> NetworkSettings:
        usual = TRAININGS[self.data]
        if not self.quick:
            return usual
        return replace(usual, settings=replace(usual.settings, epochs=QUICK[self.data]))

    def protocols(self) -> Iterator[tuple[str, int, Callable[[], Protocol]]]:
        """Yield key, seed and factory of each run. A split of classes is trained with one seed, its number."""
        if self.has_whole:
            for seed in range(self.seeds):
                yield f"{self.data}-seed{seed}", seed, lambda: all_known(self.data, self.novel)
        make, name = (left_out, "leftout") if self.choosing else (class_split, "split")
        for split in range(self.splits):
            yield f"{self.data}-{name}{split}", split, lambda split=split: make(self.data, split)  # type: ignore[misc]


def compare(comparison: Comparison, folder: Path, *, report: Callable[[str], None] | None = None) -> list[MethodRow]:
    """Return the rows of all runs; they are kept in ``folder``, with the networks, and not measured again."""
    rows: list[MethodRow] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"the folder {folder} cannot be created ({error.strerror}); choose another one") from error
    runs = list(comparison.protocols())
    for number, (key, seed, make) in enumerate(runs, 1):
        kept = folder / f"{key}.json"
        if not kept.exists():
            if report is not None:
                report(f"run {number} of {len(runs)}: {key}")
            protocol = shortened(make(), QUICK_EXAMPLES) if comparison.quick else make()
            result = run_one(comparison, protocol, seed, folder / key)
            write_text(kept, json.dumps(result, indent=1) + "\n")
        rows += _read(kept, comparison)
    return rows


def run_one(comparison: Comparison, protocol: Protocol, seed: int, folder: Path) -> dict[str, Any]:
    """Train the networks of one run and measure all methods on them; ``seconds`` are CPU seconds of all cores."""
    rows, training, total = [], comparison.training, 0.0
    layers = {"outputs", *training.layers}
    methods = [each for each in comparison.methods if {score.layer for score in each.scores} <= layers]
    for name in dict.fromkeys(method.network for method in comparison.methods):
        network, kept = comparison.networks[name], folder / name.replace(", ", "-")
        net = trained(network, protocol, training, seed, kept)
        seconds, began = core_seconds(kept), time.process_time()
        selected = [method for method in methods if method.network == name]
        head = network.recipe.make_head(protocol.num_classes)
        numbers = measured(selected, head, scores_of(net, protocol, training), protocol.novel)
        rows += [row | {"training_seconds": round(seconds, 3)} for row in numbers]
        total += seconds + time.process_time() - began
    facts = {"protocol": protocol.name, "seed": seed, "seconds": round(total, 1)}
    return {"run": facts | {"job": _described(comparison)}, "rows": [row | facts for row in rows]}


def trained(contender: Contender, protocol: Protocol, training: NetworkSettings, seed: int, folder: Path) -> nn.Module:
    """Return the network for a seed: trained, or read from ``folder`` if it was trained before."""
    torch.manual_seed(seed)
    net = models.build(training.model, protocol.num_classes, **training.options)
    settings = replace(training.settings, seed=seed, **contender.settings)
    batches = Batches(protocol.train, settings.batch_size, shuffle=True, seed=seed, transform=protocol.normalise)
    objective = contender.recipe.make_objective(contender.recipe.make_head(protocol.num_classes))
    before, began = core_seconds(folder), time.process_time()
    history = fit(net, objective, batches, settings=settings, folder=folder, resume=True)
    write_text(folder / SECONDS, f"{before + time.process_time() - began:.3f}\n")
    if not history.finished:
        raise TrainingError(f"stopped by {history.stopped_by}; run the same command again to resume")
    return net.eval()


def core_seconds(folder: Path) -> float:
    """Return how long the training of a network took, in CPU seconds of all cores."""
    return float((folder / SECONDS).read_text()) if (folder / SECONDS).exists() else 0.0


@torch.no_grad()
def scores_of(net: nn.Module, protocol: Protocol, training: NetworkSettings) -> Scores:
    """Return the outputs and hidden layers of a network on every set, ``(n, ...) -> (n, d)`` each."""
    fitted, calibration = train_test_split(protocol.calibration, 0.5, seed=1)
    known = {"train": protocol.train, "fit": fitted, "calibration": calibration, "test": protocol.test}
    names, generator = {"outputs": "outputs", **training.layers}, torch.Generator()

    def layers(inputs: Tensor) -> dict[str, Tensor]:
        chunks = (protocol.normalise(inputs[i : i + CHUNK], generator) for i in range(0, len(inputs), CHUNK))
        parts = [hidden_layers(net, x, list(names.values())) for x in chunks]
        return {name: torch.cat([part[layer] for part in parts]).clone() for name, layer in names.items()}

    inputs = {name: examples.inputs for name, examples in known.items()} | dict(protocol.novel)
    labels = {name: examples.labels for name, examples in known.items()}
    return Scores({name: layers(x) for name, x in inputs.items()}, labels, protocol.num_classes)


def _described(comparison: Comparison) -> dict[str, Any]:
    training = comparison.training
    return {
        "data": comparison.data,
        "quick": comparison.quick,
        "model": training.model,
        "training": training.settings.as_dict(),
        "novel": sorted(comparison.novel),
        "methods": [method.name for method in comparison.methods],
    }


def _read(path: Path, comparison: Comparison) -> list[MethodRow]:
    try:
        result = json.loads(path.read_text())
        then, rows = result["run"]["job"], result["rows"]
    except (OSError, ValueError, KeyError) as error:
        raise TrainingError(f"{path} is not the result of a run ({error}); delete it to run it again") from error
    if then != json.loads(json.dumps(_described(comparison))):
        raise TrainingError(f"{path} was made with other settings; set them back, or choose another folder")
    return list(rows)
