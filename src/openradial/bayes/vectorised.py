"""Many networks of one architecture in one pass, with ``torch.func.vmap``."""

from collections.abc import Mapping
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as TF
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode


def run_with(network: nn.Module, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Return the outputs of a network with other weights."""
    # a layer that is used twice has two names; with tie_weights torch would restore the wrong weights
    o: Tensor = functional_call(network, dict(weights), (x,), tie_weights=False)
    return o


def run_stacked(network: nn.Module, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Return the outputs for a stack of weights, ``(s, ...)`` each, ``(b, ...) -> (s, b, ...)``.

    Networks that vmap refuses (recurrent ones, decisions that depend on values) run one after the other.
    """
    try:
        return _run_vmap(network, weights, x)
    except RuntimeError:
        if not _is_refused(network, weights, x):
            raise  # out of memory, say
    count = len(next(iter(weights.values())))
    rows = [{name: weight[i] for name, weight in weights.items()} for i in range(count)]
    return torch.stack([run_with(network, row, x) for row in rows])


def _run_vmap(network: nn.Module, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    with _FastPooling(), sdpa_kernel(SDPBackend.MATH):
        o: Tensor = vmap(partial(run_with, network), in_dims=(0, None))(weights, x)
    return o


def _is_refused(network: nn.Module, weights: Mapping[str, Tensor], x: Tensor) -> bool:
    """Return whether vmap fails even for one network and one input, which run without it."""
    run_with(network, {name: weight[0] for name, weight in weights.items()}, x[:1])  # raises what the network raises
    try:
        _run_vmap(network, {name: weight[:1] for name, weight in weights.items()}, x[:1])
    except RuntimeError:
        return True
    return False


class _FastPooling(TorchFunctionMode):
    """Replaces the pooling of torch, which takes most of the time of a small convolutional network."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return (max_pool2d if func is TF.max_pool2d else func)(*args, **(kwargs or {}))


class Sizes(TorchFunctionMode):
    """Records the size of the largest tensor that was computed."""

    most = 1

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and not isinstance(result, nn.Parameter):
            self.most = max(self.most, result.numel())
        return result


def max_pool2d(x: Tensor, kernel_size: Any, stride: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Pool without overlap as maxima of slices: torch also computes the indices, which takes most of its time."""
    high, wide = kernel_size if isinstance(kernel_size, tuple) else (kernel_size, kernel_size)
    usual = {"padding": (0, (0, 0)), "dilation": (1, (1, 1)), "ceil_mode": (False,), "return_indices": (False,)}
    plain = not args and all(value in usual[name] for name, value in kwargs.items())
    if not plain or stride not in (None, kernel_size, (high, wide)):
        return TF.max_pool2d(x, kernel_size, stride, *args, **kwargs)
    height, width = x.shape[-2] // high * high, x.shape[-1] // wide * wide
    rows = reduce(torch.maximum, [x[..., i:height:high, :width] for i in range(high)])
    return reduce(torch.maximum, [rows[..., i::wide] for i in range(wide)])
