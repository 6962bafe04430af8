"""Digits: 1,797 handwritten digits of 8 x 8 pixels, part of scikit-learn, so that nothing is downloaded."""

import numpy as np
import torch

from openradial.data.examples import Examples
from openradial.errors import check_choice, require

CLASSES = tuple("0123456789")


def digits(split: str = "train") -> Examples:
    """Load images ``(n, 1, 8, 8)`` uint8 with values 0..16: 1,442 for training or 355 for testing.

    There is no official split: every fifth image of each digit is for testing.
    """
    check_choice("split", split, ("train", "test"))
    data = require("sklearn.datasets", "sklearn", "the digits set").load_digits()
    labels = data.target.astype(np.int64)
    seen = (labels[:, None] == np.arange(10)).cumsum(axis=0)  # (n, 10) images of each digit so far
    which = (seen[np.arange(len(labels)), labels] % 5 == 0) == (split == "test")
    inputs = torch.from_numpy(data.images[which].astype(np.uint8)).unsqueeze(1)
    return Examples(inputs, torch.from_numpy(labels[which]), CLASSES)
