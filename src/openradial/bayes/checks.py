"""Checks of what a user hands in: networks, inputs and heads."""

import torch
from torch import Tensor, nn

from openradial.errors import DTypeError, OptionError, ShapeError


def check_network(network: object) -> None:
    """Raise unless ``network`` is a network."""
    if isinstance(network, type):
        raise OptionError(f"expected a network, got the class {network.__name__}; pass an object of it")
    if not isinstance(network, nn.Module):
        raise OptionError(f"expected an nn.Module, got {type(network).__name__}; pass the network itself")


def check_head(head: object) -> None:
    """Raise unless ``head`` is None or can be called with outputs."""
    if isinstance(head, type):
        name = head.__name__
        raise OptionError(f"head must be an object, got the class {name}; make one first, as in head={name}(...)")
    if head is not None and not callable(head):
        raise OptionError(
            f"head must be a function of outputs, got {type(head).__name__}; use RadialLayer(k, beta) or "
            "nn.LogSoftmax(-1)"
        )


def check_inputs(x: object, network: nn.Module) -> None:
    """Raise unless ``x`` is a tensor, and of the network's type if both are floating point."""
    if not isinstance(x, Tensor):
        raise DTypeError(f"x must be a torch.Tensor, got {type(x).__name__}; convert it with torch.as_tensor")
    own = next((parameter.dtype for parameter in network.parameters()), x.dtype)
    if x.dtype == own or not (x.is_floating_point() and own.is_floating_point):
        return
    if not torch.is_autocast_enabled(x.device.type):  # which makes them fit
        raise DTypeError(f"x must have the type of the network, {own}, got {x.dtype}; convert it with x.to({own})")


def check_log_probs(rows: object, count: int, way_out: str) -> None:
    """Raise unless ``rows`` are log-probabilities of ``count`` inputs, ``(count, k)``."""
    if not isinstance(rows, Tensor) or not rows.is_floating_point():
        found = rows.dtype if isinstance(rows, Tensor) else type(rows).__name__
        raise DTypeError(f"log-probabilities must be a tensor of floating point, got {found}; {way_out}")
    if rows.ndim != 2 or len(rows) != count:
        raise ShapeError(f"log-probabilities must have the shape ({count}, k), got {tuple(rows.shape)}; {way_out}")
    if (rows > max(1e-6, 2 * torch.finfo(rows.dtype).eps)).any():  # rounding may leave a little above 0
        raise ShapeError(f"log-probabilities are never above 0, got {float(rows.max()):g}; {way_out}")
