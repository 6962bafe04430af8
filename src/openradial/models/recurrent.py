"""GRU and LSTM, for sequences of different lengths."""

from typing import Literal

import torch
from torch import Tensor, nn

from openradial.errors import ShapeError, check_choice, check_count
from openradial.models.contract import Network, check_dropout, check_floats

Cell = Literal["gru", "lstm"]


class RecurrentLayer(nn.Module):
    """All states of one GRU or LSTM layer: (b, t, c) to (b, t, h).

    Parameters, formulas and initialisation are those of ``nn.GRU`` and ``nn.LSTM``, which ``torch.compile`` refuses to
    trace and whose deeper layers read padding when they run backward.
    """

    def __init__(self, inputs: int, hidden: int, cell: Cell) -> None:
        super().__init__()
        rows = hidden * (3 if cell == "gru" else 4)
        self.hidden, self.cell = hidden, cell
        self.weight_ih = nn.Parameter(torch.empty(rows, inputs))
        self.weight_hh = nn.Parameter(torch.empty(rows, hidden))
        self.bias_ih = nn.Parameter(torch.empty(rows))
        self.bias_hh = nn.Parameter(torch.empty(rows))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh):
            nn.init.uniform_(parameter, -(self.hidden**-0.5), self.hidden**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        weights: list[Tensor] = [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]
        weights = in_one_piece(weights) if x.is_cuda else weights
        start = x.new_zeros(1, x.shape[0], self.hidden)
        rest = (True, 1, 0.0, self.training, False, True)  # biases, layers, dropout, training, both ways, batch first
        if self.cell == "gru":
            return torch.gru(x, start, weights, *rest)[0]
        if torch.compiler.is_compiling() and torch.is_grad_enabled():
            # An input without gradient leads to the LSTM of oneDNN, whose compiled training fails: pytorch#158007.
            x = x + 0 * self.bias_ih[0]
        return torch.lstm(x, (start, start), weights, *rest)[0]


class Recurrent(nn.Module):
    """Padded sequences (b, t, c) and their lengths (b,) to the state after the last valid step, (b, d).

    Padding is never read: forward, the state is taken at the last valid step; backward, only the valid part is
    reversed. An empty sequence gives zeros.
    """

    def __init__(self, inputs: int, hidden: int, layers: int, cell: Cell, bidirectional: bool, dropout: float) -> None:
        super().__init__()
        check_count("hidden", hidden)
        check_count("layers", layers)
        check_choice("cell", cell, ("gru", "lstm"))
        check_dropout(dropout)
        self.width = hidden * (2 if bidirectional else 1)
        widths = [inputs] + [self.width] * (layers - 1)
        self.ahead = nn.ModuleList(RecurrentLayer(width, hidden, cell) for width in widths)
        self.back = nn.ModuleList(RecurrentLayer(width, hidden, cell) for width in widths if bidirectional)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        steps = torch.arange(x.shape[1], device=x.device)  # (t,)
        inside = steps < lengths[:, None]  # (b, t)
        reversed_steps = torch.where(inside, lengths[:, None] - 1 - steps, steps)  # (b, t) its own inverse
        last = (lengths - 1).clamp(min=0)[:, None]  # (b, 1)
        for i, ahead in enumerate(self.ahead):
            states = ahead(x)  # (b, t, h)
            ends = [_take(states, last)]
            if self.back:
                backward = self.back[i](_take(x, reversed_steps))
                ends.append(_take(backward, last))
                states = torch.cat([states, _take(backward, reversed_steps)], dim=-1)
            x = self.drop(states)
        end = torch.cat(ends, dim=-1)[:, 0]  # (b, d)
        z: Tensor = self.drop(end) * (lengths > 0)[:, None]
        return z


class SequenceClassifier(Network):
    """Float sequences (b, t, channels) to (b, num_classes); shorter ones are padded with steps of NaN.

    A NaN before the end of a sequence is a missing value: it makes the outputs of that sequence NaN, so impute first.
    Initialised as in PyTorch: uniform within 1 / sqrt(hidden).

    >>> x = torch.randn(2, 7, 12)
    >>> x[1, 5:] = torch.nan
    >>> SequenceClassifier(9, channels=12)(x).shape
    torch.Size([2, 9])
    """

    def __init__(
        self,
        num_classes: int,
        channels: int,
        hidden: int = 64,
        layers: int = 1,
        cell: Cell = "gru",
        bidirectional: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_count("channels", channels)
        self.channels = channels
        self.recurrent = Recurrent(channels, hidden, layers, cell, bidirectional, dropout)
        self.classifier = nn.Linear(self.recurrent.width, num_classes)

    def forward_features(self, x: Tensor) -> Tensor:
        if x.ndim != 3 or x.shape[2] != self.channels:
            raise ShapeError(f"expected sequences of shape (b, t, {self.channels}), got {tuple(x.shape)}")
        check_floats(x)
        x = at_least_one_step(x, torch.nan)
        lengths = valid_steps(~x.isnan().all(-1))
        inside = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        z: Tensor = self.recurrent(x.where(inside[..., None], 0.0), lengths)
        return z


def valid_steps(is_valid: Tensor) -> Tensor:
    """Return the index after the last true entry of each row: (b, t) to (b,).

    >>> valid_steps(torch.tensor([[True, False, True, False], [False, False, False, False]]))
    tensor([3, 0])
    """
    positions = torch.arange(1, is_valid.shape[1] + 1, device=is_valid.device)
    return (positions * is_valid).amax(-1)


def at_least_one_step(x: Tensor, padding: float) -> Tensor:
    """Return ``x``, or one step of padding if it has no step: recurrent layers refuse empty sequences."""
    return x if x.shape[1] > 0 else x.new_full((x.shape[0], 1, *x.shape[2:]), padding)


def in_one_piece(tensors: list[Tensor]) -> list[Tensor]:
    """Return the tensors consecutive in memory: otherwise cuDNN warns and copies them."""
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    parts = flat.split_with_sizes([tensor.numel() for tensor in tensors])
    return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]


def _take(x: Tensor, steps: Tensor) -> Tensor:
    """``x[i, steps[i, j]]``: (b, t, c) and (b, s) to (b, s, c)."""
    return x.gather(1, steps[..., None].expand(-1, -1, x.shape[-1]))
