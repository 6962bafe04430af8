"""Rows of numbers as a network takes them: standardised if requested, float32, clipped so that nothing overflows."""

import math
from dataclasses import dataclass
from typing import Any, Self, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]
from torch import Tensor, nn

from openradial.conformal.calibration import examples_needed
from openradial.conformal.inputs import check_rate
from openradial.data.duplicates import duplicate_groups
from openradial.data.examples import Examples
from openradial.data.splits import train_test_split
from openradial.errors import DataError, OptionError
from openradial.recipe import MIN_COMBINATION, REFERENCES

LIMIT = 1e15  # far beyond all known rows; squares of outputs still fit into float32
ROWS = 1024  # per batch at prediction
SHARE = 1 / 3  # of the held-out rows, for the combination


@dataclass(frozen=True)
class Seen:
    """At most 10,000 different rows that were trained on, drawn at random.

    >>> len(Seen.of(torch.ones(5, 2), seed=0).rows)
    1
    """

    rows: Tensor  # (n, d)
    keys: Tensor  # (n,) random numbers: the rows with the smallest are kept

    @classmethod
    def of(cls, rows: Tensor, seed: int) -> Self:
        """Draw from rows."""
        keys = torch.rand(len(rows), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return cls(rows, keys)._smallest()._different()

    def joined(self, other: Self) -> Self:
        """Return both together, as if they had been drawn from all rows at once."""
        both = type(self)(torch.cat([self.rows, other.rows]), torch.cat([self.keys, other.keys]))
        return both._different()._smallest()  # more epochs show the same rows again

    def examples(self, classes: tuple[str, ...]) -> Examples:
        """Return the rows as examples; neighbours need no labels."""
        return Examples(self.rows, torch.zeros(len(self.rows), dtype=torch.int64), classes)

    def _smallest(self) -> Self:
        order = self.keys.argsort()[:REFERENCES]
        return type(self)(self.rows[order], self.keys[order])

    def _different(self) -> Self:
        rows, index = torch.unique(self.rows, dim=0, return_inverse=True)
        keys = self.keys.new_ones(len(rows)).scatter_reduce(0, index, self.keys, "amin")
        return type(self)(rows, keys)


def check_neighbours(value: object) -> None:
    """Raise unless ``value`` is True or False, of Python or of NumPy."""
    if not isinstance(value, bool | np.bool_):
        raise OptionError(f"neighbours must be True or False, got {value!r}; it is always the one nearest row")


def as_groups(examples: Examples, groups: ArrayLike | None) -> NDArray[np.int64]:
    """Return the group of each row, ``(n,)``: those that are given, else identical rows."""
    if groups is None:
        return duplicate_groups(examples)
    given = np.asarray(groups)
    if given.shape != (len(examples),):
        raise DataError(f"groups must have one value per row, shape ({len(examples)},), got {given.shape}")
    return np.unique(given, return_inverse=True)[1].astype(np.int64)


def hold_out_share(
    examples: Examples, name: str, share: float, seed: int, groups: NDArray[np.int64]
) -> tuple[Examples, Examples, NDArray[np.int64]]:
    """Return the examples without a share of each class, that share, and the groups of the first part."""
    indices = Examples(torch.arange(len(examples)), examples.labels, examples.classes)
    kept, held = train_test_split(indices, check_rate(name, share), seed=seed, groups=groups)
    if not len(held):
        raise DataError(f"{name} needs a class with at least 2 different examples to hold one out, got 1 of each class")
    return examples.select(kept.inputs), examples.select(held.inputs), groups[kept.inputs.numpy()]


def divide_held_out(held: Examples, rate: float, seed: int) -> tuple[Examples | None, Examples]:
    """Return rows for the combination, or None with too few, and rows for the rejector."""
    for_rejector, for_scores = train_test_split(held, SHARE, seed, groups=duplicate_groups(held))
    if len(for_scores) < MIN_COMBINATION or len(for_rejector) < examples_needed(rate):
        return None, held
    return for_scores, for_rejector


def check_enough(held: Examples, rows: int, share: float, rate: float) -> None:
    """Raise unless the held-out rows, a share of all, are enough for this rate."""
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
    """Fit the mean and the standard deviation of every column."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaler = StandardScaler().fit(X)
    bad = ~np.isfinite(scaler.scale_)
    if bad.any():
        column = int(bad.argmax())
        raise DataError(
            f"column {column} has numbers up to {np.abs(X[:, column]).max():g}, too large to be standardised; "
            "divide them, or remove placeholders of missing values"
        )
    return scaler


def as_rows(X: NDArray[Any], scaler: StandardScaler | None) -> Tensor:
    """Return standardised float32 rows, ``(n, d) -> (n, d)``."""
    with np.errstate(over="ignore"):
        scaled = X if scaler is None else scaler.transform(X)
    return torch.tensor(np.clip(scaled, -LIMIT, LIMIT), dtype=torch.float32)


def scaled(examples: Examples, scaler: StandardScaler | None) -> Examples:
    """Return the examples with rows as the network takes them."""
    return Examples(as_rows(examples.inputs.numpy(), scaler), examples.labels, examples.classes)


@overload
def as_batches(data: Examples, net: nn.Module) -> list[tuple[Tensor, Tensor]]: ...
@overload
def as_batches(data: Tensor, net: nn.Module) -> list[Tensor]: ...
def as_batches(data: Examples | Tensor, net: nn.Module) -> list[tuple[Tensor, Tensor]] | list[Tensor]:
    """Return rows in chunks on the device and in the precision of a network, with their labels if there are any."""
    kind = next((p for p in net.parameters() if p.is_floating_point()), torch.empty(0))
    rows = data.inputs if isinstance(data, Examples) else data
    chunks = [part.to(kind.device, kind.dtype) for part in torch.split(rows, ROWS)]
    return chunks if isinstance(data, Tensor) else list(zip(chunks, torch.split(data.labels, ROWS), strict=True))
