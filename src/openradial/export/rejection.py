"""The rejector as a graph: p-values and decisions from constants, without a loop over inputs."""

import torch
from torch import Tensor, nn

from openradial.conformal import Rejector


def count_below(
    values: Tensor, scores: Tensor, start: Tensor | int, size: Tensor | int, most: int, *, or_equal: bool = False
) -> Tensor:
    """How many of some rising values are below each score (or equal to it), ``(n,), (b,) -> (b,)``, by bisection.

    For each score, the ``size`` values from ``start`` on count; ``most`` is the largest size. ONNX has no search in
    sorted values, and comparing with all of them would take b times n numbers.

    >>> count_below(torch.tensor([1.0, 2.0, 2.0, 5.0]), torch.tensor([2.0, 9.0]), start=0, size=4, most=4)
    tensor([1, 4])
    """
    found = torch.zeros_like(scores, dtype=torch.int64)
    for power in reversed(range(most.bit_length())):
        probe = found + 2**power
        value = values[(start + probe - 1).clamp(0, len(values) - 1)]
        is_below = value <= scores if or_equal else value < scores
        found = torch.where((probe <= size) & is_below, probe, found)
    return found


class GraphRejector(nn.Module):
    """What :class:`~openradial.conformal.Rejector` decides, of tensors alone.

    An input is rejected where its p-value is at most the rate, or its score is nan or infinite. A rejector per class
    has one group of scores for each class, as every bundle's rejector has.
    """

    values: Tensor  # (n,) the scores of all groups, one after the other
    below: Tensor  # (n + groups,) examples up to each of them; every group starts with 0
    kept: Tensor  # (groups,) scores of each group
    start: Tensor  # (groups,) place of its first one
    total: Tensor  # (groups,) examples of each group

    def __init__(self, rejector: Rejector) -> None:
        super().__init__()
        tensors = rejector.tensors()
        kept = tensors["kept"]
        ranks = torch.split(tensors["ranks"], kept.tolist())
        self.register_buffer("values", tensors["scores"].double())
        self.register_buffer("below", torch.cat([torch.cat([own.new_zeros(1), own]) for own in ranks]))
        self.register_buffer("kept", kept)
        self.register_buffer("total", torch.stack([own[-1] for own in ranks]))
        self.register_buffer("start", kept.cumsum(0) - kept)
        self.most, self.per_class = int(kept.max()), rejector.per_class

    def forward(self, score: Tensor, nearest: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
        """The p-value and the decision of each input, ``(b,), (b,), () -> (b,), (b,)``."""
        exact = score.double()
        ordered = torch.where(exact.isnan(), torch.inf, exact)
        group = nearest if self.per_class else torch.zeros_like(nearest)
        start = self.start[group]
        place = count_below(self.values, ordered, start, self.kept[group], self.most)
        count = 1 + self.total[group]
        p = (count - self.below[start + group + place]).double() / count.double()
        rejected = (p <= rate) | ~exact.isfinite()
        return p, torch.where(rejected, -1, nearest)
