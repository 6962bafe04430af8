"""A bundle as one module that torch.export can trace: prepared inputs and a rate in, all predictions out.

It has no data-dependent branches and no chunks; its predictions are those of the bundle.
"""

import copy

import torch
from torch import Tensor, nn

from openradial.classifier import OpenClassifier
from openradial.conformal import Rejector
from openradial.encoders.networks import MixedEncoder
from openradial.scorers import Combination, NeighbourScorer, Scorer
from openradial.scorers.base import FeatureScorer
from openradial.scorers.neighbours import SPARE, NeighbourSearch

INPUTS, RATE = "inputs", "false_reject_rate"
UNBOUNDED = 2**40  # rows at once: never split


class Graph(nn.Module):
    """The computation of ``OpenClassifier.predict`` on prepared inputs, as an exportable module."""

    def __init__(self, model: OpenClassifier) -> None:
        super().__init__()
        copied = copy.deepcopy(model).requires_grad_(False).cpu()
        pairs = copied.layer_scorers()
        scorers = [(layer, scorer if scorer is copied.head else traceable(scorer)) for layer, scorer in pairs]
        merge = None if copied.combination is None else GraphCombination(copied.combination)
        far = None if copied.far_axis is None else traceable(copied.far_axis)
        self.classifier = OpenClassifier(
            copied.net, copied.head, scorers=scorers, combination=merge, far_axis=far, far_layer=copied.far_layer
        )
        self.transform = model.preprocessing.transform
        self.dtype = torch.float32 if isinstance(model.net, MixedEncoder) else model.dtype  # so that tokens stay exact
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
        outputs = [result.log_probs, result.nearest]
        if result.distances is not None:
            outputs.append(result.distances.gather(1, result.nearest[:, None]).squeeze(1))
        if self.rejector is None:
            return *outputs, score, result.nearest.clone()
        return *outputs, score, *self.rejector(score, result.nearest, false_reject_rate)


class GraphRejector(nn.Module):
    """The decisions of :class:`~openradial.conformal.Rejector` as operations on tensors.

    An input is rejected if its p-value is at most the rate, or its score is NaN or infinite. A rejector per class has
    one group of scores for each class.
    """

    def __init__(self, rejector: Rejector) -> None:
        super().__init__()
        tensors = rejector.tensors()
        self.kept = tensors["kept"]  # (groups,) scores of each group
        self.start = self.kept.cumsum(0) - self.kept  # (groups,) index of its first score
        self.values = tensors["scores"].double()  # (n,) scores of all groups, concatenated
        ranks = torch.split(tensors["ranks"], self.kept.tolist())
        self.total = torch.stack([group[-1] for group in ranks])  # (groups,) examples of each group
        # (n + groups,) examples up to each score; every group starts with 0
        self.below = torch.cat([torch.cat([group.new_zeros(1), group]) for group in ranks])
        self.most, self.per_class = int(self.kept.max()), rejector.per_class

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


def count_below(
    values: Tensor, scores: Tensor, start: Tensor | int, size: Tensor | int, most: int, *, or_equal: bool = False
) -> Tensor:
    """Count the sorted values below each score (or equal to it), ``(n,), (b,) -> (b,)``, by bisection.

    For each score, only the ``size`` values from ``start`` on count; ``most`` is the largest size. ONNX has no
    searchsorted, and comparing with all values would need b times n numbers.

    >>> count_below(torch.tensor([1.0, 2.0, 2.0, 5.0]), torch.tensor([2.0, 9.0]), start=0, size=4, most=4)
    tensor([1, 4])
    """
    count = torch.zeros_like(scores, dtype=torch.int64)
    for power in reversed(range(most.bit_length())):
        probe = count + 2**power
        value = values[(start + probe - 1).clamp(0, len(values) - 1)]
        is_below = value <= scores if or_equal else value < scores
        count = torch.where((probe <= size) & is_below, probe, count)
    return count


def traceable(scorer: Scorer) -> Scorer:
    """Return a scorer that can be traced; most can be traced unchanged."""
    if isinstance(scorer, NeighbourScorer):
        return GraphNeighbours(scorer)
    if isinstance(scorer, Combination):
        return GraphCombination(scorer)
    if isinstance(scorer, FeatureScorer):
        scorer._rows_at_once = lambda: UNBOUNDED  # type: ignore[method-assign]
    return scorer


class GraphRows(NeighbourSearch):
    """NeighbourSearch whose candidates are searched in float64, so that no second search is needed."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__(rows)
        self._centred, self._half_squares = (part[: len(rows)] for part in self._prepared(torch.float64))
        self._exact = rows.double()

    def nearest(self, z: Tensor, k: int, excluded: Tensor | None = None) -> tuple[Tensor, Tensor]:
        s = self._half_squares - (z.double() - self.centre) @ self._centred.T  # (b, n)
        candidates = s.topk(min(k + SPARE[torch.float64], len(self._exact)), 1, largest=False).indices
        differences = z.double().unsqueeze(1) - self._exact[candidates]  # (b, m, d)
        distances, order = differences.square().sum(2).sqrt().topk(k, 1, largest=False)
        return distances, candidates.gather(1, order)


class GraphNeighbours(NeighbourScorer):
    """Nearest neighbours with a search that is built before tracing."""

    def __init__(self, scorer: NeighbourScorer) -> None:
        super().__init__(**scorer.settings())
        self.restore(scorer.tensors())
        self._ready = GraphRows(scorer._search().rows)

    def _search(self) -> NeighbourSearch:
        return self._ready


class GraphCombination(Combination):
    """A combination with the p-values of its calibration scores computed before tracing."""

    def __init__(self, scorer: Combination) -> None:
        super().__init__(**scorer.settings())
        self.restore(scorer.tensors())
        self._ready = super()._calibrated()

    def _calibrated(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._ready

    def _ranks(self, columns: Tensor, scores: Tensor) -> Tensor:
        m, n = columns.shape
        start = n * torch.arange(m).unsqueeze(1)
        return count_below(columns.flatten(), scores, start, n, n, or_equal=True)
