"""Attacks that know the head: several losses, the worst of them, and what a rejector does with attacked inputs.

A distance head that is attacked through one loss alone can look more robust than it is.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openradial.conformal import Rejector
from openradial.heads import Head, RadialHead, SoftmaxHead

BATCH = 256  # inputs that are attacked at a time


def target(head: Head, o: Tensor, y: Tensor) -> Tensor:
    r"""Return minus the log-probability of the target, :math:`-\log p_y`; for a radial head it is :math:`\beta d_y`.

    While the target wins, increasing it also lowers the winning probability fastest.
    """
    return -_of_target(head.log_probs(o), y)


def cross_entropy(head: Head, o: Tensor, y: Tensor) -> Tensor:
    r"""Return the cross-entropy, for a radial head :math:`\beta d_y + \log \sum_k e^{-\beta d_k}`.

    Unlike :func:`target` it depends on which class is nearer only, not on how far away all of them are.
    """
    return -_of_target(F.log_softmax(head.log_probs(o), -1), y)


def margin(head: Head, o: Tensor, y: Tensor) -> Tensor:
    r"""Return the lead of the best other class, :math:`\max_{k \ne y} \log p_k - \log p_y`.

    Above 0 where a wrong class wins. It has a gradient also where a confident network leaves the others none.
    """
    log_probs = head.log_probs(o)
    return _best_other(log_probs, y) - _of_target(log_probs, y)


def accepted(head: Head, o: Tensor, y: Tensor) -> Tensor:
    r"""Return how much an input looks like a known one of a wrong class, so that a rejector accepts it.

    For a radial head :math:`-\beta \min_{k \ne y} d_k`, the distance to the nearest wrong prototype; for others the
    log-probability of the best wrong class among the classes, minus the unknown score.
    """
    if isinstance(head, RadialHead):
        return _best_other(head.log_probs(o), y)
    return _best_other(F.log_softmax(head.log_probs(o), -1), y) - head.unknown_score(o)


LOSSES: dict[str, Callable[[Head, Tensor, Tensor], Tensor]] = {
    loss.__name__: loss for loss in (target, cross_entropy, margin, accepted)
}


@dataclass(frozen=True)
class HeadLoss:
    """One of :data:`LOSSES` for a head, ``(b, k), (b,) -> (b,)``, which also decides when an attack has succeeded."""

    name: str
    head: Head
    rejector: Rejector | None = None

    def __call__(self, o: Tensor, y: Tensor) -> Tensor:
        return LOSSES[self.name](self.head, o, y)

    def fooled(self, o: Tensor, y: Tensor) -> Tensor:
        """Return where a wrong class is predicted, and accepted by the rejector; ``(b, k), (b,) -> (b,)`` of bool."""
        if self.rejector is None:
            return self.head.predict(o) != y
        result = self.head.compute(o)
        rejected: Tensor = self.rejector.rejects(result.unknown_score, result.labels)
        return (result.labels != y) & ~rejected


Attack = Callable[[nn.Module, Tensor, Tensor, float, HeadLoss], Tensor]


@dataclass(frozen=True)
class Outcomes:
    """Shares of inputs that sum to 1."""

    accepted_right: float
    accepted_wrong: float
    rejected: float


def losses_for(head: Head, rejector: Rejector | None = None) -> dict[str, HeadLoss]:
    """Return all losses that differ for this head, by name; for softmax, ``target`` is ``cross_entropy``."""
    names = [name for name in LOSSES if not (name == "target" and isinstance(head, SoftmaxHead))]
    return {name: HeadLoss(name, head, rejector) for name in names}


def worst(
    net: nn.Module, x: Tensor, y: Tensor, epsilon: float, losses: Mapping[str, HeadLoss], attack: Attack
) -> Tensor:
    """Return the worst of several attacks for each input, ``(b, ...) -> (b, ...)``.

    Losses have different units, so their attacks are compared by their outcome: those that fool the head (with a
    rejector: are accepted and wrong) come first, then the larger lead of a wrong class.
    """
    first = next(iter(losses.values()))
    judge, worst = HeadLoss("margin", first.head, first.rejector), x.clone()
    for rows in _parts(len(x)):
        labels = y[rows]
        value, won = torch.full(labels.shape, -torch.inf, dtype=x.dtype), torch.zeros(labels.shape, dtype=torch.bool)
        for loss in losses.values():
            moved = attack(net, x[rows], labels, epsilon, loss)
            with torch.no_grad():
                o = net(moved)
                wins, lead = judge.fooled(o, labels), judge(o, labels)
            worse = (wins & ~won) | ((wins == won) & (lead > value))
            worst[rows][worse], value[worse], won = moved[worse], lead[worse], won | wins
    return worst


def accuracy_under_attack(
    net: nn.Module,
    head: Head,
    x: Tensor,
    y: Tensor,
    epsilons: Sequence[float],
    attack: Attack,
    losses: Iterable[str] | None = None,
) -> dict[str, list[float]]:
    """Return the share of inputs that stay right under attacks of growing epsilon, for each loss and for the worst.

    The row ``"worst"`` counts an input as right only if no loss fools the head at this or a smaller epsilon, so it
    never increases with epsilon. ``losses`` are names out of :data:`LOSSES`; None for those of :func:`losses_for`.
    """
    selected = losses_for(head) if losses is None else {name: HeadLoss(name, head) for name in losses}
    fooled = torch.zeros(len(selected) + 1, len(epsilons), len(x), dtype=torch.bool)
    for rows in _parts(len(x)):
        for (column, epsilon), (row, loss) in product(enumerate(epsilons), enumerate(selected.values())):
            attacked = attack(net, x[rows], y[rows], epsilon, loss)
            with torch.no_grad():
                fooled[row, column, rows] = loss.fooled(net(attacked), y[rows])
    fooled[-1] = fooled[:-1].any(0).cummax(0).values
    shares: list[list[float]] = (~fooled).double().mean(-1).tolist()
    return dict(zip([*selected, "worst"], shares, strict=True))


@torch.no_grad()
def outcomes(net: nn.Module, head: Head, rejector: Rejector, x: Tensor, y: Tensor) -> Outcomes:
    """Return the shares of inputs, attacked or not, that a classifier accepts rightly, accepts wrongly, or rejects."""
    right = wrong = 0
    for rows in _parts(len(x)):
        result = head.compute(net(x[rows]))
        decided = rejector.decide(result.unknown_score, result.labels)
        right += int((decided == y[rows]).sum())
        wrong += int(((decided != y[rows]) & (decided >= 0)).sum())
    return Outcomes(right / len(x), wrong / len(x), (len(x) - right - wrong) / len(x))


def _of_target(log_probs: Tensor, y: Tensor) -> Tensor:
    return log_probs.gather(-1, y.long().unsqueeze(-1)).squeeze(-1)


def _best_other(log_probs: Tensor, y: Tensor) -> Tensor:
    return log_probs.scatter(-1, y.long().unsqueeze(-1), -torch.inf).amax(-1)


def _parts(count: int) -> Iterator[slice]:
    return (slice(start, start + BATCH) for start in range(0, count, BATCH))
