"""The attacks: one step along the gradient, and many steps from several starts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from openradial.attacks.losses import HeadLoss
from openradial.attacks.region import Limit, Norm, Region
from openradial.errors import OptionError, ShapeError, check_count, check_positive
from openradial.nn.hidden import evaluating

OutputFunction = Callable[[Tensor], Tensor]  # inputs to outputs, (b, ...) -> (b, k)
AttackLoss = Callable[[Tensor, Tensor], Tensor]  # outputs and labels to one value per input, (b, k), (b,) -> (b,)


def fgsm(
    net: OutputFunction,
    x: Tensor,
    y: Tensor,
    epsilon: Limit,
    *,
    loss: AttackLoss,
    low: Limit = 0.0,
    high: Limit = 1.0,
    norm: Norm = "linf",
) -> Tensor:
    r"""Take one step along the sign of the gradient (Goodfellow, Shlens and Szegedy 2015), ``(b, ...) -> (b, ...)``.

    .. math:: x + \epsilon\, \text{sign} \nabla_x L

    Args:
        net: inputs to outputs; it runs in evaluation mode, and its mode is restored.
        epsilon: largest change of an input, in units of the inputs.
        loss: outputs and labels to one value per input, such as :class:`HeadLoss`.
        low: the least valid value of an input, ``-inf`` for none; ``high`` is the largest.
        norm: ``"linf"``: epsilon limits the change of each value; ``"l2"``: the euclidean length of the change.

    ``epsilon``, ``low`` and ``high`` are numbers or tensors that broadcast to one input. For inputs
    normalised as ``(x - mean) / std`` and an epsilon in units before that, give ``epsilon / std``, ``(0 - mean) / std``
    and ``(1 - mean) / std``, with ``mean`` and ``std`` of shape ``(channels, 1, 1)``.

    >>> from openradial.heads import RadialHead
    >>> net, loss = torch.nn.Identity(), HeadLoss("target", RadialHead(2))
    >>> fgsm(net, torch.tensor([[0.8, 0.1]]), torch.tensor([0]), 0.25, loss=loss)
    tensor([[0.5500, 0.3500]])
    """
    region = _region(x, y, epsilon, low, high, norm)
    if _is_done(region):
        return region.x
    with preserved_state(net, region.x):
        gradient = gradients_at(net, region.x, y.clone(), loss)[2]
        return region.moved(region.steepest(gradient))


def pgd(
    net: OutputFunction,
    x: Tensor,
    y: Tensor,
    epsilon: Limit,
    *,
    loss: AttackLoss,
    steps: int = 40,
    step: float | None = None,
    restarts: int = 1,
    random_start: bool = True,
    low: Limit = 0.0,
    high: Limit = 1.0,
    norm: Norm = "linf",
    seed: int = 0,
) -> Tensor:
    """Take small steps from random starts, projected gradient ascent (Madry et al. 2018), ``(b, ...) -> (b, ...)``.

    The result is the worst point of each input among all steps of all restarts, the input and the point of
    :func:`fgsm`. With a :class:`HeadLoss` points that fool the head come first; among equals the highest loss counts.
    So it is never weaker than :func:`fgsm` with the same loss. Random starts are drawn from ``seed`` and are the same
    change for all inputs: the result of one does not depend on the others.

    Args:
        step: the length of a step as a share of epsilon; None for ``2.5 / steps``.
        random_start: False starts at the input, which makes it iterative FGSM.

    The other arguments are those of :func:`fgsm`.
    """
    check_count("steps", steps)
    check_count("restarts", restarts)
    if step is not None:
        check_positive("step", step)
    if restarts > 1 and not random_start:
        raise OptionError(f"restarts={restarts} would all start at the input; set random_start=True or restarts=1")
    region = _region(x, y, epsilon, low, high, norm)
    if _is_done(region):
        return region.x
    generator = torch.Generator().manual_seed(seed)
    with preserved_state(net, region.x):
        best = WorstPoints(region.x, y.clone(), loss)
        _walk(net, region, region.x, best, steps=1, share=1.0)
        for _ in range(restarts):
            start = region.moved(region.random(generator)) if random_start else region.x
            _walk(net, region, start, best, steps, share=2.5 / steps if step is None else step)
    return best.x


class WorstPoints:
    """The worst point of each input so far: one that fools the head before all others, then the highest loss."""

    def __init__(self, x: Tensor, y: Tensor, loss: AttackLoss) -> None:
        self.x, self.y, self.loss = x.clone(), y, loss
        self.value = x.new_full((len(x),), -torch.inf)
        self.fooled = torch.zeros(len(x), dtype=torch.bool, device=x.device)

    def update(self, x: Tensor, o: Tensor, losses: Tensor) -> None:
        """Keep the points that are worse than the ones so far."""
        fooled = self.loss.fooled(o, self.y) if isinstance(self.loss, HeadLoss) else self.fooled
        worse = (fooled & ~self.fooled) | ((fooled == self.fooled) & (losses > self.value))
        self.x[worse] = x[worse]
        self.value[worse] = losses[worse].to(self.value)
        self.fooled = self.fooled | fooled


def _walk(net: OutputFunction, region: Region, at: Tensor, best: WorstPoints, steps: int, share: float) -> None:
    """Take steps uphill from a start, each ``share`` of epsilon long, and keep the worst points."""
    for _ in range(steps):
        o, losses, gradient = gradients_at(net, at, best.y, best.loss)
        best.update(at, o, losses)
        at = region.moved((at - region.x) + share * region.steepest(gradient))
    best.update(at, *losses_at(net, at, best.y, best.loss))


def _region(x: Tensor, y: Tensor, epsilon: Limit, low: Limit, high: Limit, norm: Norm) -> Region:
    with torch.inference_mode(False):
        region = Region.around(x, epsilon, low, high, norm)
    if tuple(y.shape) != (len(x),):
        raise ShapeError(f"labels must have the shape ({len(x)},), one per input, got {tuple(y.shape)}")
    return region


def _is_done(region: Region) -> bool:
    """Return whether there is no input, or no room to move."""
    return not len(region.x) or not bool((region.epsilon > 0).any())


@contextmanager
def preserved_state(net: OutputFunction, x: Tensor) -> Iterator[None]:
    """Set evaluation mode; restore the modes and the random state afterwards. No parameter gets a gradient."""
    network = net if isinstance(net, nn.Module) else nn.Identity()
    with torch.random.fork_rng([x.device] if x.is_cuda else []), torch.inference_mode(False), evaluating(network):
        yield


def losses_at(net: OutputFunction, x: Tensor, y: Tensor, loss: AttackLoss) -> tuple[Tensor, Tensor]:
    """Return outputs and losses at ``x``, ``(b, k)`` and ``(b,)``."""
    with torch.no_grad():
        o = net(x)
        return o, _checked(loss(o, y), len(x))


def gradients_at(net: OutputFunction, x: Tensor, y: Tensor, loss: AttackLoss) -> tuple[Tensor, Tensor, Tensor]:
    """Return outputs, losses and the gradients with respect to the inputs, ``(b, k)``, ``(b,)`` and as ``x``."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        o = net(x)
        losses = _checked(loss(o, y), len(x))
        gradient = torch.autograd.grad(losses.sum(), x, allow_unused=True)[0] if losses.requires_grad else None
    if gradient is None:
        way_out = "look for detach(), no_grad() or rounding in the network"
        raise OptionError(f"the loss has no gradient with respect to the inputs; {way_out}")
    bad = ~gradient.isfinite().flatten(1).all(1)
    if bad.any():
        raise OptionError(
            f"the gradient of the loss is nan or infinite for {int(bad.sum())} of {len(bad)} inputs, the first is row "
            f"{int(bad.int().argmax())}; without it the network would look too robust: use another loss or float64"
        )
    return o.detach(), losses.detach(), gradient


def _checked(losses: Tensor, count: int) -> Tensor:
    if tuple(losses.shape) != (count,):
        raise ShapeError(
            f"loss must give one value per input, shape ({count},), got {tuple(losses.shape)}; "
            "use reduction='none' with losses of torch"
        )
    return losses
