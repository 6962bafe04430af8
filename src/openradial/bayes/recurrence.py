"""Recurrent layers step by step in plain operations, which ``torch.func.vmap`` can run for many networks at once."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

State = tuple[Tensor, ...]
Cell = Callable[[Tensor, Tensor, State], State]


def gru_cell(x: Tensor, h: Tensor, state: State) -> State:
    """One step of a GRU from the affine maps of its input and of its state, ``(b, 3 h)`` each."""
    (reset_x, update_x, new_x), (reset_h, update_h, new_h) = x.chunk(3, -1), h.chunk(3, -1)
    reset, update = torch.sigmoid(reset_x + reset_h), torch.sigmoid(update_x + update_h)
    return (torch.lerp(torch.tanh(new_x + reset * new_h), state[0], update),)


def lstm_cell(x: Tensor, h: Tensor, state: State) -> State:
    """One step of an LSTM: the new state and the new cell."""
    enter, forget, new, leave = (x + h).chunk(4, -1)
    cell = torch.sigmoid(forget) * state[1] + torch.sigmoid(enter) * torch.tanh(new)
    return torch.sigmoid(leave) * torch.tanh(cell), cell


def tanh_cell(x: Tensor, h: Tensor, state: State) -> State:
    """One step of a plain recurrent layer."""
    return (torch.tanh(x + h),)


def relu_cell(x: Tensor, h: Tensor, state: State) -> State:
    """One step of a plain recurrent layer with ReLU."""
    return (torch.relu(x + h),)


def recur(
    cell: Cell,
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
    """All states and the last ones, as ``torch.gru`` and its kin give them; there is no dropout in prediction."""
    starts = (start,) if isinstance(start, Tensor) else tuple(start)
    x = x.transpose(0, 1) if batch_first else x  # (t, b, c)
    per_pass = len(weights) // layers // (2 if bidirectional else 1)
    ends: list[State] = []
    for _ in range(layers):
        ways = []
        for backward in (False, True)[: 2 if bidirectional else 1]:
            own = weights[len(ends) * per_pass : (len(ends) + 1) * per_pass]
            state = tuple(part[len(ends)] for part in starts)
            states, end = _one_way(cell, x.flip(0) if backward else x, state, own)
            ways.append(states.flip(0) if backward else states)
            ends.append(end)
        x = torch.cat(ways, -1)
    last = tuple(torch.stack(parts) for parts in zip(*ends, strict=True))
    return x.transpose(0, 1) if batch_first else x, *last


def _one_way(cell: Cell, x: Tensor, state: State, weights: Sequence[Tensor]) -> tuple[Tensor, State]:
    inputs, recurrent, *biases = weights
    input_bias, recurrent_bias = biases or (None, None)
    states = []
    for step in linear(x, inputs, input_bias).unbind(0):  # (b, gates * h)
        state = cell(step, linear(state[0], recurrent, recurrent_bias), state)
        states.append(state[0])
    return torch.stack(states), state
