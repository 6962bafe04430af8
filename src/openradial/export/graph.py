"""A bundle as one traceable module: prepared inputs and a rate in, all predictions out."""

import copy
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from openradial.classifier import OpenClassifier
from openradial.conformal import Rejector
from openradial.data.inputs import ImageInputs
from openradial.export.scorers import GraphCombination, count_below, traceable

INPUTS, RATE = "inputs", "false_reject_rate"


class Graph(nn.Module):
    """The computation of ``OpenClassifier.predict`` on prepared inputs, as an exportable module."""

    def __init__(self, model: OpenClassifier) -> None:
        super().__init__()
        copied = copy.deepcopy(model).requires_grad_(False).cpu()
        scorers = {
            layer: scorer if scorer is copied.head else traceable(scorer)
            for layer, scorer in copied.scorers_by_layer().items()
        }
        merge = None if copied.combination is None else GraphCombination(copied.combination)
        self.classifier = OpenClassifier(copied.net, copied.head, scorers=scorers, combination=merge)
        inputs = model.preprocessing
        self.transform: Callable[[Tensor], Tensor] = (
            Normalisation(inputs) if isinstance(inputs, ImageInputs) else inputs.transform
        )
        self.dtype = model.dtype
        self.rejector = None if copied.rejector is None else GraphRejector(copied.rejector)
        with torch.no_grad():
            probe = torch.zeros(1, copied.head.num_outputs, dtype=model.dtype)
            self.has_distances = copied.head.compute(probe).distances is not None
        self.eval()

    @property
    def outputs(self) -> tuple[str, ...]:
        """Return the names of the outputs, in order."""
        distance = ("distance",) if self.has_distances else ()
        decided = ("p_value", "decision") if self.rejector is not None else ("decision",)
        return ("log_probs", "nearest", *distance, "unknown_score", *decided)

    def forward(self, inputs: Tensor, false_reject_rate: Tensor) -> tuple[Tensor, ...]:
        x = self.transform(inputs)
        result = self.classifier.decide(x.to(self.dtype) if x.is_floating_point() else x)
        # clamping and sorting may lose NaN, which must reach the decision
        score = torch.where(result.log_probs.isnan().any(1), torch.nan, result.unknown_score)
        distance = []
        if result.distances is not None:
            distance = [result.distances.gather(1, result.nearest[:, None]).squeeze(1)]
        outputs = (result.log_probs, result.nearest, *distance, score)
        if self.rejector is None:
            return *outputs, result.nearest.clone()
        p_value, decision = self.rejector(score, result.nearest, false_reject_rate)
        return *outputs, p_value, decision


class Normalisation(nn.Module):
    """Normalise uint8 pixels, as :class:`openradial.data.Normalise` does."""

    factor: Tensor
    offset: Tensor

    def __init__(self, inputs: ImageInputs) -> None:
        super().__init__()
        mean, std = (np.asarray(values, np.float64).reshape(-1, 1, 1) for values in (inputs.mean, inputs.std))
        self.register_buffer("factor", torch.from_numpy((1 / (255.0 * std)).astype(np.float32)))
        self.register_buffer("offset", torch.from_numpy((-mean / std).astype(np.float32)))

    def forward(self, x: Tensor) -> Tensor:
        return x.float() * self.factor + self.offset


class GraphRejector(nn.Module):
    """The decisions of :class:`~openradial.conformal.Rejector` as operations on tensors.

    An input is rejected if its p-value is at most the rate, or its score is NaN or infinite. A rejector per class has
    one group of scores for each class.
    """

    values: Tensor  # (n,) scores of all groups, concatenated
    below: Tensor  # (n + groups,) examples up to each score; every group starts with 0
    kept: Tensor  # (groups,) scores of each group
    start: Tensor  # (groups,) index of its first score
    total: Tensor  # (groups,) examples of each group

    def __init__(self, rejector: Rejector) -> None:
        super().__init__()
        tensors = rejector.tensors()
        kept = tensors["kept"]
        ranks = torch.split(tensors["ranks"], kept.tolist())
        self.register_buffer("values", tensors["scores"].double())
        self.register_buffer("below", torch.cat([torch.cat([group.new_zeros(1), group]) for group in ranks]))
        self.register_buffer("kept", kept)
        self.register_buffer("total", torch.stack([group[-1] for group in ranks]))
        self.register_buffer("start", kept.cumsum(0) - kept)
        self.most, self.per_class = int(kept.max()), rejector.per_class

    def forward(self, score: Tensor, nearest: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
        """Return the p-value and the decision of each input, ``(b,), (b,), () -> (b,), (b,)``."""
        exact = score.double()
        ordered = torch.where(exact.isnan(), torch.inf, exact)
        group = nearest if self.per_class else torch.zeros_like(nearest)
        start = self.start[group]
        below = count_below(self.values, ordered, start, self.kept[group], self.most)
        count = 1 + self.total[group]
        p = (count - self.below[start + group + below]).double() / count.double()
        rejected = (p <= rate) | ~exact.isfinite()
        return p, torch.where(rejected, -1, nearest)
