"""Rows of numbers as a network takes them: standardised if requested, float32, clipped so that nothing overflows."""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse  # type: ignore[import-untyped]
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]
from sklearn.utils.validation import _check_sample_weight  # type: ignore[import-untyped]
from torch import Tensor, nn

from openradial.conformal.calibration import examples_needed
from openradial.conformal.inputs import check_rate
from openradial.data.examples import Examples
from openradial.data.sources import indices
from openradial.data.splits import identical_groups, join_groups, train_test_split
from openradial.errors import DataError, OptionError
from openradial.recipe import MIN_COMBINATION, REFERENCES

LIMIT = 1e15  # far beyond all known rows; squares of outputs still fit into float32
ROWS = 1024  # per batch at prediction
MOST_NUMBERS = 2**28  # of a sparse matrix that becomes dense: 2 GB in float64
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

    @classmethod
    def among(cls, rows: Tensor, count: int) -> Self:
        """Return rows that were drawn from ``count`` rows earlier, by another call of :meth:`of`."""
        made = cls.of(rows, seed=0)  # the smallest keys of so many rows lie below this share of 1
        return cls(made.rows, made.keys * min(1.0, len(made.rows) / count))

    def joined(self, other: Self) -> Self:
        """Return both together, as if they had been drawn from all rows at once."""
        both = type(self)(torch.cat([self.rows, other.rows]), torch.cat([self.keys, other.keys]))
        return both._different()._smallest()  # more epochs show the same rows again

    def _smallest(self) -> Self:
        order = self.keys.argsort()[:REFERENCES]
        return type(self)(self.rows[order], self.keys[order])

    def _different(self) -> Self:
        rows, index = torch.unique(self.rows, dim=0, return_inverse=True)
        keys = self.keys.new_ones(len(rows)).scatter_reduce(0, index, self.keys, "amin")
        return type(self)(rows, keys)


@dataclass(frozen=True, eq=False)
class GroupedExamples:
    """Examples with the group of each one, which is never separated, and with its weight."""

    examples: Examples
    groups: Tensor  # (n,)
    weights: Tensor | None = None  # (n,)

    @classmethod
    def of(cls, examples: Examples, groups: ArrayLike | None, weights: Tensor | None = None) -> Self:
        """Put identical rows into one group, and rows that share one of the given groups too."""
        identical = identical_groups(examples)
        if groups is None:
            return cls(examples, identical, weights)
        given = np.asarray(groups)
        if given.shape != identical.shape:
            raise DataError(f"groups must have one value per row, shape ({len(examples)},), got shape {given.shape}")
        codes = torch.from_numpy(np.unique(given, return_inverse=True)[1].astype(np.int64))
        return cls(examples, join_groups(codes, identical), weights)

    def count(self) -> int:
        """Return the number of groups."""
        return len(set(self.groups.tolist()))

    def split(self, share: float, seed: int) -> tuple[Self, Self]:
        """Return the examples without a share of each class, and that share."""
        parts = [part.inputs for part in train_test_split(indices(self.examples), share, seed, self.groups)]
        weights = [None if self.weights is None else self.weights[part] for part in parts]
        columns = ((self.examples.select(part), self.groups[part]) for part in parts)
        kept, taken = (type(self)(*column, weight) for column, weight in zip(columns, weights, strict=True))
        return kept, taken

    def hold_out(self, name: str, share: float, seed: int) -> tuple[Self, Self]:
        """Split as :meth:`split` does, and raise if nothing can be held out."""
        kept, held_out = self.split(check_rate(name, share), seed)
        if not len(held_out.examples):
            expected = "a class with at least 2 different rows (or groups) to hold one out"
            raise DataError(f"{name} needs {expected}, got 1 of each class")
        return kept, held_out

    def split_for_scores(self, rate: float, seed: int) -> tuple[Examples | None, Examples]:
        """Return rows for the combination, or None with too few, and rows for the rejector."""
        for_rejector, for_scores = self.split(SHARE, seed)
        if for_scores.count() < MIN_COMBINATION or for_rejector.count() < examples_needed(rate):
            return None, self.examples
        return for_scores.examples, for_rejector.examples

    def check_enough(self, known: Self, share: float, rate: float) -> None:
        """Raise unless this share of the known rows is enough for this rate; a group counts once."""
        needed, n, total = examples_needed(check_rate("false_reject_rate", rate)), self.count(), known.count()
        if n >= needed:
            return
        wanted = needed + len(self.examples.classes) / 2  # in each class up to half a row is lost to rounding
        rows = "rows" if total == len(known.examples) else "different rows (or groups)"
        ways = [f"fit at least {math.ceil(wanted / share)} {rows}", f"ask for a rate of at least 1/{n + 1}"]
        ways.append("reject no row with false_reject_rate=None")
        if wanted < total:
            ways.insert(1, f"raise calibration_fraction to {math.ceil(100 * wanted / total) / 100:g}")
        got = f"{n}: calibration_fraction={share:g} of {total} {rows}"
        message = f"a false_reject_rate of {rate:g} needs at least {needed} held-out {rows}, got {got}"
        raise OptionError(f"{message}; {', '.join(ways[:-1])} or {ways[-1]}")


def complete(X: Any, means: NDArray[np.float64] | None) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return rows, dense and with the mean of the column for each NaN, and these means; None computes them."""
    if issparse(X):
        if math.prod(X.shape) > MOST_NUMBERS:
            numbers = f"{X.shape[0]:,} x {X.shape[1]:,} numbers are more than {MOST_NUMBERS:,}"
            way_out = "reduce its columns first, as TruncatedSVD of scikit-learn does"
            raise DataError(f"a sparse matrix becomes dense, and {numbers}; {way_out}")
        X = X.toarray()
    missing = np.isnan(X)
    if missing.all(0).any() and means is None:
        raise DataError(f"column {int(missing.all(0).argmax())} has no values, only NaN; remove it")
    if means is None:
        with np.errstate(over="ignore"):
            means = np.nanmean(X, axis=0, dtype=np.float64)
    return np.where(missing, means.astype(X.dtype), X) if missing.any() else X, means


def row_weights(sample_weight: ArrayLike | None, X: Any) -> tuple[Tensor | None, Any]:
    """Return the weights that are above 0, and which rows have one; without weights None and all rows."""
    if sample_weight is None:
        return None, slice(None)
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    return torch.tensor(weights[weights > 0]), weights > 0


def fit_scaler(X: NDArray[Any]) -> StandardScaler:
    """Fit the mean and the standard deviation of every column."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaler = StandardScaler().fit(X)
    bad = ~np.isfinite(scaler.scale_)
    if bad.any():
        column = int(bad.argmax())
        message = f"column {column} has numbers up to {np.abs(X[:, column]).max():g}, too large to be standardised"
        raise DataError(f"{message}; divide them, or remove placeholders of missing values")
    return scaler


def as_rows(X: NDArray[Any], scaler: StandardScaler | None) -> Tensor:
    """Return standardised float32 rows, ``(n, d) -> (n, d)``."""
    with np.errstate(over="ignore"):
        scaled = X if scaler is None else scaler.transform(X)
    return torch.tensor(np.clip(scaled, -LIMIT, LIMIT), dtype=torch.float32)


def scaled(examples: Examples, scaler: StandardScaler | None) -> Examples:
    """Return the examples with rows as the network takes them."""
    return Examples(as_rows(examples.inputs.numpy(), scaler), examples.labels, examples.classes)


def as_batches(rows: Tensor, labels: Tensor, net: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Return rows and labels in chunks; rows on the device and in the precision of a network."""
    floats = (parameter for parameter in net.parameters() if parameter.is_floating_point())
    kind = next(floats, torch.empty(0))
    chunks = [part.to(kind.device, kind.dtype) for part in torch.split(rows, ROWS)]
    return list(zip(chunks, torch.split(labels, ROWS), strict=True))
