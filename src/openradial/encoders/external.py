"""Encoders of other packages, of ONNX files and of your own code. Their weights stay where they are.

A bundle records name and checksum, and loads the same weights again; others are refused.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from openradial.data.inputs import ImageInputs, Inputs, TokenInputs
from openradial.encoders.networks import ExternalEncoder
from openradial.errors import OpenRadialError, OptionError, WeightsError, listed, require
from openradial.models.pretrained import IMAGENET_MEAN, IMAGENET_STD
from openradial.models.registry import import_factory

FORMS = "hf:NAME, sentence-transformers:NAME, timm:NAME, onnx:FILE or package.module:factory"
# what is fetched of a model on the Hugging Face hub: never a pickle, never code
WEIGHTS = ("model*.safetensors", "*/model.safetensors")
PATTERNS = ["*.json", "*.txt", "*.model", "README.md", *WEIGHTS]
SAFE = {"trust_remote_code": False, "local_files_only": True}
IMAGENET = {"input_size": (3, 224, 224), "mean": IMAGENET_MEAN, "std": IMAGENET_STD, "crop_pct": 1.0}  # as in timm
MOST_TOKENS = 512
External = tuple[ExternalEncoder, Inputs, str, str]  # network, inputs, checksum and licence


def load_external(name: str, size: int | None = None, column: str | None = None) -> tuple[str, *External]:
    """Return name, network, inputs, checksum and licence of an encoder whose name has a colon; a path is absolute."""
    prefix, _, rest = name.partition(":")
    load, path = LOADERS.get(prefix) if rest else None, Path(rest).expanduser()
    if load not in (None, _load_timm) and path.exists():  # a bundle finds it from any other folder
        name = f"{prefix}:{path.resolve()}"
    try:
        net, inputs, checksum, licence = load(rest) if load else _from_network(import_factory(name)())
        if size is not None and isinstance(inputs, ImageInputs):
            inputs = replace(inputs, size=size)
        if isinstance(inputs, TokenInputs):
            inputs = replace(inputs, column=column)
        raw: Any = [np.zeros((8, 8, 3), np.uint8)] if inputs.kind == "images" else ["text"]
        net.num_features = net(inputs.transform(inputs.ready(raw))).shape[1]
        return name, net, inputs, checksum, licence
    except OpenRadialError as error:
        if load is not None:
            raise
        raise OptionError(f"{error}; an encoder of another package is {FORMS}") from error
    except Exception as error:  # of other packages
        reason = " ".join(str(error).splitlines()[:2]).strip() or type(error).__name__
        missing = "" if load not in (_load_hub, _load_sentences) or path.is_dir() else "no such folder; on the hub: "
        raise WeightsError(f"the encoder {name} cannot be used: {missing}{reason}") from error


def _load_hub(name: str) -> External:
    transformers = require("transformers", "hf", f"the encoder hf:{name}")
    folder, *facts = _folder(name)
    options = {"use_safetensors": True, "output_loading_info": True, **SAFE}
    body, report = transformers.AutoModel.from_pretrained(folder, **options)
    body = (body.get_encoder() if body.config.is_encoder_decoder else body).float().eval()
    missing = sorted(report["missing_keys"])  # have random values
    if wrong := [key for key in missing if not key.startswith("pooler.")]:
        raise WeightsError(f"the weights of {name} are incomplete: {listed(wrong, 3)} are missing")
    if missing:
        body.pooler = None
    call = getattr(body, "get_image_features", body)  # of CLIP and others that take texts, too
    if call is not body or body.main_input_name == "pixel_values":
        images = _processed(transformers.AutoImageProcessor.from_pretrained(folder, **SAFE))
        return ExternalEncoder(lambda x: _pooled(call(pixel_values=x))), images, *facts
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **SAFE)
    most = getattr(body.config, "max_position_embeddings", None) or MOST_TOKENS
    texts = _tokens(name, tokenizer, min(tokenizer.model_max_length, most, MOST_TOKENS))

    def encode(tokens: Tensor, mask: Tensor) -> Tensor:
        hidden: Tensor = body(input_ids=tokens, attention_mask=mask).last_hidden_state  # (b, t, d)
        return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

    return ExternalEncoder(encode, texts.pad), texts, *facts


def _load_sentences(name: str) -> External:
    package = require("sentence_transformers", "sentence-transformers", f"the encoder sentence-transformers:{name}")
    folder, *facts = _folder(name)
    options = {"device": "cpu", "model_kwargs": {"use_safetensors": True}, **SAFE}
    body = package.SentenceTransformer(str(folder), **options).float().eval()
    inputs = _tokens(name, body.tokenizer, body.max_seq_length or MOST_TOKENS)

    def encode(tokens: Tensor, mask: Tensor) -> Tensor:
        return body({"input_ids": tokens, "attention_mask": mask})["sentence_embedding"]  # type: ignore[no-any-return]

    return ExternalEncoder(encode, inputs.pad), inputs, *facts


def _load_timm(name: str) -> External:
    timm = require("timm", "timm", f"the encoder timm:{name}")
    return _from_network(timm.create_model(name, pretrained=True, num_classes=0))


def _from_network(body: Any) -> External:
    """Return a network of images with a configuration as in timm; without a file, its tensors are hashed by name."""
    if not isinstance(body, nn.Module):
        raise OptionError(f"an encoder is an nn.Module, got a {type(body).__name__}")
    config: Any = getattr(body.float().eval(), "default_cfg", {})
    state = sorted(body.state_dict().items())
    tensors = (f"{key} {tuple(x.shape)}".encode() + x.contiguous().numpy().tobytes() for key, x in state)
    return ExternalEncoder(body), _images(config), _checksum(tensors), str(config.get("license") or "unknown")


def _load_onnx(path: str) -> External:
    runtime = require("onnxruntime", "onnx", "an encoder in an ONNX file")
    content = Path(path).expanduser().read_bytes()  # weights in other files would not be in the checksum
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    first, *others = session.get_inputs()
    if others or first.type != "tensor(float)" or len(first.shape) != 4 or first.shape[1] != 3:
        actual = f"{1 + len(others)} inputs, the first {first.type} {first.shape}"
        raise OptionError(f"expected one input of images (n, 3, h, w), {path} has {actual}; for texts use hf:NAME")

    def encode(x: Tensor) -> Tensor:
        parts = torch.split(x, 1 if first.shape[0] == 1 else len(x))  # many files are for one image at a time
        return torch.cat([torch.from_numpy(session.run(None, {first.name: part.numpy()})[0]) for part in parts])

    images = _images({"input_size": first.shape} if isinstance(first.shape[3], int) else {})
    return ExternalEncoder(encode), images, _checksum([content]), "unknown"


LOADERS = {"hf": _load_hub, "sentence-transformers": _load_sentences, "timm": _load_timm, "onnx": _load_onnx}


def _folder(name: str) -> tuple[Any, ...]:
    """Return the folder of a model, named or in the cache of the hub, and checksum and licence of its weights."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        hub = require("huggingface_hub", "hf", f"the model {name}")
        folder = Path(hub.snapshot_download(name, allow_patterns=PATTERNS))
    weights = sorted(path for pattern in WEIGHTS for path in folder.glob(pattern))
    if not weights:
        raise WeightsError(f"{name} has no weights as safetensors, and other files could run code; convert them")
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    licence = re.match(r"---\n(?:(?!---).*\n)*?license: *[\"']?([\w.-]+)", text)
    return folder, _checksum(path.read_bytes() for path in weights), licence[1] if licence else "unknown"


def _checksum(parts: Iterable[bytes]) -> str:
    return f"sha256:{hashlib.sha256(b''.join(parts)).hexdigest()}"


def _pooled(outputs: Any) -> Tensor:
    """Return what a model itself computes as the features of an input, else the mean of its last layer."""
    z = outputs if isinstance(outputs, Tensor) else getattr(outputs, "pooler_output", None)
    return outputs.last_hidden_state.mean(1) if z is None else z.flatten(1)


def _tokens(name: str, tokenizer: Any, most: int) -> TokenInputs:
    if not getattr(tokenizer, "is_fast", False):
        raise OptionError(f"the tokenizer of {name} is not one of the library tokenizers; save it as tokenizer.json")
    pad = next((each for each in (tokenizer.pad_token_id, tokenizer.eos_token_id) if each is not None), 0)
    return TokenInputs(tokenizer.backend_tokenizer.to_str(), most, pad=pad)


def _processed(processor: Any) -> ImageInputs:
    """Return images at the size and with the mean and std of a processor of transformers."""
    sizes = dict(processor.size)
    side = next(sizes[each] for each in ("height", "shortest_edge", "longest_edge") if sizes.get(each))
    crop = dict(processor.crop_size)["height"] if getattr(processor, "do_center_crop", False) else side
    mean, std = (processor.image_mean, processor.image_std) if processor.do_normalize else ((0.0,), (1.0,))
    return _images({"mean": mean, "std": std, "input_size": (crop,), "crop_pct": min(1.0, crop / side)})


def _images(given: Mapping[str, Any]) -> ImageInputs:
    config: dict[str, Any] = {**IMAGENET, **given}
    mean, std = tuple(config["mean"]), tuple(config["std"])
    return ImageInputs(int(config["input_size"][-1]), 3, mean, std, float(config["crop_pct"]))
