"""Networks for sequences of different lengths and for texts: GRU, LSTM, and convolutions over an embedding."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as TF

from openradial.errors import DTypeError, OptionError, ShapeError, check_choice, check_count
from openradial.models.contract import Network, check_counts, check_dropout, check_floats

Cell = Literal["gru", "lstm"]


class RecurrentLayer(nn.Module):
    """All states of one GRU or LSTM layer: (b, t, c) to (b, t, h).

    Parameters, formulas and initialisation are those of ``nn.GRU`` and ``nn.LSTM``, which ``torch.compile`` refuses to
    trace.
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


class SequenceClassifier(Network):
    """Float sequences (b, t, channels) to (b, num_classes); shorter ones are padded with steps of NaN.

    The features are the state after the last valid step, so that padding is never read; an empty sequence has zeros.
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
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_count("channels", channels)
        check_count("hidden", hidden)
        check_count("layers", layers)
        check_choice("cell", cell, ("gru", "lstm"))
        check_dropout(dropout)
        self.channels = channels
        widths = [channels] + [hidden] * (layers - 1)
        self.layers = nn.ModuleList(RecurrentLayer(width, hidden, cell) for width in widths)
        self.drop = nn.Dropout(dropout)
        self.classifier = nn.Linear(hidden, num_classes)

    def forward_features(self, x: Tensor) -> Tensor:
        if x.ndim != 3 or x.shape[2] != self.channels:
            raise ShapeError(f"expected sequences of shape (b, t, {self.channels}), got {tuple(x.shape)}")
        check_floats(x)
        x = _at_least_one_step(x, torch.nan)
        lengths = _valid_steps(~x.isnan().all(-1))
        inside = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        x = x.where(inside[..., None], 0.0)
        for layer in self.layers:
            x = self.drop(layer(x))  # (b, t, h)
        last = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, x.shape[2])
        return x.gather(1, last)[:, 0] * (lengths > 0)[:, None]


class TextCNN(Network):
    """Token ids (b, t) to (b, num_classes) by convolutions over an embedding, each pooled over time (Kim, 2014).

    As in Kim's program each text is padded by ``size - 1`` steps on both sides, so that texts shorter than a filter
    work too. Windows without a token are ignored. Initialised as in PyTorch.

    >>> TextCNN(4, vocabulary=100)(torch.tensor([[7, 3, 9], [5, 0, 0]])).shape
    torch.Size([2, 4])
    """

    def __init__(
        self,
        num_classes: int,
        vocabulary: int,
        embedding: int = 100,
        filters: int = 100,
        sizes: Sequence[int] = (3, 4, 5),
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        check_count("vocabulary", vocabulary, least=2)
        check_count("embedding", embedding)
        check_count("filters", filters)
        check_dropout(dropout)
        check_counts("sizes", sizes)
        if not sizes:
            raise OptionError("sizes must name at least one filter size, got none; Kim uses (3, 4, 5)")
        self.vocabulary = vocabulary
        self.embedding = nn.Embedding(vocabulary, embedding, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(embedding, filters, size, padding=size - 1) for size in sizes)
        self.drop = nn.Dropout(dropout)
        self.classifier = nn.Linear(filters * len(sizes), num_classes)

    def forward_features(self, x: Tensor) -> Tensor:
        if x.ndim != 2:
            raise ShapeError(f"expected token ids of shape (b, t), got {tuple(x.shape)}")
        if x.dtype not in (torch.int64, torch.int32):
            raise DTypeError(f"expected token ids of type int64, got {x.dtype}; convert them with x.long()")
        # Values are unknown while a program is traced; there the embedding checks them.
        if not torch.compiler.is_compiling() and not x.is_meta and x.numel():
            least, most = (int(value) for value in x.aminmax())
            if least < 0 or most >= self.vocabulary:
                raise OptionError(
                    f"vocabulary={self.vocabulary} allows the ids 0 to {self.vocabulary - 1}, got "
                    f"{least if least < 0 else most}; build the network with a larger vocabulary or map rare words to "
                    "one id"
                )
        x = _at_least_one_step(x, 0)
        is_token = x != 0
        vectors = (self.embedding(x) * is_token[..., None]).transpose(1, 2)  # (b, d, t) zero for padding
        lengths, pooled = _valid_steps(is_token), []
        for layer in self.convolutions:
            activations = TF.relu(layer(vectors))  # (b, f, t + size - 1)
            windows = torch.where(lengths > 0, lengths + activations.shape[-1] - x.shape[1], 0)  # (b,)
            holds_token = torch.arange(activations.shape[-1], device=x.device) < windows[:, None]
            # Zero is neutral: no value after a ReLU is below it.
            pooled.append(activations.where(holds_token[:, None], 0.0).amax(-1))  # (b, f)
        return self.drop(torch.cat(pooled, dim=-1))  # type: ignore[no-any-return]


def _valid_steps(is_valid: Tensor) -> Tensor:
    """Return the index after the last true entry of each row: (b, t) to (b,).

    >>> _valid_steps(torch.tensor([[True, False, True, False], [False, False, False, False]]))
    tensor([3, 0])
    """
    positions = torch.arange(1, is_valid.shape[1] + 1, device=is_valid.device)
    return (positions * is_valid).amax(-1)


def _at_least_one_step(x: Tensor, padding: float) -> Tensor:
    """Return ``x``, or one step of padding if it has no step: recurrent layers refuse empty sequences."""
    return x if x.shape[1] > 0 else x.new_full((x.shape[0], 1, *x.shape[2:]), padding)


def in_one_piece(tensors: list[Tensor]) -> list[Tensor]:
    """Return the tensors consecutive in memory: otherwise cuDNN warns and copies them."""
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    parts = flat.split_with_sizes([tensor.numel() for tensor in tensors])
    return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]
