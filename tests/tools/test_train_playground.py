"""The script that trains the digit classifiers, on a few made-up images."""

import numpy as np
import pytest
import torch

from openradial.bundle import describe
from openradial.data import Examples
from openradial.files import WEIGHTS, read_tensors
from openradial.heads import RadialHead, SoftmaxHead
from openradial.server.playground import digits
from openradial.training import Settings
from tools.train_playground import DigitData, keep, train_digits

CLASSES = tuple("0123456789")


def stripes(count, seed):
    """Images whose class is where a bright stripe lies."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 10
    images = torch.randint(0, 60, (count, 1, 28, 28), generator=random, dtype=torch.uint8)
    for image, label in zip(images, labels.tolist(), strict=True):
        image[0, 2 * label + 3 : 2 * label + 6] = 255
    return Examples(images, labels, CLASSES)


@pytest.fixture(scope="module")
def data():
    noise = torch.randint(0, 255, (40, 1, 28, 28), generator=torch.Generator().manual_seed(9), dtype=torch.uint8)
    return DigitData(stripes(400, 0), stripes(100, 1), stripes(100, 2), Examples(noise, torch.full((40,), -1), CLASSES))


@pytest.mark.parametrize(("head", "kind"), [("softmax", SoftmaxHead), ("radial", RadialHead)])
def test_a_trained_classifier_comes_back_from_its_files_as_it_was(data, tmp_path, monkeypatch, head, kind):
    bundle = train_digits(head, data, Settings(epochs=2, batch_size=50, channels_last=True))
    assert isinstance(bundle.head, kind)
    keep(bundle, tmp_path / head)
    stored, _ = read_tensors(tmp_path / head / WEIGHTS)
    assert {tensor.dtype for name, tensor in stored.items() if name.startswith("network.")} == {torch.float16}
    monkeypatch.setattr(digits, "MODELS", tmp_path)
    again = digits.digit_model.__wrapped__(head)
    before, after = bundle.predict(data.test.inputs), again.predict(data.test.inputs)
    np.testing.assert_array_equal(before.labels, after.labels)
    np.testing.assert_array_equal(before.p_values, after.p_values)
    assert set(describe(tmp_path / head).metadata["measured"]) == {
        "accuracy",
        "false_reject_rate",
        "fashion_mnist_rejected",
        "fashion_mnist_auroc",
    }
