"""Outliers made from the known examples of a batch, and an objective that pulls their outputs to the origin.

The origin has the same distance to every prototype, so an output there belongs to no class. No other data are needed.
Related to Objectosphere (Dhamija et al., 2018), which trains unknown inputs to small features, and to PROSER (Zhou et
al., 2021), which mixes classes into placeholders; both use softmax.
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


def halves(x: Tensor, other: Tensor) -> Tensor:
    """Join one half of an example and the other half of another.

    Images are cut horizontally or vertically at random; sequences and texts in the middle, without their padding.
    """
    if not _has_steps(x):
        axis = 2 if x.ndim == 4 and torch.rand(()) < 0.5 else x.ndim - 1
        middle = x.shape[axis] // 2
        return torch.cat([x.narrow(axis, 0, middle), other.narrow(axis, middle, x.shape[axis] - middle)], axis)
    others = _steps(other)
    first, second = (_steps(x) + 1) // 2, others // 2
    t = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)  # (n, t)
    moved = _at(other, (t - first + others - second).clamp(0, x.shape[1] - 1))
    padding = x.new_tensor(math.nan if x.is_floating_point() else 0)
    wide = (slice(None), slice(None), *[None] * (x.ndim - 2))
    return torch.where((t < first)[wide], x, torch.where((t < first + second)[wide], moved, padding))


def blocks(x: Tensor, other: Tensor) -> Tensor:
    """Shuffle the pieces of an example: 4 x 4 of an image, 8 of a sequence; the remainder is kept."""
    if x.ndim != 4:
        return _reordered_steps(x)
    n, c = x.shape[:2]
    pieces = [min(4, length) for length in x.shape[2:]]
    order = torch.rand(n, math.prod(pieces), device=x.device).argsort(1)  # (n, p * q)
    sizes = [length // p for length, p in zip(x.shape[2:], pieces, strict=True)]
    made = x.clone()
    inner = made[:, :, : pieces[0] * sizes[0], : pieces[1] * sizes[1]]
    cut = inner.reshape(n, c, pieces[0], sizes[0], pieces[1], sizes[1]).permute(0, 2, 4, 1, 3, 5)  # (n, p, q, c, h, w)
    rows = cut.reshape(n, order.shape[1], -1)  # (n, p * q, d)
    moved = rows.gather(1, order.unsqueeze(-1).expand_as(rows)).view(n, *pieces, c, *sizes)
    inner.copy_(moved.permute(0, 3, 1, 4, 2, 5).reshape(inner.shape))
    return made


def columns(x: Tensor, other: Tensor) -> Tensor:
    """Take each value from one of the two examples at random."""
    return torch.where(torch.rand_like(x, dtype=torch.float32) < 0.5, x, other)


def words(x: Tensor, other: Tensor) -> Tensor:
    """Take each word from one of the two texts at random; 0 is padding."""
    mixed = torch.where(torch.rand(x.shape, device=x.device) < 0.5, x, other)
    return torch.where((x == 0) | (other == 0), torch.maximum(x, other), mixed)


MAKERS: dict[str, Maker] = {
    "brightest": torch.maximum,
    "mean": lambda x, other: (x + other) / 2,
    "halves": halves,
    "blocks": blocks,
    "columns": columns,
    "words": words,
}


def make_outliers(x: Tensor, y: Tensor, kinds: Sequence[str]) -> Tensor:
    """Make outliers from pairs of different classes in a shuffled batch; each kind gets an equal share.

    Random numbers come from torch's global generator, whose state is part of a checkpoint.

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
    """Raise unless ``kinds`` names kinds of outliers."""
    if isinstance(kinds, str) or not kinds:
        raise OptionError(f"kinds must be a list of at least one kind of outlier, got {kinds!r}")
    for kind in kinds:
        check_choice("kinds of outliers", kind, MAKERS)


@dataclass(frozen=True)
class OutlierObjective:
    """A loss on the examples plus ``weight`` times the mean squared norm of the outputs of outliers made from them.

    Outliers are made only in training mode; in evaluation mode this is the plain loss. Examples and outliers go through
    the network as one batch, so that batch normalisation uses both.
    """

    loss: Loss
    kinds: Sequence[str]
    weight: float = 0.3  # chosen on known data alone: see docs/recipe.md
    metrics: Mapping[str, Metric] = field(default_factory=lambda: {"accuracy": correct})

    def __post_init__(self) -> None:
        check_kinds(self.kinds)
        check_positive("weight", self.weight)

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        made = make_outliers(x, y, self.kinds) if model.training else x[:0]
        o, far = model(torch.cat([x, made])).tensor_split([len(x)])
        loss = self.loss(o, y)
        if len(made):
            loss = loss + self.weight * far.square().sum(-1).mean()
        return loss, o


def _has_steps(x: Tensor) -> bool:
    """Return whether these are sequences ``(n, t, c)`` padded with NaN, or texts ``(n, t)`` padded with 0."""
    return x.ndim == 3 or (x.ndim == 2 and not x.is_floating_point())


def _steps(x: Tensor) -> Tensor:
    """Return the number of steps or words before the padding, ``(n, 1)``."""
    is_step = ~x.isnan().all(-1) if x.ndim == 3 else x != 0
    return is_step.sum(1, keepdim=True)


def _at(x: Tensor, indices: Tensor) -> Tensor:
    """Return the steps at the given indices of each row, ``(n, t)``."""
    return x.gather(1, indices if x.ndim == 2 else indices.unsqueeze(-1).expand_as(x))


def _reordered_steps(x: Tensor) -> Tensor:
    """Cut each row into 8 pieces, or as many as it has steps, and shuffle them."""
    steps = _steps(x) if _has_steps(x) else torch.full((len(x), 1), x.shape[1], device=x.device)
    pieces = steps.clamp(1, 8)
    size = (steps // pieces).clamp_min(1)  # (n, 1)
    late = torch.arange(8, device=x.device) >= pieces  # a short row has fewer pieces
    order = (torch.rand(len(x), 8, device=x.device) + late).argsort(1)  # (n, 8)
    t = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)
    moved = order.gather(1, (t // size).clamp_max(7)) * size + t % size
    return _at(x, torch.where(t < pieces * size, moved, t).clamp_max(x.shape[1] - 1))
