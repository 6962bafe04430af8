"""Many networks of one architecture in one pass: ``torch.func.vmap``, with some operations in a form that suits it."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as TF
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

CONVOLUTIONS = (torch.conv1d, torch.conv2d, torch.conv3d)
FEW = 8  # inputs below which one grouped convolution is faster than one convolution per network

States = tuple[Tensor, ...]
CellFunction = Callable[[Tensor, Tensor, States], States]


def run_with(network: nn.Module, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Return the outputs of a network with other weights."""
    # a layer that is used twice has two names; with tie_weights torch would restore the wrong weights
    o: Tensor = functional_call(network, dict(weights), (x,), tie_weights=False)
    return o


def run_stacked(network: nn.Module, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Return the outputs for a stack of weights, ``(s, ...)`` each, ``(b, ...) -> (s, b, ...)``.

    Networks that vmap refuses (packed sequences, decisions that depend on values) run one after the other.
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
    with _VmapForms(), sdpa_kernel(SDPBackend.MATH):
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


class _VmapForms(TorchFunctionMode):
    """Replaces operations that vmap cannot batch, or batches slowly."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in CELLS and isinstance(args[3], bool):  # packed sequences have a tensor there
            return recur(CELLS[func], *args)
        if func is TF.linear and len(args) == 3:
            x, weight, bias = args
            return x @ weight.mT if bias is None else (x @ weight.mT).add_(bias)  # vmap takes two more passes for it
        if func in CONVOLUTIONS and len(args) == 7 and not kwargs:
            return Convolutions.apply(func, *args)  # type: ignore[no-untyped-call]
        if func is TF.max_pool2d:
            return max_pool2d(*args, **kwargs)
        return func(*args, **kwargs)


class Sizes(TorchFunctionMode):
    """Records the size of the largest tensor that was computed."""

    most = 1

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and not isinstance(result, nn.Parameter):
            self.most = max(self.most, result.numel())
        return result


class Convolutions(torch.autograd.Function):
    """A convolution that ``torch.func.vmap`` runs for a stack of networks in the way that is fastest on a CPU.

    For inputs that all networks share this is one convolution to the channels of all of them; for inputs that differ,
    one grouped convolution or, because these are slow from a few inputs on, one convolution per network.
    """

    @staticmethod
    def forward(conv: Callable[..., Tensor], x: Tensor, weight: Tensor, bias: Tensor | None, *options: Any) -> Tensor:
        return conv(x, weight, bias, *options)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Store nothing: there is no gradient in prediction."""

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
    """Separate the channels of the networks, ``(b, s * c, ...) -> (b, s, c, ...)``."""
    return o.reshape(o.shape[0], s, o.shape[1] // s, *o.shape[2:])


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


def gru_cell(x: Tensor, h: Tensor, state: States) -> States:
    """Return the next state of a GRU from the affine maps of its input and of its state, ``(b, 3 h)`` each."""
    (reset_x, update_x, new_x), (reset_h, update_h, new_h) = x.chunk(3, -1), h.chunk(3, -1)
    reset, update = torch.sigmoid(reset_x + reset_h), torch.sigmoid(update_x + update_h)
    return (torch.lerp(torch.tanh(new_x + reset * new_h), state[0], update),)


def lstm_cell(x: Tensor, h: Tensor, state: States) -> States:
    """Return the next state and cell of an LSTM."""
    enter, forget, new, leave = (x + h).chunk(4, -1)
    cell = torch.sigmoid(forget) * state[1] + torch.sigmoid(enter) * torch.tanh(new)
    return torch.sigmoid(leave) * torch.tanh(cell), cell


def recur(
    cell: CellFunction,
    x: Tensor,
    start: Tensor | Sequence[Tensor],
    weights: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """Return all states and the last ones, as ``torch.gru`` does; there is no dropout in prediction."""
    starts = (start,) if isinstance(start, Tensor) else tuple(start)
    x = x.transpose(0, 1) if batch_first else x  # (t, b, c)
    per_pass = len(weights) // layers // (2 if bidirectional else 1)
    ends: list[States] = []
    for _ in range(layers):
        ways = []
        for backward in (False, True)[: 2 if bidirectional else 1]:
            layer = weights[len(ends) * per_pass : (len(ends) + 1) * per_pass]
            state = tuple(part[len(ends)] for part in starts)
            states, end = _one_way(cell, x.flip(0) if backward else x, state, layer)
            ways.append(states.flip(0) if backward else states)
            ends.append(end)
        x = torch.cat(ways, -1)
    last = tuple(torch.stack(parts) for parts in zip(*ends, strict=True))
    return x.transpose(0, 1) if batch_first else x, *last


def _one_way(cell: CellFunction, x: Tensor, state: States, weights: Sequence[Tensor]) -> tuple[Tensor, States]:
    inputs, recurrent, *biases = weights
    input_bias, recurrent_bias = biases or (None, None)
    states = []
    for step in TF.linear(x, inputs, input_bias).unbind(0):  # (b, gates * h)
        state = cell(step, TF.linear(state[0], recurrent, recurrent_bias), state)
        states.append(state[0])
    return torch.stack(states), state


CELLS: dict[Callable[..., Any], CellFunction] = {
    torch.gru: gru_cell,
    torch.lstm: lstm_cell,
    torch.rnn_tanh: lambda x, h, state: (torch.tanh(x + h),),
    torch.rnn_relu: lambda x, h, state: (torch.relu(x + h),),
}
