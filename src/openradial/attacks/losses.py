"""Losses that an attack on a head increases: one value per input, larger is worse for the classifier."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from openradial.conformal import Rejector
from openradial.errors import OptionError, check_choice
from openradial.heads import Head, RadialHead, SoftmaxHead
from openradial.scorers.base import check_labels


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
    """One of :data:`LOSSES` for a head, ``(b, k), (b,) -> (b,)``, which also decides when an attack has succeeded.

    >>> from openradial.heads import RadialHead
    >>> loss = HeadLoss("target", RadialHead(2))
    >>> o, y = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0])
    >>> loss(o, y), loss.fooled(o, y)
    (tensor([0.0000, 1.4142]), tensor([False,  True]))
    """

    name: str
    head: Head
    rejector: Rejector | None = None

    def __post_init__(self) -> None:
        check_choice("loss", self.name, LOSSES)
        if not isinstance(self.head, Head):
            raise OptionError(f"head must be a head of openradial.heads, got {type(self.head).__name__}")

    def __call__(self, o: Tensor, y: Tensor) -> Tensor:
        check_labels(y, len(o), self.head.num_classes)
        return LOSSES[self.name](self.head, o, y)

    def fooled(self, o: Tensor, y: Tensor) -> Tensor:
        """Return where a wrong class is predicted, and accepted by the rejector; ``(b, k), (b,) -> (b,)`` of bool."""
        if self.rejector is None:
            return self.head.predict(o) != y
        result = self.head.compute(o)
        wrong = result.labels != y
        rejected: Tensor = self.rejector.rejects(result.unknown_score, result.labels)
        return wrong & ~rejected.to(wrong.device)


def losses_for(head: Head, names: Iterable[str] | None = None, rejector: Rejector | None = None) -> dict[str, HeadLoss]:
    """Return losses by name; by default all that differ for this head (for softmax, ``target`` is ``cross_entropy``).

    >>> from openradial.heads import RadialHead
    >>> list(losses_for(RadialHead(3)))
    ['target', 'cross_entropy', 'margin', 'accepted']
    """
    if names is None:
        names = [name for name in LOSSES if not (name == "target" and isinstance(head, SoftmaxHead))]
    selected = [names] if isinstance(names, str) else list(names)
    if not selected:
        raise OptionError(f"losses must name at least one of {', '.join(map(repr, LOSSES))}, got none")
    return {name: HeadLoss(name, head, rejector) for name in selected}


def _of_target(log_probs: Tensor, y: Tensor) -> Tensor:
    return log_probs.gather(-1, y.long().unsqueeze(-1)).squeeze(-1)


def _best_other(log_probs: Tensor, y: Tensor) -> Tensor:
    return log_probs.scatter(-1, y.long().unsqueeze(-1), -torch.inf).amax(-1)
