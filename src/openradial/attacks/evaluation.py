"""Evaluation under attack: the worst inputs, accuracy against epsilon, and the decisions of a rejector."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Protocol

import torch
from torch import Tensor

from openradial.attacks.losses import HeadLoss, losses_for
from openradial.attacks.region import Limit
from openradial.attacks.search import OutputFunction, WorstPoints, losses_at, pgd, preserved_state
from openradial.conformal import Rejector
from openradial.data.progress import bar
from openradial.errors import OptionError, check_count
from openradial.heads import Head
from openradial.scorers.base import check_labels


class Attack(Protocol):
    """A function such as :func:`fgsm` or :func:`pgd`; set its other options with ``functools.partial``."""

    def __call__(self, net: OutputFunction, x: Tensor, y: Tensor, epsilon: Limit, *, loss: HeadLoss) -> Tensor: ...


@dataclass(frozen=True)
class AttackCurve:
    """Accuracy against epsilon, for each loss and for the worst of them, over ``count`` inputs."""

    epsilons: tuple[float, ...]
    accuracies: Mapping[str, tuple[float, ...]]
    count: int

    def rows(self) -> list[dict[str, float | str]]:
        """Return one row per epsilon and loss; the last of each epsilon is the worst."""
        return [
            {"epsilon": epsilon, "loss": loss, "accuracy": values[index]}
            for index, epsilon in enumerate(self.epsilons)
            for loss, values in self.accuracies.items()
        ]


@dataclass(frozen=True)
class Outcomes:
    """Shares of ``count`` inputs that sum to 1."""

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
    net: OutputFunction,
    x: Tensor,
    y: Tensor,
    epsilon: Limit,
    losses: Mapping[str, HeadLoss],
    *,
    attack: Attack = pgd,
    batch_size: int = 256,
) -> Tensor:
    """Return the worst of several attacks for each input, ``(b, ...) -> (b, ...)``.

    Losses have different units, so their attacks are compared by their outcome: those that fool the head (with a
    rejector: are accepted and wrong) come first, then the larger lead of a wrong class.

    Args:
        losses: from :func:`losses_for`, all of one head.
        attack: :func:`pgd` or :func:`fgsm`, with options as ``functools.partial(pgd, steps=100, restarts=5)``.
        batch_size: number of inputs attacked at a time; apart from rounding it affects memory and speed only.
    """
    if not losses or not all(isinstance(loss, HeadLoss) for loss in losses.values()):
        raise OptionError("losses must be at least one HeadLoss by name, as losses_for(head) returns")
    first = next(iter(losses.values()))
    if any(loss.head is not first.head or loss.rejector is not first.rejector for loss in losses.values()):
        raise OptionError("losses must all have the same head and the same rejector to be compared")
    judge = HeadLoss("margin", first.head, first.rejector)
    parts = [x[:0].detach()]
    with bar("attacking", len(x) * len(losses), unit="inputs") as advance:
        for rows in _chunks(len(x), batch_size):
            with preserved_state(net, x):
                best = WorstPoints(x[rows].detach(), y[rows], judge)
                for loss in losses.values():
                    attacked = attack(net, x[rows], y[rows], epsilon, loss=loss)
                    best.update(attacked, *losses_at(net, attacked, best.y, judge))
                    advance(len(attacked))
            parts.append(best.x)
    return torch.cat(parts)


def accuracy_under_attack(
    net: OutputFunction,
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
    """Return the share of inputs that stay right under attacks of growing epsilon, for each loss and for the worst.

    The row ``"worst"`` counts an input as right only if no loss fools the head at this or a smaller epsilon, so it
    never increases with epsilon.

    Args:
        epsilons: numbers of at least 0 in ascending order.
        attack: see :func:`worst`, as ``batch_size``.
        losses: names out of :data:`LOSSES`; None for those of :func:`losses_for`.
        unit: what an epsilon of 1 is in units of the inputs: ``1 / std`` for normalised inputs.

    >>> from openradial.heads import RadialHead
    >>> x, y = torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 0])
    >>> curve = accuracy_under_attack(torch.nn.Identity(), RadialHead(2), x, y, [0.0, 0.2, 0.5])
    >>> curve.accuracies["worst"]
    (1.0, 0.5, 0.0)
    """
    if not len(epsilons) or not all(a < b for a, b in pairwise(epsilons)):
        raise OptionError(f"epsilons must be at least one number, in ascending order, got {list(epsilons)!r}")
    if not len(x):
        raise OptionError("an accuracy needs at least one input, got none")
    check_labels(y, len(x), head.num_classes)
    selected = losses_for(head, losses)
    fooled = torch.zeros(len(selected) + 1, len(epsilons), len(x), dtype=torch.bool)
    with bar("attacking", len(x) * len(epsilons) * len(selected), unit="inputs") as advance:
        for rows in _chunks(len(x), batch_size):
            for (column, epsilon), (row, loss) in product(enumerate(epsilons), enumerate(selected.values())):
                attacked = attack(net, x[rows], y[rows], unit * epsilon, loss=loss)
                with preserved_state(net, x), torch.no_grad():
                    fooled[row, column, rows] = loss.fooled(net(attacked), y[rows]).cpu()
                advance(len(attacked))
    fooled[-1] = fooled[:-1].any(0).cummax(0).values
    shares = [tuple(row) for row in (~fooled).double().mean(-1).tolist()]
    return AttackCurve(tuple(map(float, epsilons)), dict(zip([*selected, "worst"], shares, strict=True)), len(x))


def outcomes(
    net: OutputFunction, head: Head, rejector: Rejector, x: Tensor, y: Tensor, *, batch_size: int = 1024
) -> Outcomes:
    """Return the shares of inputs, attacked or not, that a classifier accepts rightly, accepts wrongly, or rejects.

    For an attacker who knows the rejector, use the inputs of :func:`worst` with
    ``losses_for(head, rejector=rejector)``.
    """
    if not len(x):
        raise OptionError("outcomes need at least one input, got none")
    check_labels(y, len(x), head.num_classes)
    right = wrong = 0
    for rows in _chunks(len(x), batch_size):
        with preserved_state(net, x), torch.no_grad():
            result = head.compute(net(x[rows]))
            decided = rejector.decide(result.unknown_score, result.labels)
        labels = y[rows].to(decided.device)
        right += int((decided == labels).sum())
        wrong += int(((decided != labels) & (decided >= 0)).sum())
    count = len(x)
    return Outcomes(right / count, wrong / count, (count - right - wrong) / count, count)


def _chunks(count: int, size: int) -> Iterator[slice]:
    check_count("batch_size", size)
    return (slice(start, start + size) for start in range(0, count, size))
