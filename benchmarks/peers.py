"""pytorch-ood's detectors as scores of a comparison, on the outputs and features of the same softmax networks.

pip install --no-deps --target PATH pytorch-ood, then --peers PATH. Its package imports torchvision, which not every
torch has a build of; its detectors do not need it, so they are imported without the package's own first file.
"""

import importlib
import importlib.metadata
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.comparison.methods import (
    ENERGY,
    FULLY,
    LAST,
    LOGIT,
    MAHALANOBIS,
    OPENMAX,
    PROBABILITY,
    LayerScore,
    Method,
)
from openradial.heads import OpenMaxHead
from openradial.scorers import NeighbourScorer

NEAR_50 = LayerScore("k-NN, 50, normalised", FULLY, lambda _: NeighbourScorer(k=50, normalise=True))
OPENMAX_25 = LayerScore("OpenMax, tail 25, raw form", "outputs", lambda k: OpenMaxHead(k, tail=25, form="raw"))


class Peer(NamedTuple):
    """A detector of a peer, and our score that should be the same, if there is one."""

    part: LayerScore
    ours: LayerScore | None


class Adapter:
    """A detector behind the two calls of a scorer that a comparison needs."""

    def __init__(self, detector: Any, takes: str) -> None:
        self.detector, self.takes = detector, takes

    def fit(self, rows: Tensor, y: Tensor | None = None) -> "Adapter":
        learn = getattr(self.detector, f"fit_{self.takes}", None)
        if learn is not None:
            learn(rows, y)
        return self

    def unknown_score(self, rows: Tensor) -> Tensor:
        score: Tensor = getattr(self.detector, f"predict_{self.takes}")(rows)
        return score.float()


def detectors(path: Path) -> Any:
    """The module ``pytorch_ood.detector`` from a folder that pip installed into."""
    package = types.ModuleType("pytorch_ood")
    package.__path__ = [str(path / "pytorch_ood")]
    sys.modules["pytorch_ood"] = package
    sys.path.append(str(path))
    return importlib.import_module("pytorch_ood.detector")


def version(path: Path) -> str:
    installed = importlib.metadata.distributions(path=[str(path)])
    return next(each.version for each in installed if each.metadata["Name"] == "pytorch-ood")


def peers(module: Any, net: nn.Module, num_classes: int) -> list[Peer]:
    """The peer's detectors with its own defaults; ViM has none for its subspace and gets one dimension per class."""
    last = net.get_submodule("classifier")
    w, b = last.weight, last.bias

    def of(make: Callable[[], Any], takes: str) -> Callable[[int], Any]:
        return lambda _: Adapter(make(), takes)

    def part(label: str, layer: str, make: Callable[[], Any], takes: str) -> LayerScore:
        return LayerScore(f"pytorch-ood, {label}", layer, of(make, takes))

    return [
        Peer(part("MaxSoftmax", "outputs", lambda: module.MaxSoftmax(None), "logits"), PROBABILITY),
        Peer(part("MaxLogit", "outputs", lambda: module.MaxLogit(None), "logits"), LOGIT),
        Peer(part("Energy", "outputs", lambda: module.EnergyBased(None), "logits"), ENERGY),
        Peer(part("OpenMax", "outputs", lambda: module.OpenMax(None), "logits"), OPENMAX_25),
        Peer(part("Mahalanobis", FULLY, lambda: module.Mahalanobis(None), "features"), MAHALANOBIS),
        Peer(part("relative Mahalanobis", FULLY, lambda: module.RMD(None), "features"), None),
        Peer(part("KNN", FULLY, lambda: module.KNN(None), "features"), NEAR_50),
        Peer(part("ViM", LAST, lambda: module.ViM(None, num_classes, w, b), "features"), None),
    ]


def methods(detectors: list[Peer]) -> list[Method]:
    """One row per detector, and one per our score that is set against it and is in no row yet."""
    usual = (PROBABILITY, LOGIT, ENERGY, OPENMAX, MAHALANOBIS)
    theirs = [Method(f"softmax: {peer.part.label}", "softmax", (peer.part,)) for peer in detectors]
    ours = [peer.ours for peer in detectors if peer.ours is not None and peer.ours not in usual]
    return [*theirs, *(Method(f"softmax: {part.label}", "softmax", (part,)) for part in ours)]


def agreement(detectors: list[Peer], scores: Any, sets: list[str]) -> dict[str, float]:
    """Rank correlation of each peer's score with ours over known and novel inputs together."""
    result = {}
    for peer in detectors:
        if peer.ours is not None:
            theirs, ours = (torch.cat([scores.of(part)[name] for name in sets]) for part in (peer.part, peer.ours))
            result[peer.part.label] = rank_correlation(theirs, ours)
    return result


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's, with mean ranks for ties."""
    ranks = torch.stack([_ranks(a), _ranks(b)])
    return float(torch.corrcoef(ranks)[0, 1])


def _ranks(values: Tensor) -> Tensor:
    _, inverse, counts = values.double().unique(return_inverse=True, return_counts=True)
    ranks: Tensor = counts.cumsum(0) - (counts - 1) / 2
    return ranks.double()[inverse]


def summary(runs: Mapping[str, Mapping[str, float]]) -> dict[str, list[float]]:
    """Smallest and largest agreement of each detector over runs."""
    names = list(dict.fromkeys(name for run in runs.values() for name in run))
    return {name: [min(run[name] for run in runs.values()), max(run[name] for run in runs.values())] for name in names}
