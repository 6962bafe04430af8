"""Scorers in a form that a graph can hold: no choice by values, no cutting into parts. The same scores come out."""

import torch
from torch import Tensor

from openradial.conformal import conformal_p_values
from openradial.export.rejection import count_below
from openradial.scorers import Combination, NeighbourScorer, Scorer
from openradial.scorers.base import FeatureScorer
from openradial.scorers.combination import _fall
from openradial.scorers.neighbours import SPARE, NeighbourSearch

ENDLESS = 2**40  # rows at once: never cut


def traceable(scorer: Scorer) -> Scorer:
    """A scorer that can be traced; most can be as they are."""
    if isinstance(scorer, NeighbourScorer):
        return GraphNeighbours(scorer)
    if isinstance(scorer, Combination):
        return GraphCombination(scorer)
    if isinstance(scorer, FeatureScorer):
        scorer._rows_at_once = lambda: ENDLESS  # type: ignore[method-assign]
    return scorer


class GraphRows(NeighbourSearch):
    """Rows whose neighbours are proposed in float64 at once, so that it takes no proof and no second search."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__(rows)
        self._centred, self._half_squares = (part[: len(rows)] for part in self._prepared(torch.float64))
        self._exact = rows.double()

    def nearest(self, z: Tensor, k: int, excluded: Tensor | None = None) -> Tensor:
        s = self._half_squares - (z.double() - self.centre) @ self._centred.T  # (b, n)
        places = s.topk(min(k + SPARE[torch.float64], len(self._exact)), 1, largest=False).indices
        differences = z.double().unsqueeze(1) - self._exact[places]  # (b, m, d)
        return differences.square().sum(2).sqrt().topk(k, 1, largest=False).values


class GraphNeighbours(NeighbourScorer):
    """Nearest neighbours among groups that are made before tracing."""

    def __init__(self, scorer: NeighbourScorer) -> None:
        super().__init__(**scorer.settings())
        self.restore(scorer.tensors())
        self._ready: list[tuple[Tensor, NeighbourSearch]] = [
            (at, GraphRows(group.rows)) for at, group in scorer._groups()
        ]

    def _groups(self) -> list[tuple[Tensor, NeighbourSearch]]:
        return self._ready


class GraphCombination(Combination):
    """A combination whose p-values of the calibration scores are computed before tracing."""

    scores: Tensor  # (m * n,) the calibration scores of each column, rising, one column after the other
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
