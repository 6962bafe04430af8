"""The attacks: one step along the gradient, and many steps from several starts."""

import torch
from torch import Tensor

from openradial.attacks.gradients import Loss, Network, ascend, look, undisturbed
from openradial.attacks.losses import HeadLoss
from openradial.attacks.region import Limit, Norm, Region
from openradial.errors import OptionError, ShapeError, check_count, check_positive


def fgsm(
    net: Network,
    x: Tensor,
    y: Tensor,
    epsilon: Limit,
    *,
    loss: Loss,
    low: Limit = 0.0,
    high: Limit = 1.0,
    norm: Norm = "linf",
) -> Tensor:
    r"""One step along the sign of the gradient (Goodfellow, Shlens and Szegedy 2015), ``(b, ...) -> (b, ...)``.

    .. math:: x + \epsilon\, \text{sign} \nabla_x L

    Args:
        net: inputs to outputs; it predicts in evaluation mode, and is left as it was.
        epsilon: how far an input may be moved, in units of the inputs.
        loss: outputs and labels to one value per input, such as :class:`HeadLoss`.
        low: the least valid value of an input, ``-inf`` for none.
        high: the largest one, ``inf`` for none.
        norm: ``"linf"``, each value moves by at most epsilon, or ``"l2"``, the whole input does.

    ``epsilon``, ``low`` and ``high`` are numbers or tensors that broadcast to one input. For inputs that were
    normalised as ``(x - mean) / std`` and an epsilon meant before that, give ``epsilon / std``, ``(0 - mean) / std``
    and ``(1 - mean) / std``, with ``mean`` and ``std`` of shape ``(channels, 1, 1)``.

    >>> from openradial.heads import RadialHead
    >>> net, loss = torch.nn.Identity(), HeadLoss("target", RadialHead(2))
    >>> fgsm(net, torch.tensor([[0.8, 0.1]]), torch.tensor([0]), 0.25, loss=loss)
    tensor([[0.5500, 0.3500]])
    """
    region = _region(x, y, epsilon, low, high, norm)
    if _is_done(region):
        return region.x
    with undisturbed(net, region.x):
        gradient = ascend(net, region.x, y.clone(), loss)[2]
        return region.moved(region.steepest(gradient))


def pgd(
    net: Network,
    x: Tensor,
    y: Tensor,
    epsilon: Limit,
    *,
    loss: Loss,
    steps: int = 40,
    step: float | None = None,
    restarts: int = 1,
    random_start: bool = True,
    low: Limit = 0.0,
    high: Limit = 1.0,
    norm: Norm = "linf",
    seed: int = 0,
) -> Tensor:
    """Many small steps from random starts, projected gradient ascent (Madry et al. 2018), ``(b, ...) -> (b, ...)``.

    Returned is the worst point seen for each input, out of all steps of all restarts, the input itself and the point of
    :func:`fgsm`. With a :class:`HeadLoss` those that fool the head come first; among equals the highest loss counts. So
    it is never weaker than :func:`fgsm` with the same loss. Random starts are drawn from ``seed`` and are the same
    change for all inputs: what happens to one does not depend on the others.

    Args:
        steps: how many steps each restart takes.
        step: the length of a step as a share of epsilon; None for ``2.5 / steps``.
        restarts: how many random starts are tried.
        random_start: False starts at the input, which makes it iterative FGSM.

    The other arguments are those of :func:`fgsm`.

    >>> from openradial.heads import RadialHead
    >>> net, loss = torch.nn.Identity(), HeadLoss("target", RadialHead(2))
    >>> pgd(net, torch.tensor([[0.8, 0.1]]), torch.tensor([0]), 0.25, loss=loss)
    tensor([[0.5500, 0.3500]])
    """
    share = _share(steps, step, restarts, random_start)
    region = _region(x, y, epsilon, low, high, norm)
    if _is_done(region):
        return region.x
    generator = torch.Generator().manual_seed(seed)
    with undisturbed(net, region.x):
        best = Worst(region.x, y.clone(), loss)
        _walk(net, region, region.x, best, steps=1, share=1.0)
        for _ in range(restarts):
            start = region.moved(region.random(generator)) if random_start else region.x
            _walk(net, region, start, best, steps, share)
    return best.x


class Worst:
    """The worst point seen for each input: one that fools the head before all others, then that of the highest loss."""

    def __init__(self, x: Tensor, y: Tensor, loss: Loss) -> None:
        self.x, self.y, self.loss = x.clone(), y, loss
        self.value = x.new_full((len(x),), -torch.inf)
        self.fooled = torch.zeros(len(x), dtype=torch.bool, device=x.device)

    def note(self, x: Tensor, o: Tensor, losses: Tensor) -> None:
        """Keep what is worse than before."""
        fooled = self.loss.fooled(o, self.y) if isinstance(self.loss, HeadLoss) else self.fooled
        worse = (fooled & ~self.fooled) | ((fooled == self.fooled) & (losses > self.value))
        self.x[worse] = x[worse]
        self.value[worse] = losses[worse].to(self.value)
        self.fooled = self.fooled | fooled


def _walk(net: Network, region: Region, at: Tensor, best: Worst, steps: int, share: float) -> None:
    """Take steps uphill from a start, each ``share`` of epsilon long, and note every point on the way."""
    for _ in range(steps):
        o, losses, gradient = ascend(net, at, best.y, best.loss)
        best.note(at, o, losses)
        at = region.moved((at - region.x) + share * region.steepest(gradient))
    best.note(at, *look(net, at, best.y, best.loss))


def _region(x: Tensor, y: Tensor, epsilon: Limit, low: Limit, high: Limit, norm: Norm) -> Region:
    with torch.inference_mode(False):
        region = Region.around(x, epsilon, low, high, norm)
    if tuple(y.shape) != (len(x),):
        raise ShapeError(f"labels must have the shape ({len(x)},), one per input, got {tuple(y.shape)}")
    return region


def _is_done(region: Region) -> bool:
    """Whether there is nothing to move, or nowhere to go."""
    return not len(region.x) or not bool((region.epsilon > 0).any())


def _share(steps: int, step: float | None, restarts: int, random_start: bool) -> float:
    check_count("steps", steps)
    check_count("restarts", restarts)
    if step is not None:
        check_positive("step", step)
    if restarts > 1 and not random_start:
        raise OptionError(f"restarts={restarts} would all start at the input; set random_start=True or restarts=1")
    return 2.5 / steps if step is None else float(step)
