"""The networks of encoders: inputs to features ``(b, d)`` of unit length."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as TF

from openradial.models import Network

PART = 4  # images at a time: more leave the cache of a CPU, and take twice as long each
CHUNK = 32  # texts that are padded to one length
LAYER = {  # names of the parts of a layer in published files -> ours
    "attention.self.": "",
    "attention.output.dense": "attended",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "expand",
    "output.dense": "project",
    "output.LayerNorm": "norm",
    "encoder.layer.": "layers.",
    "embeddings.LayerNorm": "norm",
    "embeddings.word_embeddings": "word",
    "embeddings.position_embeddings": "position",
    "embeddings.token_type_embeddings": "token_type",
}


class ImageEncoder(nn.Module):
    """The last hidden layer of a network with ImageNet weights."""

    def __init__(self, body: Network) -> None:
        super().__init__()
        self.body, self.num_features = body, body.num_features
        self.body.classifier = nn.Identity()  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        parts = (x,) if torch.compiler.is_compiling() else torch.split(x, PART)
        return TF.normalize(torch.cat([self.body(part) for part in parts]))


class TokenEncoder(nn.Module):
    """The mean of a vector per token, ``(b, t)`` padded with 0: static embeddings, or TF-IDF after an SVD."""

    def __init__(self, num_tokens: int, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features
        self.table = nn.Parameter(torch.empty(num_tokens, num_features))

    def forward(self, tokens: Tensor) -> Tensor:
        return TF.normalize(TF.embedding_bag(tokens, self.table, mode="mean", padding_idx=0))


class BertLayer(nn.Module):
    """Self-attention and two linear layers, each with a shortcut and layer normalisation after it."""

    def __init__(self, width: int, heads: int, eps: float) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.attended, self.attention_norm = nn.Linear(width, width), nn.LayerNorm(width, eps)
        self.expand, self.project = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width, eps)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (m(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for m in (self.query, self.key, self.value))
        attended = TF.scaled_dot_product_attention(q, k, v, mask[:, None, None])  # (b, heads, t, width / heads)
        x = self.attention_norm(x + self.attended(attended.transpose(1, 2).flatten(2)))
        return self.norm(x + self.project(TF.gelu(self.expand(x))))  # type: ignore[no-any-return]


class BertEncoder(nn.Module):
    """BERT (Devlin et al., 2018) with the mean of its token vectors, as sentence-transformers uses it.

    The defaults are those of all-MiniLM-L6-v2. Tokens ``(b, t)`` are padded with 0.
    """

    def __init__(
        self, num_tokens: int = 30_522, width: int = 384, layers: int = 6, heads: int = 12, positions: int = 512
    ) -> None:
        super().__init__()
        self.num_features, eps = width, 1e-12
        self.word = nn.Embedding(num_tokens, width)
        self.position = nn.Embedding(positions, width)
        self.token_type = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps)
        self.layers = nn.ModuleList(BertLayer(width, heads, eps) for _ in range(layers))

    def forward(self, tokens: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return self._encode(tokens)
        lengths = (tokens != 0).sum(1)
        features = tokens.new_empty(len(tokens), self.num_features, dtype=self.norm.weight.dtype)
        for rows in torch.split(lengths.argsort(), CHUNK):  # texts of similar length together: less padding is computed
            features[rows] = self._encode(tokens[rows, : int(lengths[rows].max())])
        return features

    def _encode(self, tokens: Tensor) -> Tensor:
        mask = tokens != 0
        x = self.word(tokens) + self.position.weight[: tokens.shape[1]]
        x = self.norm(x + self.token_type.weight[0])
        for layer in self.layers:
            x = layer(x, mask)
        return TF.normalize((x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))


def from_published(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a published BERT under our names, without its pooler and its list of positions."""
    renamed = {}
    for name, value in state.items():
        if name.startswith("pooler.") or name.endswith("position_ids"):
            continue
        for theirs, ours in LAYER.items():
            name = name.replace(theirs, ours)
        renamed[name] = value
    return renamed
