"""Rows of numbers as a network takes them: standardised if wished, float32, and never so large that it overflows."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]
from torch import Tensor

from openradial.conformal.calibration import examples_needed
from openradial.conformal.inputs import check_rate
from openradial.data.examples import Examples
from openradial.data.splits import train_test_split
from openradial.errors import DataError, OptionError

LIMIT = 1e15  # far beyond all that is known; squares of outputs still fit into float32


def held_out(examples: Examples, name: str, share: float, seed: int) -> tuple[Examples, Examples]:
    """The examples without a share of each class, and that share; ``name`` is that of the setting."""
    kept, held = train_test_split(examples, check_rate(name, share), seed=seed)
    if not len(held):
        raise DataError(f"{name} needs a class with at least 2 examples to hold one out, got 1 of each class")
    return kept, held


def check_enough(held: Examples, rows: int, share: float, rate: float) -> None:
    """Raise unless the rows that were held out, a share of all, can reject something at this rate."""
    needed = examples_needed(check_rate("false_reject_rate", rate))
    if len(held) >= needed:
        return
    wanted = needed + len(held.classes) / 2  # in each class up to half a row is lost to rounding
    ways = [f"fit at least {math.ceil(wanted / share)} rows", f"ask for a rate of at least 1/{len(held) + 1}"]
    if wanted < rows:
        ways.insert(1, f"raise calibration_fraction to {math.ceil(100 * wanted / rows) / 100:g}")
    raise OptionError(
        f"a false_reject_rate of {rate:g} needs at least {needed} held-out rows, got {len(held)}: "
        f"calibration_fraction={share:g} of {rows} rows; {', '.join(ways[:-1])} or {ways[-1]}"
    )


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
