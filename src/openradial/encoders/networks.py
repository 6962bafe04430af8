"""The networks of encoders: inputs to features ``(b, d)`` of unit length."""

import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as TF

from openradial.errors import OptionError, check_choice, check_positive
from openradial.models.features import NUM_BANDS

PART = 4  # images at a time: more leave the cache of a CPU, and take twice as long each
VIEWS = ("one", "flip", "crops")
CHUNK = 32  # texts that are padded to one length
FLOOR = 1e-6  # energy of a band without any: below that of rounding to whole grey levels


class ImageEncoder(nn.Module):
    """The last hidden layer of a network with ImageNet weights.

    The layer ``middle`` has the mean of each channel half way, ``bands`` those of :func:`band_energies`: both tell
    inputs of another kind from photographs.

    Args:
        body: the network; its features are at least 0.
        views: ``"one"``, the image; ``"flip"``, the mean of the features of the image and of its mirror image; or
            ``"crops"``, also those of the three quarters in the middle, enlarged.
        power: of each feature before a row is divided by its length; 0.5 lets few large features count less.
    """

    def __init__(self, body: Any, views: str = "one", power: float = 1.0) -> None:
        super().__init__()
        check_choice("views", views, VIEWS)
        check_positive("power", power)
        self.views, self.power = views, power
        self.body, self.num_features, self.num_middle = body, body.num_features, body.num_middle + NUM_BANDS
        self.body.classifier, self.middle, self.bands = nn.Identity(), nn.Identity(), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        z, others = self.encode(x)
        self.middle(others[:, :-NUM_BANDS])
        self.bands(others[:, -NUM_BANDS:])
        return z

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features, and those of the middle layer and the bands; safe in several threads, unlike hooks."""
        parts = (x,) if torch.compiler.is_compiling() else torch.split(x, PART)
        z, others = (torch.cat(column) for column in zip(*map(self._encode, parts), strict=True))
        return TF.normalize(z), others

    def _encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z, middle = self.body.forward_middle(x)
        others = torch.cat([middle.mean((2, 3)), band_energies(x)], 1)
        views, (h, w) = [x.flip(3)] if self.views != "one" else [], x.shape[2:]
        if self.views == "crops":
            part = x[:, :, h // 8 : h - h // 8, w // 8 : w - w // 8]
            views.append(TF.interpolate(part, size=(h, w), mode="bilinear"))
        return sum(map(self._root, map(self.body, views)), self._root(z)), others

    def _root(self, z: Tensor) -> Tensor:
        return TF.normalize(z.clamp_min(1e-12) ** self.power)  # the slope of a root at 0 is infinite


def band_energies(x: Tensor) -> Tensor:
    """Return the logarithm of the energy of the brightness of square images in octaves, ``(b, c, n, n) -> (b, 7)``.

    An image that was enlarged, or blurred, has next to none in the highest octaves, whatever it shows.
    """
    side = x.shape[3]
    basis = torch.from_numpy(cosine_basis(side)).to(x)
    energy = (basis @ x.mean(1) @ basis.T).square() / side**2  # (b, n, n), its sum is the mean square of the image
    edges = (1, *(max(1, side >> power) for power in reversed(range(NUM_BANDS))))
    bands = [energy[:, a:b, :b].sum((1, 2)) + energy[:, :a, a:b].sum((1, 2)) for a, b in pairwise(edges)]
    return (torch.stack(bands, 1) + FLOOR).log()


@cache
def cosine_basis(n: int) -> NDArray[np.float64]:
    """Return the orthogonal matrix of the cosine transform (DCT-II), ``(n, n)``; row k has the frequency k."""
    k = np.arange(n)
    return np.sqrt(np.where(k == 0, 1, 2) / n)[:, None] * np.cos(np.pi / n * np.outer(k, k + 0.5))


class ExternalEncoder(nn.Module):
    """A network of another package on the CPU. Its weights are no part of this module: a bundle does not hold them.

    ``encode`` takes images, or if ``pad`` is given tokens that are padded with it, and a mask of those that count.
    """

    def __init__(self, encode: Callable[..., Tensor], pad: int | None = None) -> None:
        super().__init__()
        self.encode, self.pad, self.num_features = (encode,), pad, 0  # in a tuple, which is no part of the module

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            raise OptionError("an encoder of another package cannot be exported")
        if self.pad is None:
            features = torch.cat([self.encode[0](part) for part in torch.split(x.cpu(), PART)])
        else:
            features = in_chunks(self._encode, x.cpu(), self.pad)
        if features.ndim != 2:
            raise OptionError(f"an encoder returns features (n, d), got the shape {tuple(features.shape)}")
        return TF.normalize(features.float()).to(x.device)

    def _encode(self, tokens: Tensor) -> Tensor:
        mask = tokens.ne(self.pad).long()  # type: ignore[arg-type]
        mask[:, 0] = 1  # so that an empty text has features
        return self.encode[0](tokens, mask)


def in_chunks(encode: Callable[[Tensor], Tensor], tokens: Tensor, pad: int = 0) -> Tensor:
    """Encode tokens ``(b, t)``, texts of similar length together: less padding is computed."""
    if torch.compiler.is_compiling():
        return encode(tokens)
    lengths = (tokens != pad).sum(1).clamp_min(1)
    order = lengths.argsort()
    parts = [encode(tokens[rows, : int(lengths[rows].max())]) for rows in torch.split(order, CHUNK)]
    return torch.cat(parts)[order.argsort()]


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
    """BERT (Devlin et al., 2018): a vector per token, and from these the features of a text.

    The defaults are those of all-MiniLM-L6-v2. Tokens ``(b, t)`` are padded with 0. ``pooling`` is ``"mean"``, the mean
    over the tokens, as sentence-transformers uses it; or ``"layers"``, twice as wide: that mean plus those of all other
    layers, and beside it the largest value of each number among the tokens.
    """

    renamed_keys = (
        (r"^embeddings\.LayerNorm", "norm"),
        (r"^embeddings\.(word|position|token_type)_embeddings", r"\1"),
        (r"^encoder\.layer\.(\d+)\.attention\.self", r"layers.\1"),
        (r"^encoder\.layer\.(\d+)\.attention\.output\.dense", r"layers.\1.attended"),
        (r"^encoder\.layer\.(\d+)\.attention\.output\.LayerNorm", r"layers.\1.attention_norm"),
        (r"^encoder\.layer\.(\d+)\.intermediate\.dense", r"layers.\1.expand"),
        (r"^encoder\.layer\.(\d+)\.output\.dense", r"layers.\1.project"),
        (r"^encoder\.layer\.(\d+)\.output\.LayerNorm", r"layers.\1.norm"),
    )

    def __init__(
        self,
        num_tokens: int = 30_522,
        width: int = 384,
        layers: int = 6,
        heads: int = 12,
        positions: int = 512,
        pooling: str = "mean",
    ) -> None:
        super().__init__()
        check_choice("pooling", pooling, ("mean", "layers"))
        self.pooling, eps = pooling, 1e-12
        self.num_features = width if pooling == "mean" else 2 * width
        self.word = nn.Embedding(num_tokens, width)
        self.position = nn.Embedding(positions, width)
        self.token_type = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps)
        self.layers = nn.ModuleList(BertLayer(width, heads, eps) for _ in range(layers))

    def forward(self, tokens: Tensor) -> Tensor:
        return in_chunks(self._encode, tokens)

    def _encode(self, tokens: Tensor) -> Tensor:
        mask = tokens != 0
        x = self.word(tokens) + self.position.weight[: tokens.shape[1]]
        x = self.norm(x + self.token_type.weight[0])
        weights, sums = mask.to(x.dtype).unsqueeze(1), []
        for layer in (None, *self.layers):
            x = x if layer is None else layer(x, mask)
            sums.append(weights @ x)  # (b, 1, width); of length 1 it is the mean
        if self.pooling == "mean":
            return TF.normalize(sums[-1].squeeze(1))
        means = TF.normalize(torch.cat(sums, 1), dim=2)
        mean = TF.normalize(means[:, -1] + TF.normalize(means[:, :-1].sum(1)))
        largest = TF.normalize(x.masked_fill(~mask[..., None], -torch.inf).amax(1))
        return torch.cat([mean, largest], 1) / math.sqrt(2)


class MixedEncoder(nn.Module):
    """Rows of ``columns`` numbers with the tokens of a text after them, ``(b, columns + t) -> (b, columns + d)``.

    The features of the text are multiplied by ``weight``; the numbers are used as they are.
    """

    def __init__(self, text: nn.Module, columns: int, weight: float) -> None:
        super().__init__()
        self.text, self.columns, self.weight = text, columns, weight
        self.num_features = columns + int(text.num_features)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        z = self.text(x[:, self.columns :].long())
        return torch.cat([x[:, : self.columns].to(z.dtype), self.weight * z], 1)


NETWORKS = (ImageEncoder, ExternalEncoder, TokenEncoder, BertEncoder)
