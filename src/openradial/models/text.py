"""Classifiers of texts: an embedding, then a recurrent layer or convolutions."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as TF

from openradial.errors import DTypeError, OptionError, ShapeError, check_count
from openradial.models.contract import Network, check_counts, check_dropout
from openradial.models.recurrent import Cell, Recurrent, at_least_one_step, valid_steps


class _TextNetwork(Network):
    """Token ids (b, t) with 0 for padding at the end."""

    def __init__(self, vocabulary: int, embedding: int) -> None:
        super().__init__()
        check_count("vocabulary", vocabulary, least=2)
        check_count("embedding", embedding)
        self.vocabulary = vocabulary
        self.embedding = nn.Embedding(vocabulary, embedding, padding_idx=0)

    def embed(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return vectors (b, t, d), zero for padding, and lengths (b,)."""
        _check_tokens(x, self.vocabulary)
        x = at_least_one_step(x, 0)
        is_token = x != 0
        return self.embedding(x) * is_token[..., None], valid_steps(is_token)


class TextRNN(_TextNetwork):
    """Token ids (b, t) to (b, num_classes) by an embedding and a GRU or LSTM; the id 0 is padding and ignored.

    Initialised as in PyTorch: the embedding normal, the cells uniform.

    >>> TextRNN(4, vocabulary=100)(torch.tensor([[7, 3, 9], [5, 0, 0]])).shape
    torch.Size([2, 4])
    """

    def __init__(
        self,
        num_classes: int,
        vocabulary: int,
        embedding: int = 100,
        hidden: int = 128,
        layers: int = 1,
        cell: Cell = "gru",
        bidirectional: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(vocabulary, embedding)
        self.recurrent = Recurrent(embedding, hidden, layers, cell, bidirectional, dropout)
        self.classifier = nn.Linear(self.recurrent.width, num_classes)

    def forward_features(self, x: Tensor) -> Tensor:
        z: Tensor = self.recurrent(*self.embed(x))
        return z


class TextCNN(_TextNetwork):
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
        super().__init__(vocabulary, embedding)
        check_count("filters", filters)
        check_dropout(dropout)
        check_counts("sizes", sizes)
        if not sizes:
            raise OptionError("sizes must name at least one filter size, got none; Kim uses (3, 4, 5)")
        self.convolutions = nn.ModuleList(nn.Conv1d(embedding, filters, size, padding=size - 1) for size in sizes)
        self.drop = nn.Dropout(dropout)
        self.classifier = nn.Linear(filters * len(sizes), num_classes)

    def forward_features(self, x: Tensor) -> Tensor:
        vectors, lengths = self.embed(x)
        pooled = [_largest(layer, vectors.transpose(1, 2), lengths) for layer in self.convolutions]
        z: Tensor = self.drop(torch.cat(pooled, dim=-1))
        return z


def _largest(layer: nn.Module, x: Tensor, lengths: Tensor) -> Tensor:
    """Return the largest activation of each filter over the windows with a token: (b, d, t) to (b, f)."""
    activations = TF.relu(layer(x))  # (b, f, t + size - 1)
    windows = torch.where(lengths > 0, lengths + activations.shape[-1] - x.shape[-1], 0)  # (b,)
    holds_token = torch.arange(activations.shape[-1], device=x.device) < windows[:, None]
    # Zero is neutral: no value after a ReLU is below it.
    return activations.where(holds_token[:, None], 0.0).amax(-1)


def _check_tokens(x: Tensor, vocabulary: int) -> None:
    if x.ndim != 2:
        raise ShapeError(f"expected token ids of shape (b, t), got {tuple(x.shape)}")
    if x.dtype not in (torch.int64, torch.int32):
        raise DTypeError(f"expected token ids of type int64, got {x.dtype}; convert them with x.long()")
    # Values are unknown while a program is traced; there the embedding checks them.
    if torch.compiler.is_compiling() or x.is_meta or not x.numel():
        return
    least, most = (int(value) for value in x.aminmax())
    if least < 0 or most >= vocabulary:
        raise OptionError(
            f"vocabulary={vocabulary} allows the ids 0 to {vocabulary - 1}, got {least if least < 0 else most}; "
            "build the network with a larger vocabulary or map rare words to one id"
        )
