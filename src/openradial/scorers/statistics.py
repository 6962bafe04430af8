"""Sufficient statistics of labelled features: what means, covariances and linear classifiers are computed from."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from openradial.errors import OptionError, ShapeError, check_count
from openradial.scorers.base import AT_ONCE, check_features, check_labels

EPSILON = torch.finfo(torch.float64).eps
ROUNDING = 1e-13  # a share of a sum of squares that is rounding, also for a sum over thousands of classes
SAME_WEIGHT = 1e-6  # relative difference of two sums of the same weights, at most
BLOCKS = 4  # of columns, whose products are computed together


@dataclass(frozen=True, eq=False)
class ClassStatistics:
    """Counts, class means and the scatter of features around their overall mean, in float64. They add up and subtract.

    The statistics of two parts of the data add up to those of all data, up to rounding and in any order; subtracting
    those of a part leaves those of the rest. Deviations from means are summed, so a large offset of all features costs
    no digits.

    >>> z, y = torch.tensor([[0.0], [2.0], [9.0]]), torch.tensor([0, 0, 1])
    >>> all_rows = ClassStatistics.of(z, y, num_classes=2)
    >>> all_rows.means, all_rows.within()
    (tensor([[1.],
            [9.]], dtype=torch.float64), tensor([[2.]], dtype=torch.float64))
    >>> (all_rows - ClassStatistics.of(z[2:], y[2:], num_classes=2)).counts
    tensor([2, 0])
    """

    weights: Tensor  # (k,) float64: sum of the weights of the examples of each class; without weights the counts
    counts: Tensor  # (k,) int64: examples of each class
    means: Tensor  # (k, d) float64; zeros for a class without examples
    scatter: Tensor  # (d, d) float64: sum of w (z - mean)(z - mean)' around the overall weighted mean

    @classmethod
    def of(
        cls,
        z: Tensor,
        y: Tensor,
        num_classes: int,
        class_weight: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Self:
        """Compute the statistics of features ``(n, d)`` with labels ``(n,)``, in bounded memory.

        Args:
            z: Finite features of any floating-point dtype, at least one row.
            y: The class of each row, from 0 to ``num_classes - 1``.
            num_classes: Number of classes k; some may have no examples.
            class_weight: Positive weight of each example of a class, ``(k,)``; 1 without.
            sample_weight: Positive weight of each row, ``(n,)``, which multiplies that of its class; 1 without.
        """
        check_features(z)
        check_count("num_classes", num_classes)
        check_labels(y, len(z), num_classes)
        z, y = z.detach(), y.to(z.device, torch.int64)
        weight = _checked_weight(class_weight, num_classes, z.device)
        counts = y.bincount(minlength=num_classes)
        s = None if sample_weight is None else checked_sample_weight(sample_weight, len(z)).to(z.device)  # (n,)
        mass = counts.double() if s is None else weight.new_zeros(num_classes).index_add_(0, y, s)
        weights = mass * weight
        at_once = max(1, AT_ONCE // (3 * z.shape[1]))  # three copies of a part at a time
        each = weight[y] if s is None else weight[y] * s  # (n,)
        slices = [slice(at, at + at_once) for at in range(0, len(z), at_once)]
        size = -(-z.shape[1] // BLOCKS)
        blocks = [slice(at, at + size) for at in range(0, z.shape[1], size)]
        shift = sum(each[at] @ z[at].double() for at in slices) / weights.sum()
        sums = shift.new_zeros(num_classes, z.shape[1])
        scatter = shift.new_zeros(z.shape[1], z.shape[1])
        for at in slices:
            deviations = z[at].double() - shift
            sums.index_add_(0, y[at], deviations if s is None else deviations * s[at].unsqueeze(1))
            deviations *= each[at].sqrt().unsqueeze(1)
            for block in blocks:  # the upper triangle is about half the work; below it some values are wrong
                scatter[block, block.start :].addmm_(deviations[:, block].T, deviations[:, block.start :])
        error = weight @ sums / weights.sum()  # of the shift, by rounding
        scatter.triu_().add_(scatter.triu(1).T).sub_(torch.outer(error, error).mul_(weights.sum()))
        means = torch.where(counts.unsqueeze(1) > 0, shift + sums / mass.where(mass > 0, 1.0).unsqueeze(1), 0.0)
        return cls(weights, counts, means, _clamped(scatter))

    @classmethod
    def empty(cls, num_classes: int, num_features: int) -> Self:
        """Return the statistics of no examples."""
        check_count("num_classes", num_classes)
        check_count("num_features", num_features)
        weights = torch.zeros(num_classes, dtype=torch.float64)
        means, scatter = weights.new_zeros(num_classes, num_features), weights.new_zeros(num_features, num_features)
        return cls(weights, weights.long(), means, scatter)

    @property
    def num_classes(self) -> int:
        """Number of classes k, also those without examples."""
        return self.means.shape[0]

    @property
    def num_features(self) -> int:
        """Number of features d."""
        return self.means.shape[1]

    @property
    def total(self) -> float:
        """Sum of the weights of all examples."""
        return float(self.weights.sum())

    @property
    def mean(self) -> Tensor:
        """Weighted mean of all examples, ``(d,)``; zeros without examples."""
        heaviest = self.means[self.weights.argmax()]  # differences of means keep the digits below a common offset
        return heaviest + self.weights @ (self.means - heaviest) / (self.total or 1.0)

    def __add__(self, other: Self) -> Self:
        """Merge the statistics of two disjoint sets (Chan, Golub and LeVeque 1983)."""
        self._check_same_size(other)
        weights = self.weights + other.weights
        share = (other.weights / torch.where(weights > 0, weights, 1.0)).unsqueeze(1)
        means = self.means + (other.means - self.means) * share
        difference = other.mean - self.mean
        factor = self.total * other.total / ((self.total + other.total) or 1.0)
        scatter = (self.scatter + other.scatter).add_(torch.outer(difference, difference).mul_(factor))
        return type(self)(weights, self.counts + other.counts, means, scatter)

    def __sub__(self, other: Self) -> Self:
        """Remove the statistics of a part; what is left has at least the rounding error of the larger statistics."""
        self._check_same_size(other)
        counts = self.counts - other.counts
        weights = torch.where(counts > 0, self.weights - other.weights, 0.0)
        wrong = (counts < 0) | ((counts > 0) & (weights <= 0))
        wrong |= (counts == 0) & ((self.weights - other.weights).abs() > SAME_WEIGHT * self.weights)
        if wrong.any():
            k = int(wrong.int().argmax())
            raise OptionError(
                f"only statistics of a part can be subtracted, but class {k} has {int(self.counts[k])} examples of "
                f"weight {float(self.weights[k]):g}, and {int(other.counts[k])} of weight {float(other.weights[k]):g} "
                "are subtracted; subtract what was added"
            )
        share = (other.weights / torch.where(counts > 0, weights, 1.0)).unsqueeze(1)
        means = self.means + (self.means - other.means) * share
        means = torch.where(counts.unsqueeze(1) > 0, means, 0.0)
        if not counts.any():
            return type(self)(weights, counts, means, torch.zeros_like(self.scatter))
        difference = other.mean - self.mean
        factor = self.total * other.total / float(weights.sum())
        scatter = (self.scatter - other.scatter).sub_(torch.outer(difference, difference).mul_(factor))
        return type(self)(weights, counts, means, _clamped(scatter))

    def within(self) -> Tensor:
        """Return the scatter around the class means, ``(d, d)``: the scatter minus that of the class means.

        A feature that varies within the classes by no more than the rounding of this difference has zeros.
        """
        mean, squares = self.mean, self.scatter.diagonal()
        deviations = (self.means - mean) * self.weights.sqrt().unsqueeze(1)
        rounding = ROUNDING * squares + 4 * EPSILON * mean.abs() * (self.total * squares).sqrt()
        within = torch.addmm(self.scatter, deviations.T, deviations, alpha=-1)
        return _clamped((within + within.T).div_(2), rounding)

    def _check_same_size(self, other: Self) -> None:
        if self.means.shape != other.means.shape:
            sizes = " and ".join(f"{each.num_classes} classes, {each.num_features} features" for each in (self, other))
            raise ShapeError(f"statistics must have the same classes and features, got {sizes}")


def checked_sample_weight(sample_weight: Tensor, count: int) -> Tensor:
    """Return the weights of rows in float64; raise unless there is a positive number for each."""
    weight = torch.as_tensor(sample_weight, dtype=torch.float64)
    if weight.shape != (count,) or not (weight.isfinite() & (weight > 0)).all():
        raise OptionError(
            f"sample_weight must be {count} positive numbers, one per row, got the shape {tuple(weight.shape)}"
            f"{'' if weight.shape != (count,) else f' and {float(weight.min()):g} to {float(weight.max()):g}'}"
        )
    return weight


def _checked_weight(class_weight: Tensor | None, num_classes: int, device: torch.device) -> Tensor:
    """Return the weight of an example of each class, ``(k,)`` float64."""
    if class_weight is None:
        return torch.ones(num_classes, dtype=torch.float64, device=device)
    if class_weight.shape != (num_classes,):
        raise ShapeError(
            f"class_weight must have the shape ({num_classes},), one per class, got {tuple(class_weight.shape)}"
        )
    weight = class_weight.detach().to(device, torch.float64)
    wrong = ~(weight.isfinite() & (weight > 0))
    if wrong.any():
        k = int(wrong.int().argmax())
        message = f"class_weight must be positive and finite, got {float(weight[k]):g} for class {k}"
        raise OptionError(f"{message}; leave out the examples of classes that must not count")
    return weight


def _clamped(scatter: Tensor, rounding: Tensor | float = 0.0) -> Tensor:
    """Return the scatter with zeros for features whose sum of squares is not above its rounding error."""
    vanishes = scatter.diagonal() <= rounding
    return torch.where(vanishes | vanishes.unsqueeze(1), 0.0, scatter) if vanishes.any() else scatter
