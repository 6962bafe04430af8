"""Scorers that torch.export can trace, without data-dependent branches and chunks; the scores are the same."""

import torch
from torch import Tensor

from openradial.conformal import conformal_p_values
from openradial.scorers import Combination, NeighbourScorer, Scorer
from openradial.scorers.base import FeatureScorer
from openradial.scorers.combination import _fall
from openradial.scorers.neighbours import SPARE, NeighbourSearch

UNBOUNDED = 2**40  # rows at once: never split


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

    def nearest(self, z: Tensor, k: int, excluded: Tensor | None = None) -> Tensor:
        s = self._half_squares - (z.double() - self.centre) @ self._centred.T  # (b, n)
        candidates = s.topk(min(k + SPARE[torch.float64], len(self._exact)), 1, largest=False).indices
        differences = z.double().unsqueeze(1) - self._exact[candidates]  # (b, m, d)
        return differences.square().sum(2).sqrt().topk(k, 1, largest=False).values


class GraphNeighbours(NeighbourScorer):
    """Nearest neighbours among groups that are built before tracing."""

    def __init__(self, scorer: NeighbourScorer) -> None:
        super().__init__(**scorer.settings())
        self.restore(scorer.tensors())
        self._ready: list[tuple[Tensor, NeighbourSearch]] = [
            (at, GraphRows(group.rows)) for at, group in scorer._groups()
        ]

    def _groups(self) -> list[tuple[Tensor, NeighbourSearch]]:
        return self._ready


class GraphCombination(Combination):
    """A combination with the p-values of its calibration scores computed before tracing."""

    scores: Tensor  # (m * n,) sorted calibration scores of each column, concatenated
    p: Tensor  # (m, n) their p-values
    fall: Tensor  # (m, 1)

    def __init__(self, scorer: Combination) -> None:
        super().__init__(**scorer.settings())
        self.restore(scorer.tensors())
        columns = scorer.columns.T.double().contiguous()
        self.register_buffer("scores", columns.flatten())
        self.register_buffer("p", torch.stack([conformal_p_values(column, column) for column in columns]))
        self.register_buffer("fall", _fall(columns))

    def _log_p(self, scores: Tensor) -> Tensor:
        (m, n), wanted = self.p.shape, scores.T  # (m, b)
        start = n * torch.arange(m).unsqueeze(1)
        above = count_below(self.scores, wanted, start, n, n, or_equal=True)
        left, right = (above - 1).clamp_min(0), above.clamp_max(n - 1)
        low, high = self.scores[start + left], self.scores[start + right]
        share = ((wanted - low) / torch.where(high > low, high - low, 1.0)).clamp(0, 1)
        between = self.p.gather(1, left) + share * (self.p.gather(1, right) - self.p.gather(1, left))
        beyond = ((wanted - self.scores.view(m, n)[:, -1:]) / self.fall).clamp_min(0)
        return (between.log() - beyond).T
