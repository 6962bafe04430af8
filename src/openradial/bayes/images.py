"""Convolution and pooling for a stack of networks."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as TF

FEW = 8  # inputs below which one grouped convolution is faster than one convolution per network


class Convolutions(torch.autograd.Function):
    """A convolution that ``torch.func.vmap`` runs for a stack of networks in the way that is fastest on a CPU.

    Of inputs that all networks share it makes one convolution to the channels of all of them; of inputs that differ one
    grouped convolution or, because these are slow from a few inputs on, one convolution per network.
    """

    @staticmethod
    def forward(conv: Callable[..., Tensor], x: Tensor, weight: Tensor, bias: Tensor | None, *options: Any) -> Tensor:
        return conv(x, weight, bias, *options)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """There is no gradient in prediction."""

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, ...],
        conv: Callable[..., Tensor],
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        *options: Any,
    ) -> tuple[Tensor, int]:
        s, groups = info.batch_size, options[-1]
        weights, biases = _stacked(weight, in_dims[2], s), None if bias is None else _stacked(bias, in_dims[3], s)
        flat = weights.flatten(0, 1), None if biases is None else biases.flatten()
        if in_dims[1] is None and groups == 1:
            return _apart(conv(x, *flat, *options), s), 1
        xs = _stacked(x, in_dims[1], s)  # (s, b, c, ...)
        if xs.shape[1] < FEW:
            beside = xs.transpose(0, 1).flatten(1, 2)  # (b, s * c, ...)
            return _apart(conv(beside, *flat, *options[:-1], s * groups), s), 1
        rows = [None] * s if biases is None else biases.unbind()
        parts = [conv(*each, *options) for each in zip(xs.unbind(), weights.unbind(), rows, strict=True)]
        return torch.stack(parts), 0


def _stacked(tensor: Tensor, dim: int | None, s: int) -> Tensor:
    return tensor.expand(s, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _apart(o: Tensor, s: int) -> Tensor:
    """Channels of all networks, each by itself: (b, s * c, ...) to (b, s, c, ...)."""
    return o.reshape(o.shape[0], s, o.shape[1] // s, *o.shape[2:])


def max_pool2d(x: Tensor, kernel_size: Any, stride: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Pooling without overlap as maxima of slices: torch's own also finds the places, which takes most of its time."""
    high, wide = kernel_size if isinstance(kernel_size, tuple) else (kernel_size, kernel_size)
    usual = {"padding": (0, (0, 0)), "dilation": (1, (1, 1)), "ceil_mode": (False,), "return_indices": (False,)}
    plain = not args and all(value in usual[name] for name, value in kwargs.items())
    if not plain or stride not in (None, kernel_size, (high, wide)):
        return TF.max_pool2d(x, kernel_size, stride, *args, **kwargs)
    height, width = x.shape[-2] // high * high, x.shape[-1] // wide * wide
    rows = _largest([x[..., i:height:high, :width] for i in range(high)])
    return _largest([rows[..., i::wide] for i in range(wide)])


def _largest(tensors: list[Tensor]) -> Tensor:
    top = tensors[0]
    for tensor in tensors[1:]:
        top = torch.maximum(top, tensor)
    return top
