"""Measure all methods for one protocol and one seed."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from openradial import metrics
from openradial.conformal import Rejector, fit_beta
from openradial.errors import HeadError, ShapeError
from openradial.evaluation.comparison.methods import Method, Score
from openradial.heads import Head, RadialHead, SoftmaxHead
from openradial.scorers import Combination, Scorer

FALSE_REJECT_RATE = 0.05
Layers = Mapping[str, Tensor]  # by name: outputs and hidden layers


class Scores:
    """The unknown scores of one network on every set, each fitted and computed once.

    ``sets`` holds the layers of ``train``, of two halves of the held-out known data, ``fit`` and ``calibration``, of
    ``test`` and of each novel set. Scorers are fitted on ``train``, combinations on ``fit``, rejectors on
    ``calibration``: none of them sees a novel input.
    """

    def __init__(self, sets: Mapping[str, Layers], labels: Mapping[str, Tensor], num_classes: int) -> None:
        self.sets, self.labels, self.num_classes = sets, labels, num_classes
        self._kept: dict[tuple[str, str], dict[str, Tensor]] = {}

    def of(self, score: Score) -> dict[str, Tensor]:
        """Return one score on every set but ``train``."""
        key = (score.label, score.layer)
        if key not in self._kept:
            self._kept[key] = self._computed(score)
        return self._kept[key]

    def merged(self, method: Method) -> dict[str, Tensor]:
        """Return the score of a method on every set but ``train``."""
        columns = [self.of(score) for score in method.scores]
        if method.combination is None:
            return columns[0]
        stacked = {name: torch.stack([column[name] for column in columns], 1) for name in columns[0]}
        merge = Combination(method.combination).fit(stacked["fit"])  # type: ignore[arg-type]
        return {name: merge.unknown_score(rows) for name, rows in stacked.items()}

    @torch.no_grad()
    def _computed(self, score: Score) -> dict[str, Tensor]:
        scorer: Scorer = score.make(self.num_classes).fit(self.sets["train"][score.layer], self.labels["train"])
        return {
            name: scorer.unknown_score(layers[score.layer]) for name, layers in self.sets.items() if name != "train"
        }


def measured(methods: Iterable[Method], head: Head, scores: Scores, novel: Iterable[str]) -> list[dict[str, Any]]:
    """Return a row of numbers for each method of a network that was trained with the head."""
    novel = list(novel)
    head = _calibrated(head, scores)
    o, y = scores.sets["test"]["outputs"], scores.labels["test"]
    known = _known_numbers(head, o, y)
    correct = (head.predict(o) == y).numpy()
    return [_row(method, scores.merged(method), correct, known, novel) for method in methods]


def _calibrated(head: Head, scores: Scores) -> Head:
    """Return the head with its temperature or beta fitted to held-out known data, so that its ECE is fair.

    Without a misclassified example there is nothing to fit, and the head stays as it is.
    """
    held, y = scores.sets["fit"]["outputs"], scores.labels["fit"]
    try:
        if isinstance(head, SoftmaxHead):
            return SoftmaxHead(head.num_classes, temperature="fit").fit(held, y)
        if isinstance(head, RadialHead):
            return RadialHead(head.num_classes, beta=fit_beta(head.layer.distances(held), y).beta)
    except (HeadError, ShapeError):
        return head
    return head.fit(scores.sets["train"]["outputs"], scores.labels["train"])


def _known_numbers(head: Head, o: Tensor, y: Tensor) -> dict[str, float]:
    probs, labels = head.probs(o).double().numpy(), head.predict(o)
    return {
        "accuracy": float((labels == y).double().mean()),
        "ece": metrics.ece(probs, y.numpy(), labels.numpy()),
    }


def _row(
    method: Method, scores: Mapping[str, Tensor], correct: Any, known: Mapping[str, float], novel: list[str]
) -> dict[str, Any]:
    rejector = Rejector(FALSE_REJECT_RATE).fit(scores["calibration"])
    row: dict[str, Any] = {"method": method.name, "network": method.network, **known}
    row["false_reject_rate"] = float(rejector.rejects(scores["test"]).double().mean())
    row["novel"] = {}
    for name in novel:
        found = metrics.summary(scores["test"].numpy(), scores[name].numpy(), correct)
        detected = float(rejector.rejects(scores[name]).double().mean())
        row["novel"][name] = {
            "auroc": found["auroc"],
            "fpr95": found["fpr_at_tpr"],
            "oscr": found["oscr"],
            "detected": detected,
        }
    return row
