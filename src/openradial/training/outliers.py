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
from openradial.nn.objective import Loss, Metric, correct

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
    """One half of an example beside the other half of another.

    Images are cut across or along, by chance; sequences and texts in the middle of what they hold before the padding.
    """
    if _has_steps(x):
        return _joined(x, other)
    axis = 2 if x.ndim == 4 and torch.rand(()) < 0.5 else x.ndim - 1
    middle = x.shape[axis] // 2
    return torch.cat([x.narrow(axis, 0, middle), other.narrow(axis, middle, x.shape[axis] - middle)], axis)


def blocks(x: Tensor, other: Tensor) -> Tensor:
    """The pieces of an example in another order: 4 x 4 of an image, 8 of a sequence; what is left over stays."""
    if x.ndim != 4:
        return _reordered_steps(x)
    pieces = [min(4, length) for length in x.shape[2:]]
    order = torch.rand(len(x), math.prod(pieces), device=x.device).argsort(1)  # (n, p)
    sizes = [length // p for length, p in zip(x.shape[2:], pieces, strict=True)]
    made = x.clone()
    inner = made[:, :, : pieces[0] * sizes[0], : pieces[1] * sizes[1]]
    inner.copy_(_reordered_blocks(inner, order, pieces, sizes))
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


def _has_steps(x: Tensor) -> bool:
    """Whether these are sequences ``(n, t, c)``, which end in NaN, or texts ``(n, t)``, which end in 0."""
    return x.ndim == 3 or (x.ndim == 2 and not x.is_floating_point())


def _steps(x: Tensor) -> Tensor:
    """How many steps or words there are before the padding, ``(n, 1)``."""
    held = ~x.isnan().all(-1) if x.ndim == 3 else x != 0
    return held.sum(1, keepdim=True)


def _at(x: Tensor, places: Tensor) -> Tensor:
    """The steps at the given places of each row, ``(n, t)``."""
    return x.gather(1, places if x.ndim == 2 else places.unsqueeze(-1).expand_as(x))


def _joined(x: Tensor, other: Tensor) -> Tensor:
    """The first half of each row of ``x``, then the second half of the other one."""
    own, others = _steps(x), _steps(other)
    first, second = (own + 1) // 2, others // 2
    t = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)  # (n, t)
    moved = _at(other, (t - first + others - second).clamp(0, x.shape[1] - 1))
    padding = x.new_tensor(math.nan if x.is_floating_point() else 0)
    wide = (slice(None), slice(None), *[None] * (x.ndim - 2))
    return torch.where((t < first)[wide], x, torch.where((t < first + second)[wide], moved, padding))


def _reordered_steps(x: Tensor) -> Tensor:
    """Each row cut into 8 pieces, or as many as it has steps, which are put in another order."""
    steps = _steps(x) if _has_steps(x) else torch.full((len(x), 1), x.shape[1], device=x.device)
    pieces = steps.clamp(1, 8)
    size = (steps // pieces).clamp_min(1)  # (n, 1)
    late = torch.arange(8, device=x.device) >= pieces  # a short row has fewer pieces
    order = (torch.rand(len(x), 8, device=x.device) + late).argsort(1)  # (n, 8)
    t = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)
    moved = order.gather(1, (t // size).clamp_max(7)) * size + t % size
    return _at(x, torch.where(t < pieces * size, moved, t).clamp_max(x.shape[1] - 1))


def _reordered_blocks(x: Tensor, order: Tensor, pieces: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """The blocks of images ``(n, c, h, w)`` in the order of each row of ``order``."""
    n, c = x.shape[:2]
    cut = x.reshape(n, c, pieces[0], sizes[0], pieces[1], sizes[1]).permute(0, 2, 4, 1, 3, 5)  # (n, p, q, c, h, w)
    rows = cut.reshape(n, len(order[0]), -1)  # (n, p, d)
    moved = rows.gather(1, order.unsqueeze(-1).expand_as(rows)).view(n, *pieces, c, *sizes)
    return moved.permute(0, 3, 1, 4, 2, 5).reshape(x.shape)
