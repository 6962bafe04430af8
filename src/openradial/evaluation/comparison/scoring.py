"""Measure all methods for one protocol and one seed."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from openradial import metrics
from openradial.conformal import Rejector, fit_beta
from openradial.errors import HeadError, ShapeError
from openradial.evaluation.comparison.methods import LayerScore, Method
from openradial.heads import Head, RadialHead, SoftmaxHead
from openradial.scorers import Combination

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

    @torch.no_grad()
    def of(self, score: LayerScore) -> dict[str, Tensor]:
        """Return one score on every set but ``train``."""
        key = (score.label, score.layer)
        if key not in self._kept:
            scorer = score.make(self.num_classes).fit(self.sets["train"][score.layer], self.labels["train"])
            layers = {name: each[score.layer] for name, each in self.sets.items() if name != "train"}
            self._kept[key] = {name: scorer.unknown_score(z) for name, z in layers.items()}
        return self._kept[key]

    def merged(self, method: Method) -> dict[str, Tensor]:
        """Return the score of a method on every set but ``train``."""
        columns = [self.of(score) for score in method.scores]
        if method.combination is None:
            return columns[0]
        stacked = {name: torch.stack([column[name] for column in columns], 1) for name in columns[0]}
        merge = Combination(method.combination).fit(stacked["fit"])  # type: ignore[arg-type]
        return {name: merge.unknown_score(rows) for name, rows in stacked.items()}


def measured(methods: Iterable[Method], head: Head, scores: Scores, novel: Iterable[str]) -> list[dict[str, Any]]:
    """Return a row of numbers for each method of a network that was trained with the head."""
    head, novel = _calibrated(head, scores), list(novel)
    o, y = scores.sets["test"]["outputs"], scores.labels["test"].numpy()
    labels = head.predict(o).numpy()
    known = {"accuracy": float((labels == y).mean()), "ece": metrics.ece(head.probs(o).double().numpy(), y, labels)}
    return [_row(method, scores.merged(method), labels == y, known, novel) for method in methods]


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


def _row(
    method: Method, scores: Mapping[str, Tensor], correct: Any, known: Mapping[str, float], novel: list[str]
) -> dict[str, Any]:
    rejector = Rejector(FALSE_REJECT_RATE).fit(scores["calibration"])
    rejected = {name: float(rejector.rejects(scores[name]).double().mean()) for name in ("test", *novel)}
    row: dict[str, Any] = {"method": method.name, "network": method.network, **known}
    row |= {"false_reject_rate": rejected["test"], "novel": {}}
    for name in novel:
        values = metrics.summary(scores["test"].numpy(), scores[name].numpy(), correct)
        numbers = {"auroc": values["auroc"], "fpr95": values["fpr_at_tpr"], "oscr": values["oscr"]}
        row["novel"][name] = numbers | {"detected": rejected[name]}
    return row
