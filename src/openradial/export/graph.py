"""A whole bundle as one module of tensors: prepared inputs and a rate in, everything that is said of them out."""

import copy

import numpy as np
import torch
from torch import Tensor, nn

from openradial.bundle import Bundle, ImageInputs, Inputs
from openradial.bundle.bundle import nearest_distance
from openradial.classifier import OpenClassifier
from openradial.export.rejection import GraphRejector
from openradial.export.scorers import GraphCombination, traceable
from openradial.heads import RadialHead
from openradial.scorers import Scorer

INPUTS, RATE = "inputs", "false_reject_rate"


class Graph(nn.Module):
    """What :meth:`openradial.bundle.Bundle.predict` computes of prepared inputs, in a form that can be exported."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__()
        whole = copy.deepcopy(bundle.classifier).requires_grad_(False).cpu()
        pairs = zip(whole.places, whole.scorers, strict=True)
        scorers = {place: traceable(scorer) for place, scorer in pairs if isinstance(scorer, Scorer)}
        merge = None if whole.combination is None else GraphCombination(whole.combination)
        self.classifier = OpenClassifier(whole.net, whole.head, scorers=scorers, combination=merge)
        self.transform, self.dtype = _transform(bundle.preprocessing), bundle.dtype
        self.rejector = None if whole.rejector is None else GraphRejector(whole.rejector)
        self.eval()

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what comes out, in its order."""
        distance = ("distance",) if isinstance(self.classifier.head, RadialHead) else ()
        decided = ("p_value", "decision") if self.rejector is not None else ("decision",)
        return ("log_probs", "nearest", *distance, "unknown_score", *decided)

    def forward(self, inputs: Tensor, false_reject_rate: Tensor) -> tuple[Tensor, ...]:
        x = self.transform(inputs)
        answer = self.classifier.answer(x.to(self.dtype) if x.is_floating_point() else x)
        # nan must reach the decision, and what clamps or sorts elsewhere may lose it
        score = torch.where(answer.log_probs.isnan().any(1), torch.nan, answer.unknown_score)
        distance = nearest_distance(self.classifier.head, answer)
        said = (answer.log_probs, answer.nearest, *([] if distance is None else [distance]), score)
        if self.rejector is None:
            return *said, answer.nearest.clone()
        p_value, decision = self.rejector(score, answer.nearest, false_reject_rate)
        return *said, p_value, decision


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
