"""Rows of numbers as a network takes them: standardised if wished, float32, and never so large that it overflows."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]
from torch import Tensor

from openradial.data.examples import Examples
from openradial.data.splits import train_test_split
from openradial.decision.inputs import check_rate
from openradial.errors import DataError

LIMIT = 1e15  # far beyond all that is known; squares of outputs still fit into float32


def held_out(examples: Examples, name: str, share: float, seed: int) -> tuple[Examples, Examples]:
    """The examples without a share of each class, and that share; ``name`` is that of the setting."""
    kept, held = train_test_split(examples, check_rate(name, share), seed=seed)
    if not len(held):
        raise DataError(f"{name} needs a class with at least 2 examples to hold one out, got 1 of each class")
    return kept, held


def fit_scaler(X: NDArray[Any]) -> StandardScaler:
    """The mean and the deviation of every column."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaler = StandardScaler().fit(X)
    bad = ~np.isfinite(scaler.scale_)
    if bad.any():
        column = int(bad.argmax())
        raise DataError(
            f"column {column} has numbers up to {np.abs(X[:, column]).max():g}, too large to be standardised; "
            "divide them, or take out what stands for a missing value"
        )
    return scaler


def as_rows(X: NDArray[Any], scaler: StandardScaler | None) -> Tensor:
    """Standardised float32 rows, ``(n, d) -> (n, d)``."""
    with np.errstate(over="ignore"):
        scaled = X if scaler is None else scaler.transform(X)
    return torch.tensor(np.clip(scaled, -LIMIT, LIMIT), dtype=torch.float32)


def scaled(examples: Examples, scaler: StandardScaler | None) -> Examples:
    """The same examples with rows that a network takes."""
    return Examples(as_rows(examples.inputs.numpy(), scaler), examples.labels, examples.classes)
