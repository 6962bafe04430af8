"""Fashion-MNIST: 70,000 pictures of clothes in MNIST's format."""

from pathlib import Path

from openradial.data.download import Mirror, Package, Source, fetch
from openradial.data.examples import Examples
from openradial.data.readers.idx import labelled_images
from openradial.data.sets.mnist import PARTS
from openradial.errors import check_choice

CLASSES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
SOURCE = Source(
    name="fashion-mnist",
    title="Fashion-MNIST: clothes, 60,000 + 10,000 images of 28 x 28",
    files={  # checksums of what is inside the .gz files: each publisher packs them in its own way
        "train-images-idx3-ubyte": "sha256:c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte": "sha256:bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte": "sha256:5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte": "sha256:0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
    origins=(
        Mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com", "{}.gz"),
        Package("apt", "dataset-fashion-mnist", None, "usr/share/datasets/fashion-mnist/{}.gz"),
    ),
    size=54_950_048,
    licence="MIT (Zalando SE)",
    homepage="https://github.com/zalandoresearch/fashion-mnist",
)


def fashion_mnist(split: str = "train", *, root: Path | str | None = None, download: bool = True) -> Examples:
    """Load Fashion-MNIST as images ``(n, 1, 28, 28)`` uint8: 60,000 for training or 10,000 for testing."""
    check_choice("split", split, PARTS)
    return labelled_images(fetch(SOURCE, root=root, download=download), PARTS[split], CLASSES)
