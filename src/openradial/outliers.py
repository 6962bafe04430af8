"""Outliers made from the known examples of a batch, and an objective that pulls their outputs to the origin.

The origin is equally far from every prototype, so an input that is put there belongs to no class. Nothing but the batch
is needed. Kin to Objectosphere (Dhamija et al., 2018), which pulls unknown inputs to small features, and to PROSER
(Zhou et al., 2021), which mixes classes into placeholders; both use softmax.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from openradial.errors import OptionError, check_choice, check_positive
from openradial.objective import Loss, Metric, correct

Maker = Callable[[Tensor, Tensor], Tensor]  # examples and as many of other classes -> outliers

DEFAULTS: dict[str, tuple[str, ...]] = {
    "images": ("brightest", "mean", "halves", "blocks"),
    "sequences": ("mean", "halves", "blocks"),
    "table": ("mean", "columns"),
    "points": ("mean",),
    "texts": ("halves", "words"),
}


def brightest(x: Tensor, other: Tensor) -> Tensor:
    """Two examples on top of each other: the larger value everywhere."""
    return torch.maximum(x, other)


def mean(x: Tensor, other: Tensor) -> Tensor:
    """Half-way between two examples."""
    return (x + other) / 2


def halves(x: Tensor, other: Tensor) -> Tensor:
    """One half of an example beside the other half of another; images are cut across or along, by chance."""
    axis = _last_or_rows(x)
    return torch.cat([_first_half(x, axis), _second_half(other, axis)], axis)


def blocks(x: Tensor, other: Tensor) -> Tensor:
    """The pieces of an example in another order: 4 x 4 of an image, 8 of a sequence; what is left over stays."""
    dims = (2, 3) if x.ndim == 4 else (1,)
    pieces = [min(4 if x.ndim == 4 else 8, x.shape[dim]) for dim in dims]
    order = torch.rand(len(x), math.prod(pieces), device=x.device).argsort(1)  # (n, p)
    sizes = [x.shape[dim] // p for dim, p in zip(dims, pieces, strict=True)]
    made = x.clone()
    inner = made
    for dim, length in zip(dims, (p * s for p, s in zip(pieces, sizes, strict=True)), strict=True):
        inner = inner.narrow(dim, 0, length)
    inner.copy_(_reordered(inner, order, pieces, sizes))
    return made


def columns(x: Tensor, other: Tensor) -> Tensor:
    """Each value of one example or of the other, by chance."""
    return torch.where(torch.rand_like(x, dtype=torch.float32) < 0.5, x, other)


def words(x: Tensor, other: Tensor) -> Tensor:
    """Each word from one text or from the other, by chance; 0 is no word."""
    chosen = torch.where(torch.rand(x.shape, device=x.device) < 0.5, x, other)
    return torch.where((x == 0) | (other == 0), torch.maximum(x, other), chosen)


MAKERS: dict[str, Maker] = {
    "brightest": brightest,
    "mean": mean,
    "halves": halves,
    "blocks": blocks,
    "columns": columns,
    "words": words,
}


def make_outliers(x: Tensor, y: Tensor, kinds: Sequence[str]) -> Tensor:
    """Outliers from neighbours of different classes in a random order of the batch; each kind makes its share.

    Random numbers come from torch's global generator, which a training run keeps and restores.

    >>> x, y = torch.eye(3), torch.arange(3)
    >>> make_outliers(x, y, ["mean"]).sum(1).unique()
    tensor([1.])
    """
    check_kinds(kinds)
    order = torch.randperm(len(y), device=y.device)
    partner = order.roll(1)
    apart = y[order] != y[partner]
    rows, others = order[apart].tensor_split(len(kinds)), partner[apart].tensor_split(len(kinds))
    made = [MAKERS[kind](x[a], x[b]) for kind, a, b in zip(kinds, rows, others, strict=True) if len(a)]
    return torch.cat(made) if made else x[:0]


def check_kinds(kinds: Sequence[str]) -> None:
    if isinstance(kinds, str) or not kinds:
        raise OptionError(f"kinds must be a list of at least one kind of outlier, got {kinds!r}")
    for kind in kinds:
        check_choice("kinds of outliers", kind, MAKERS)


@dataclass(frozen=True)
class OutlierObjective:
    """A loss on the examples plus ``weight`` times the mean squared norm of the outputs of outliers made from them.

    Outliers are made while training only: on other data it is the plain loss. Examples and outliers pass the network as
    one batch, so that layers which look at the batch see both.
    """

    loss: Loss
    kinds: Sequence[str]
    weight: float = 0.3  # chosen on known data alone: see docs/recipe.md
    metrics: Mapping[str, Metric] = field(default_factory=lambda: {"accuracy": correct})

    def __post_init__(self) -> None:
        check_kinds(self.kinds)
        check_positive("weight", self.weight)

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if not model.training:
            o = model(x)
            return self.loss(o, y), o
        made = make_outliers(x, y, self.kinds)
        o, far = model(torch.cat([x, made])).tensor_split([len(x)])
        loss = self.loss(o, y)
        if len(made):
            loss = loss + self.weight * far.square().sum(-1).mean()
        return loss, o


def _last_or_rows(x: Tensor) -> int:
    """The axis to cut: the last one, of an image by chance its rows."""
    if x.ndim == 4 and torch.rand(()) < 0.5:
        return 2
    return 1 if x.ndim == 3 else x.ndim - 1


def _first_half(x: Tensor, axis: int) -> Tensor:
    return x.narrow(axis, 0, x.shape[axis] // 2)


def _second_half(x: Tensor, axis: int) -> Tensor:
    start = x.shape[axis] // 2
    return x.narrow(axis, start, x.shape[axis] - start)


def _reordered(x: Tensor, order: Tensor, pieces: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """Blocks of an image ``(n, c, h, w)`` or a sequence ``(n, t, c)`` in the order of each row of ``order``."""
    if x.ndim == 4:
        n, c = x.shape[:2]
        cut = x.reshape(n, c, pieces[0], sizes[0], pieces[1], sizes[1]).permute(0, 2, 4, 1, 3, 5)  # (n, p, q, c, h, w)
        moved = _taken(cut.reshape(n, len(order[0]), -1), order).view(n, *pieces, c, *sizes)
        return moved.permute(0, 3, 1, 4, 2, 5).reshape(x.shape)
    return _taken(x.reshape(len(x), pieces[0], -1), order).view(x.shape)


def _taken(rows: Tensor, order: Tensor) -> Tensor:
    return rows.gather(1, order.unsqueeze(-1).expand_as(rows))  # (n, p, d)
