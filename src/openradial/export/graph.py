"""A classifier as one module of tensors: prepared inputs and a rate in, all results out."""

import copy

import numpy as np
import torch
from torch import Tensor, nn

from openradial.classifier import OpenClassifier
from openradial.data.inputs import ImageInputs, Inputs
from openradial.export.rejection import GraphRejector
from openradial.export.scorers import GraphCombination, traceable

INPUTS, RATE = "inputs", "false_reject_rate"


class Graph(nn.Module):
    """What ``OpenClassifier.predict`` computes from prepared inputs, in a form that can be exported."""

    def __init__(self, model: OpenClassifier) -> None:
        super().__init__()
        copied = copy.deepcopy(model).requires_grad_(False).cpu()
        scorers = {
            layer: scorer if scorer is copied.head else traceable(scorer)
            for layer, scorer in copied.scorers_by_layer().items()
        }
        merge = None if copied.combination is None else GraphCombination(copied.combination)
        self.classifier = OpenClassifier(copied.net, copied.head, scorers=scorers, combination=merge)
        self.transform, self.dtype = _transform(model.preprocessing), model.dtype
        self.rejector = None if copied.rejector is None else GraphRejector(copied.rejector)
        with torch.no_grad():
            probe = torch.zeros(1, copied.head.num_outputs, dtype=model.dtype)
            self.has_distances = copied.head.compute(probe).distances is not None
        self.eval()

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, in order."""
        distance = ("distance",) if self.has_distances else ()
        decided = ("p_value", "decision") if self.rejector is not None else ("decision",)
        return ("log_probs", "nearest", *distance, "unknown_score", *decided)

    def forward(self, inputs: Tensor, false_reject_rate: Tensor) -> tuple[Tensor, ...]:
        x = self.transform(inputs)
        result = self.classifier.decide(x.to(self.dtype) if x.is_floating_point() else x)
        # nan must reach the decision, and what clamps or sorts elsewhere may lose it
        score = torch.where(result.log_probs.isnan().any(1), torch.nan, result.unknown_score)
        distance = []
        if result.distances is not None:
            distance = [result.distances.gather(1, result.nearest[:, None]).squeeze(1)]
        values = (result.log_probs, result.nearest, *distance, score)
        if self.rejector is None:
            return *values, result.nearest.clone()
        p_value, decision = self.rejector(score, result.nearest, false_reject_rate)
        return *values, p_value, decision


class Pixels(nn.Module):
    """uint8 pixels normalised, as :class:`openradial.data.Normalise` does it."""

    factor: Tensor
    offset: Tensor

    def __init__(self, inputs: ImageInputs) -> None:
        super().__init__()
        mean, std = (np.asarray(values, np.float64).reshape(-1, 1, 1) for values in (inputs.mean, inputs.std))
        self.register_buffer("factor", torch.from_numpy((1 / (255.0 * std)).astype(np.float32)))
        self.register_buffer("offset", torch.from_numpy((-mean / std).astype(np.float32)))

    def forward(self, x: Tensor) -> Tensor:
        return x.float() * self.factor + self.offset


class Prepared(nn.Module):
    """Any other inputs, by their own transform."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.inputs = inputs

    def forward(self, x: Tensor) -> Tensor:
        return self.inputs.transform(x)


def _transform(inputs: Inputs) -> nn.Module:
    return Pixels(inputs) if isinstance(inputs, ImageInputs) else Prepared(inputs)
