"""What attacks do to a classifier: the worst inputs, its accuracy against epsilon, and what a rejector lets pass."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from openradial.attacks.gradients import Network, look, undisturbed
from openradial.attacks.losses import HeadLoss, losses_for
from openradial.attacks.region import Limit
from openradial.attacks.search import Worst, pgd
from openradial.conformal import Rejector
from openradial.data.progress import Advance, bar
from openradial.errors import OptionError, check_count
from openradial.heads import Head
from openradial.scorers.base import check_labels

WORST = "worst"


class Attack(Protocol):
    """A function as :func:`fgsm` or :func:`pgd`; its other options are set by ``functools.partial``."""

    def __call__(self, net: Network, x: Tensor, y: Tensor, epsilon: Limit, *, loss: HeadLoss) -> Tensor: ...


@dataclass(frozen=True)
class AttackCurve:
    """Accuracy against epsilon, for each loss and for the worst of them, over ``count`` inputs."""

    epsilons: tuple[float, ...]
    accuracies: Mapping[str, tuple[float, ...]]
    count: int

    def rows(self) -> list[dict[str, float | str]]:
        """One row per epsilon and loss, the last of each epsilon is the worst."""
        return [
            {"epsilon": epsilon, "loss": loss, "accuracy": values[place]}
            for place, epsilon in enumerate(self.epsilons)
            for loss, values in self.accuracies.items()
        ]


@dataclass(frozen=True)
class Outcomes:
    """What became of ``count`` inputs, as shares that sum to 1."""

    accepted_right: float
    accepted_wrong: float
    rejected: float
    count: int

    def __str__(self) -> str:
        return (
            f"accepted and right {self.accepted_right:.4f}, accepted and wrong {self.accepted_wrong:.4f}, "
            f"rejected {self.rejected:.4f} of {self.count} inputs"
        )


def worst(
    net: Network,
    x: Tensor,
    y: Tensor,
    epsilon: Limit,
    losses: Mapping[str, HeadLoss],
    *,
    attack: Attack = pgd,
    batch_size: int = 256,
) -> Tensor:
    """The worst of several attacks for each input, ``(b, ...) -> (b, ...)``.

    Losses have different units, so their attacks are compared by what happens: those that fool the head (with a
    rejector: are accepted and wrong) come first, then the larger lead of a wrong class.

    Args:
        losses: as :func:`losses_for` gives them, all of one head.
        attack: :func:`pgd` or :func:`fgsm`, with options as ``functools.partial(pgd, steps=100, restarts=5)``.
        batch_size: how many inputs are attacked at a time; beyond rounding it changes memory and speed alone.
    """
    judge = _judge(losses)
    found = [x[:0].detach()]
    with bar("attacking", len(x) * len(losses), unit="inputs") as advance:
        for rows in _chunks(len(x), batch_size):
            with undisturbed(net, x):
                best = Worst(x[rows].detach(), y[rows], judge)
                for loss in losses.values():
                    attacked = attack(net, x[rows], y[rows], epsilon, loss=loss)
                    best.note(attacked, *look(net, attacked, best.y, judge))
                    advance(len(attacked))
            found.append(best.x)
    return torch.cat(found)


def accuracy_under_attack(
    net: Network,
    head: Head,
    x: Tensor,
    y: Tensor,
    epsilons: Sequence[float],
    *,
    attack: Attack = pgd,
    losses: Iterable[str] | None = None,
    unit: Limit = 1.0,
    batch_size: int = 256,
) -> AttackCurve:
    """Share of inputs that stay right under attacks of growing epsilon, for each loss and for the worst.

    The row ``"worst"`` counts an input as right only if no loss fools the head at this or a smaller epsilon: whoever
    may move an input far may also move it less. So this row never rises.

    Args:
        epsilons: numbers of at least 0 in rising order.
        attack: :func:`pgd` or :func:`fgsm`, with options as ``functools.partial(pgd, steps=100, restarts=5)``.
        losses: names out of :data:`LOSSES`; None for those of :func:`losses_for`.
        unit: what an epsilon of 1 is in units of the inputs: ``1 / std`` for normalised inputs.
        batch_size: how many inputs are attacked at a time; beyond rounding it changes memory and speed alone.

    >>> from openradial.heads import RadialHead
    >>> x, y = torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 0])
    >>> curve = accuracy_under_attack(torch.nn.Identity(), RadialHead(2), x, y, [0.0, 0.2, 0.5])
    >>> curve.accuracies["worst"]
    (1.0, 0.5, 0.0)
    """
    _check_epsilons(epsilons)
    if not len(x):
        raise OptionError("an accuracy needs at least one input, got none")
    check_labels(y, len(x), head.num_classes)
    chosen = losses_for(head, losses)
    right = torch.zeros(len(chosen) + 1, len(epsilons), dtype=torch.long)
    with bar("attacking", len(x) * len(epsilons) * len(chosen), unit="inputs") as advance:
        for rows in _chunks(len(x), batch_size):
            right += _still_right(net, x[rows], y[rows], [unit * e for e in epsilons], chosen, attack, advance)
    shares = [tuple(row) for row in (right.double() / len(x)).tolist()]
    return AttackCurve(tuple(map(float, epsilons)), dict(zip([*chosen, WORST], shares, strict=True)), len(x))


def outcomes(net: Network, head: Head, rejector: Rejector, x: Tensor, y: Tensor, *, batch_size: int = 1024) -> Outcomes:
    """What a classifier with a rejector does with inputs, attacked or not: right, wrong, or rejected.

    For the share that gets past an attacker who knows of the rejector, let :func:`worst` find the inputs, with
    ``losses_for(head, rejector=rejector)``.
    """
    if not len(x):
        raise OptionError("outcomes need at least one input, got none")
    check_labels(y, len(x), head.num_classes)
    right = wrong = 0
    for rows in _chunks(len(x), batch_size):
        with undisturbed(net, x), torch.no_grad():
            o = net(x[rows])
            decided = rejector.decide(head.unknown_score(o), head.predict(o))
        labels = y[rows].to(decided.device)
        right += int((decided == labels).sum())
        wrong += int(((decided != labels) & (decided >= 0)).sum())
    count = len(x)
    return Outcomes(right / count, wrong / count, (count - right - wrong) / count, count)


def _still_right(
    net: Network,
    x: Tensor,
    y: Tensor,
    epsilons: Sequence[Limit],
    losses: Mapping[str, HeadLoss],
    attack: Attack,
    advance: Advance,
) -> Tensor:
    """How many inputs stay right, ``(losses + 1, epsilons)``; the last row is the worst."""
    fooled = torch.zeros(len(losses) + 1, len(epsilons), len(x), dtype=torch.bool)
    for column, epsilon in enumerate(epsilons):
        for row, loss in enumerate(losses.values()):
            attacked = attack(net, x, y, epsilon, loss=loss)
            with undisturbed(net, x), torch.no_grad():
                fooled[row, column] = loss.fooled(net(attacked), y).cpu()
            advance(len(x))
    fooled[-1] = fooled[:-1].any(0).cummax(0).values
    return (~fooled).sum(-1)


def _judge(losses: Mapping[str, HeadLoss]) -> HeadLoss:
    """The lead of a wrong class: what attacks through different losses are compared by."""
    if not losses or not all(isinstance(loss, HeadLoss) for loss in losses.values()):
        raise OptionError("losses must be at least one HeadLoss by name, as losses_for(head) gives them")
    first = next(iter(losses.values()))
    if any(loss.head is not first.head or loss.rejector is not first.rejector for loss in losses.values()):
        raise OptionError("losses must all have the same head and the same rejector to be compared")
    return HeadLoss("margin", first.head, first.rejector)


def _check_epsilons(epsilons: Sequence[float]) -> None:
    rising = all(a < b for a, b in pairwise(epsilons))
    if not len(epsilons) or not rising:
        raise OptionError(f"epsilons must be at least one number, in rising order, got {list(epsilons)!r}")


def _chunks(count: int, size: int) -> Iterator[slice]:
    check_count("batch_size", size)
    return (slice(start, start + size) for start in range(0, count, size))
