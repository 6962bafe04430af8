"""Outputs and input gradients of a network that is left as it was found."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from openradial.errors import OptionError, ShapeError

Network = Callable[[Tensor], Tensor]  # inputs to outputs, (b, ...) -> (b, k)
Loss = Callable[[Tensor, Tensor], Tensor]  # outputs and labels to one value per input, (b, k), (b,) -> (b,)


@contextmanager
def undisturbed(net: Network, x: Tensor) -> Iterator[None]:
    """Predict as after training; mode and random state are given back. No gradient is left in any parameter."""
    modules = list(net.modules()) if isinstance(net, nn.Module) else []
    modes = [module.training for module in modules]
    devices = [x.device] if x.is_cuda else []
    with torch.random.fork_rng(devices), torch.inference_mode(False):
        try:
            for module in modules:
                module.training = False
            yield
        finally:
            for module, mode in zip(modules, modes, strict=True):
                module.training = mode


def look(net: Network, x: Tensor, y: Tensor, loss: Loss) -> tuple[Tensor, Tensor]:
    """Outputs and losses at ``x``, ``(b, k)`` and ``(b,)``."""
    with torch.no_grad():
        o = net(x)
        return o, _checked(loss(o, y), len(x))


def ascend(net: Network, x: Tensor, y: Tensor, loss: Loss) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, losses and the gradient of each loss by its input, ``(b, k)``, ``(b,)`` and as ``x``."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        o = net(x)
        losses = _checked(loss(o, y), len(x))
        gradient = torch.autograd.grad(losses.sum(), x, allow_unused=True)[0] if losses.requires_grad else None
    if gradient is None:
        raise OptionError(
            "the loss has no gradient by the inputs, so there is nothing to follow; look for detach(), no_grad() or "
            "rounding in the network"
        )
    _check_finite(gradient)
    return o.detach(), losses.detach(), gradient


def _checked(losses: Tensor, count: int) -> Tensor:
    if tuple(losses.shape) != (count,):
        raise ShapeError(
            f"loss must give one value per input, shape ({count},), got {tuple(losses.shape)}; "
            "of losses of torch take reduction='none'"
        )
    return losses


def _check_finite(gradient: Tensor) -> None:
    bad = ~gradient.isfinite().flatten(1).all(1)
    if bad.any():
        raise OptionError(
            f"the gradient of the loss is nan or infinite for {int(bad.sum())} of {len(bad)} inputs, the first is row "
            f"{int(bad.int().argmax())}; an attack without it would flatter the network: take another loss or float64"
        )
