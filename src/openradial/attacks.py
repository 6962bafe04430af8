"""Adversarial attacks: how much do small changes of inputs reduce the accuracy?

An attack increases a loss by moving each value of an input by at most ``epsilon``, inside the range of valid inputs.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from openradial.errors import DTypeError, OptionError, ShapeError, check_count
from openradial.nn.hidden import evaluating

__all__ = ["fgsm", "pgd"]

OutputFunction = Callable[[Tensor], Tensor]  # inputs to outputs, (b, ...) -> (b, k)
AttackLoss = Callable[[Tensor, Tensor], Tensor]  # outputs and labels to one value per input, (b, k), (b,) -> (b,)
Limit = float | Tensor  # a number, or a tensor with the axes of one input
SLACK = 1e-5  # how far inputs may lie beyond the range, relative to their size: rounding of a normalisation


def fgsm(
    net: OutputFunction, x: Tensor, y: Tensor, epsilon: Limit, *, loss: AttackLoss, low: Limit = 0.0, high: Limit = 1.0
) -> Tensor:
    r"""Take one step along the sign of the gradient (Goodfellow, Shlens and Szegedy 2015), ``(b, ...) -> (b, ...)``.

    .. math:: x + \epsilon\, \text{sign} \nabla_x L

    Args:
        net: inputs to outputs; it runs in evaluation mode, and its mode is restored.
        epsilon: largest change of a value, in units of the inputs.
        loss: outputs and labels to one value per input, such as ``RadialLoss(reduction="none")``.
        low: the least valid value of an input, ``-inf`` for none; ``high`` is the largest.

    ``epsilon``, ``low`` and ``high`` are numbers or tensors that broadcast to one input. For inputs
    normalised as ``(x - mean) / std`` and an epsilon in units before that, give ``epsilon / std``, ``(0 - mean) / std``
    and ``(1 - mean) / std``, with ``mean`` and ``std`` of shape ``(channels, 1, 1)``.

    >>> from openradial import RadialLoss
    >>> net, loss = torch.nn.Identity(), RadialLoss(reduction="none")
    >>> fgsm(net, torch.tensor([[0.8, 0.1]]), torch.tensor([0]), 0.25, loss=loss)
    tensor([[0.5500, 0.3500]])
    """
    with _undisturbed(net, x):
        x, y = x.detach().clone(), y.clone()
        lower, upper = _bounds(x, y, epsilon, low, high)
        gradient = _gradients(net, x, y, loss)[2]
        return (x + gradient.sign() * epsilon).clamp(lower, upper)


def pgd(
    net: OutputFunction,
    x: Tensor,
    y: Tensor,
    epsilon: Limit,
    *,
    loss: AttackLoss,
    fooled: AttackLoss | None = None,
    steps: int = 40,
    restarts: int = 1,
    low: Limit = 0.0,
    high: Limit = 1.0,
    seed: int = 0,
) -> Tensor:
    """Take small steps from random starts, projected gradient ascent (Madry et al. 2018), ``(b, ...) -> (b, ...)``.

    The result is the worst point of each input among all steps of all restarts, the input and the point of
    ``fgsm``: the one with the highest loss, so it is never weaker than ``fgsm``. Steps are
    ``2.5 / steps * epsilon`` long. Random starts are the same change for all inputs: the result of one does not depend
    on the others.

    Args:
        fooled: outputs and labels to whether an attack has succeeded, ``(b,)`` of bool. Such points come before all
            others, whatever their loss.

    The other arguments are those of ``fgsm``.
    """
    check_count("steps", steps)
    check_count("restarts", restarts)
    generator = torch.Generator().manual_seed(seed)
    with _undisturbed(net, x):
        x, y = x.detach().clone(), y.clone()
        lower, upper = _bounds(x, y, epsilon, low, high)
        worst, value = x.clone(), x.new_full((len(x),), -torch.inf)
        won = torch.zeros(len(x), dtype=torch.bool, device=x.device)

        def update(at: Tensor, o: Tensor, losses: Tensor) -> None:
            wins = won if fooled is None else fooled(o, y)
            worse = (wins & ~won) | ((wins == won) & (losses > value))
            worst[worse], value[worse] = at[worse], losses[worse].to(value)
            won.logical_or_(wins)

        def walk(at: Tensor, count: int, share: float) -> None:
            for _ in range(count):
                o, losses, gradient = _gradients(net, at, y, loss)
                update(at, o, losses)
                at = (at + share * gradient.sign() * epsilon).clamp(lower, upper)
            with torch.no_grad():
                o = net(at)
                update(at, o, _checked(loss(o, y), len(x)))

        walk(x, 1, 1.0)
        for _ in range(restarts):
            start = 2 * torch.rand(x.shape[1:], generator=generator, dtype=torch.float64) - 1
            walk((x + start.to(x) * epsilon).clamp(lower, upper), steps, 2.5 / steps)
        return worst


def _bounds(x: Tensor, y: Tensor, epsilon: Limit, low: Limit, high: Limit) -> tuple[Tensor, Tensor]:
    """Return the least and the largest value that each value of the inputs may take."""
    if x.ndim < 2 or tuple(y.shape) != (len(x),):
        raise ShapeError(f"expected inputs (b, ...) and labels (b,), got {tuple(x.shape)} and {tuple(y.shape)}")
    if not x.is_floating_point():
        raise DTypeError(f"inputs must be floating point, got {x.dtype}; for texts, attack the embeddings")
    limits = {}
    for name, limit in (("epsilon", epsilon), ("low", low), ("high", high)):
        limits[name] = torch.as_tensor(limit, dtype=x.dtype, device=x.device)
        shape, example = limits[name].shape, x.shape[1:]
        # a shape (channels,) would broadcast to columns
        if shape and (len(shape) != len(example) or any(a not in (1, b) for a, b in zip(shape, example, strict=True))):
            raise ShapeError(
                f"{name} must be a number or have one axis per axis of an input of shape {tuple(example)}, each equal "
                f"or 1, got {tuple(shape)}; for one value per channel of an image call .view(-1, 1, 1)"
            )
    if not (limits["epsilon"] >= 0).all() or not limits["epsilon"].isfinite().all():
        raise OptionError(f"epsilon must be finite and at least 0, got {epsilon!r}")
    slack = SLACK * x.abs().clamp_min(1.0)
    outside = ~((x >= limits["low"] - slack) & (x <= limits["high"] + slack))  # true for nan
    if outside.any():
        row = int(outside.flatten(1).any(1).int().argmax())
        raise OptionError(
            f"inputs must lie between low and high, got {float(x[outside][0]):.6g} in row {row}; give low and high in "
            "the units of the inputs, for (x - mean) / std: low=(0 - mean) / std, high=(1 - mean) / std"
        )
    lower = torch.maximum(x - limits["epsilon"], torch.minimum(limits["low"], x))
    return lower, torch.minimum(x + limits["epsilon"], torch.maximum(limits["high"], x))


@contextmanager
def _undisturbed(net: OutputFunction, x: Tensor) -> Iterator[None]:
    """Set evaluation mode; restore the modes and the random state afterwards. No parameter gets a gradient."""
    network = net if isinstance(net, nn.Module) else nn.Identity()
    with torch.random.fork_rng([x.device] if x.is_cuda else []), torch.inference_mode(False), evaluating(network):
        yield


def _gradients(net: OutputFunction, x: Tensor, y: Tensor, loss: AttackLoss) -> tuple[Tensor, Tensor, Tensor]:
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
        message = f"loss must give one value per input, shape ({count},), got {tuple(losses.shape)}"
        raise ShapeError(f"{message}; use reduction='none' with losses of torch")
    return losses
