"""The combination of several unknown scores into one, calibrated again."""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Self, get_args

import torch
from torch import Tensor

from openradial.conformal import conformal_p_values
from openradial.errors import OptionError, ShapeError, check_choice, check_count, check_positive
from openradial.scorers.base import Scorer, ScorerInput, at_least_float32, check_known, check_rows

CombinationMethod = Literal["fisher", "mean", "min", "standardised"]
METHODS: tuple[CombinationMethod, ...] = get_args(CombinationMethod)
START, STEEP = 3.25, 10.0  # of upper_tail: chosen on training images of known classes, see docs/encoders.md
TAIL = 0.1  # share of the calibration scores that determine how fast p falls off in a column


class Combination(Scorer):
    r"""Several unknown scores of one input, ``(b, m)``, merged into one.

    :meth:`fit` takes the scores of known data that no scorer was fitted on. One half of it gives every column its
    conformal p-values; the method merges those of a row:

    - ``"fisher"``: :math:`-\sum_j \log p_j`: every column adds evidence;
    - ``"mean"``: :math:`-\log` of their mean: all columns must call the input unknown;
    - ``"min"``: :math:`-\log` of the smallest: one column is enough;
    - ``"standardised"``: no p-values, but the sum of the log scores, each less its mean and divided by its standard
      deviation on that half, and times its weight in ``weights``. It takes scores above 0, such as distances. The
      last ``tail`` columns have no weight, but decide where they are far above known data, see :func:`upper_tail`.

    Between two calibration scores p is interpolated, so that equal counts are no ties. Beyond the largest one, where
    counting would give 1/(n+1) for every score, p falls off exponentially, as fast as the highest tenth of the
    calibration scores does, so that inputs far away keep their order. Below the smallest score p stays 1.

    The other half is merged and kept: :meth:`p_values` compares with it, so for every method and every dependence of
    the columns, a known input gets p ≤ r in at most a share r of all cases.

    >>> known = torch.arange(1.0, 9.0).unsqueeze(1).expand(-1, 2)
    >>> merge = Combination("min").fit(known)
    >>> merge.p_values(torch.tensor([[1.0, 1.0], [1.0, 99.0]]))
    tensor([1.0000, 0.2000], dtype=torch.float64)
    """

    takes: ClassVar[ScorerInput] = "scores"
    fitted: ClassVar[tuple[str, ...]] = ("columns", "merged")
    columns: Tensor
    merged: Tensor

    def __init__(
        self,
        method: CombinationMethod = "fisher",
        *,
        seed: int = 0,
        weights: Sequence[float] | None = None,
        tail: int = 0,
    ) -> None:
        super().__init__()
        check_choice("method", method, METHODS)
        check_count("seed", seed, least=0)
        check_count("tail", tail, least=0)
        for weight in weights or ():
            check_positive("a weight", weight)
        if (weights is not None or tail) and method != "standardised":
            raise OptionError(f"weights and tail are for the standardised method, got {method!r}; leave them out")
        self.method, self.seed, self.tail = method, int(seed), int(tail)
        self.weights = None if weights is None else [float(weight) for weight in weights]

    def fit(self, scores: Tensor, y: Tensor | None = None) -> Self:
        """Fit on the scores of known data, ``(n, m)``; ``seed`` decides which half each row belongs to."""
        check_rows("scores", scores)
        check_known("scores", scores)
        if len(scores) < 4:
            raise ShapeError(f"a combination needs at least 4 rows of known data to learn from, got {len(scores)}")
        self._check_columns(scores)
        rows = scores.detach().double()
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(self.seed)).to(rows.device)
        half = len(rows) // 2
        if self.method == "standardised" and (rows <= 0).any():
            row, column = (rows <= 0).nonzero()[0].tolist()
            raise OptionError(
                f"the standardised method takes scores above 0, got {float(rows[row, column]):g} in row {row}, column "
                f"{column}; use another method"
            )
        same = (rows[order[:half]] == rows[order[0]]).all(0)
        if self.method == "standardised" and same.any():
            constant = f"a constant in column {int(same.int().argmax())}"
            raise OptionError(f"the standardised method takes scores that vary, got {constant}; leave it out")
        self.columns = rows[order[:half]].sort(0).values
        self.merged = self._merge(rows[order[half:]]).sort().values
        return self

    def restore(self, tensors: Mapping[str, Tensor]) -> Self:
        if "columns" in tensors:
            check_rows("columns", tensors["columns"])
            self._check_columns(tensors["columns"])
        return super().restore(tensors)

    def unknown_score(self, scores: Tensor) -> Tensor:
        """Return the merged score, ``(b, m) -> (b,)``; nan where a column is nan, infinite where a column is."""
        self._check_fitted()
        check_rows("scores", scores, self.columns.shape[1])
        return self._merge(scores.double()).to(at_least_float32(scores).dtype)

    def p_values(self, scores: Tensor) -> Tensor:
        """Return conformal p-values of the merged score, ``(b, m) -> (b,)`` float64; see :func:`conformal_p_values`."""
        self._check_fitted()
        check_rows("scores", scores, self.columns.shape[1])
        return conformal_p_values(self.merged, self._merge(scores.double()))

    def _check_columns(self, scores: Tensor) -> None:
        count, weights = scores.shape[1] - self.tail, self.weights or ()
        if count < 1 or len(weights) not in (0, count):
            raise ShapeError(f"each score needs a weight, got {count} before the tail and {len(weights)} weights")

    def _merge(self, scores: Tensor) -> Tensor:
        if self.method == "standardised":
            known = self.columns.double().log()
            logs = scores.clamp_min(self.columns[0]).log()  # (b, m)
            standardised = (logs - known.mean(0)) / known.std(0)
            count = standardised.shape[1] - self.tail
            weights = logs.new_ones(count) if self.weights is None else logs.new_tensor(self.weights)
            return standardised[:, :count] @ weights + weights.sum() * upper_tail(standardised[:, count:]).sum(1)
        log_p = self._log_p(scores)
        if self.method == "fisher":
            return -log_p.sum(1)
        if self.method == "mean":
            return math.log(log_p.shape[1]) - log_p.logsumexp(1)
        return -log_p.amin(1)

    def _log_p(self, scores: Tensor) -> Tensor:
        """Return the log p-value of each column, continuous in the scores; ``(b, m) -> (b, m)``."""
        (columns, p, fall), scores = self._calibrated(), scores.T.contiguous()  # (m, n), (m, n), (m, 1), (m, b)
        above = self._ranks(columns, scores)
        left, right = (above - 1).clamp_min(0), above.clamp_max(columns.shape[1] - 1)
        start, gap = columns.gather(1, left), columns.gather(1, right) - columns.gather(1, left)
        share = ((scores - start) / gap.where(gap > 0, 1.0)).clamp(0, 1)
        between = torch.lerp(p.gather(1, left), p.gather(1, right), share)
        beyond = ((scores - columns[:, -1:]) / fall).clamp_min(0)
        return (between.log() - beyond).T

    def _calibrated(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sorted calibration scores of each column, their p-values, and how fast p falls off beyond."""
        columns = self.columns.T.double().contiguous()
        return columns, torch.stack([conformal_p_values(column, column) for column in columns]), _fall(columns)

    def _ranks(self, columns: Tensor, scores: Tensor) -> Tensor:
        """Return how many calibration scores are at most each score, ``(m, n), (m, b) -> (m, b)``."""
        return torch.searchsorted(columns, scores, right=True)


def upper_tail(standardised: Tensor) -> Tensor:
    """Return ten times what exceeds 3.25 standard deviations, else 0.

    So a score that says nothing about classes, but finds inputs of another kind, leaves the order of nearly all known
    and novel inputs as it is; beyond, no other score outweighs it.

    >>> upper_tail(torch.tensor([-3.0, 0.5, 3.25, 5.25]))
    tensor([ 0.,  0.,  0., 20.])
    """
    return STEEP * (standardised - START).clamp_min(0)


def _fall(columns: Tensor) -> Tensor:
    """Return the mean excess of the highest scores of each sorted column over the score below, ``(m, n) -> (m, 1)``.

    It is the scale of an exponential tail; the standard deviation where the highest scores are all equal, and 1 where
    all scores are.
    """
    count = math.ceil(TAIL * columns.shape[1])
    excess = (columns[:, -count:] - columns[:, -count - 1, None]).mean(1, keepdim=True)
    spread = columns.std(1, keepdim=True)
    return torch.where(excess > 0, excess, torch.where(spread > 0, spread, 1.0))
