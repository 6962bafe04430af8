"""OpenMax (Bendale and Boult 2015, "Towards Open Set Deep Networks"): activations far from their class turn unknown."""

from collections.abc import Iterator
from typing import ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from openradial.errors import HeadError, check_choice, check_count
from openradial.heads.base import Head, HeadOutput
from openradial.heads.weibull import Tails, fit_tails, largest_per_class, tail_cdf
from openradial.scorers.base import at_least_float32, check_known

OpenMaxDistance = Literal["euclidean", "cosine", "combined"]
# Outputs at a time in fit. A sum by class waits for all threads, so it is called seldom; the other steps are fastest in
# the cache, and in pieces that torch leaves to one thread.
SUMMED, MEASURED = 2**20, 2**15 - 1
LARGEST = 1e150  # outputs beyond it, infinite ones too, count as this: their squares still have a sum


class OpenMaxHead(Head):
    r"""Softmax over the classes and the unknown, which receives activation from classes that are far away.

    :meth:`fit` learns, from the correctly classified examples of each class, the mean of their outputs and a Weibull
    distribution of the largest distances to it (:mod:`openradial.heads.weibull`). The :math:`\alpha` largest
    activations :math:`v_j` of an input, of rank 0, 1, ..., are then revised by the probability :math:`F_j` that a
    distance in the tail of class j is at most that of the input:

    .. math:: w_j = 1 - \frac{\alpha - \text{rank}_j}{\alpha} F_j

    .. math:: \hat{v}_j = v_j w_j \qquad \hat{v}_0 = \sum_j v_j (1 - w_j)

    The probabilities are the softmax of :math:`\hat{v}_0` (unknown), :math:`\hat{v}_1, \dots, \hat{v}_K`; those of the
    classes sum to less than 1. The loss is the cross-entropy of the outputs. A class without a correct example has no
    distance: it is not revised, and named by :attr:`missing_classes`.

    Args:
        tail: number of largest distances of each class that the distribution is fitted to.
        alpha: number of activations of an input that are revised.
        distance: ``"euclidean"``, ``"cosine"``, or ``"combined"``: euclidean / 200 + cosine, as in the authors' code.
        form: ``"raw"`` uses the outputs unchanged: adding a number to all of them then changes the result, and a
            negative activation is raised where it should be reduced. ``"shifted"`` depends on differences of outputs
            alone. Activations are counted from the mean of the row, or from the largest one that is not revised if that
            is above it; those below are unchanged. Distances are computed with the mean of each row removed.
    """

    fitted: ClassVar[tuple[str, ...]] = ("means", "counts", "smallest", "shape", "log_scale")
    means: Tensor
    counts: Tensor
    smallest: Tensor
    shape: Tensor
    log_scale: Tensor

    def __init__(
        self,
        num_classes: int,
        *,
        tail: int = 20,
        alpha: int = 10,
        distance: OpenMaxDistance = "euclidean",
        form: Literal["shifted", "raw"] = "shifted",
    ) -> None:
        super().__init__(num_classes)
        check_count("tail", tail, least=2)
        check_count("alpha", alpha)
        check_choice("distance", distance, ("euclidean", "cosine", "combined"))
        check_choice("form", form, ("shifted", "raw"))
        self.tail, self.alpha, self.distance, self.form = int(tail), int(alpha), distance, form

    def log_probs(self, o: Tensor) -> Tensor:
        return _rounded(_all_log_probs(*self._revised(o))[:, 1:], o)

    def unknown_log_prob(self, o: Tensor) -> Tensor:
        """Return the log-probability that the input is of no known class, ``(b, k) -> (b,)``."""
        return _rounded(_all_log_probs(*self._revised(o))[:, 0], o)

    def unknown_score(self, o: Tensor) -> Tensor:
        """Return the log-odds of the unknown, ``(b, k) -> (b,)``: ordered as its probability, without the ties at 1."""
        unknown, revised = self._revised(o)
        return _rounded(unknown - revised.logsumexp(-1), o)

    def predict(self, o: Tensor) -> Tensor:
        """Return the most probable class, ``(b, k) -> (b,)``; before :meth:`fit`, that of the softmax."""
        if self.is_fitted:
            return super().predict(o)
        self._check(o)
        return o.argmax(-1)

    def compute(self, o: Tensor) -> HeadOutput:
        unknown, revised = self._revised(o)
        log_probs = _rounded(_all_log_probs(unknown, revised)[:, 1:], o)
        return HeadOutput(log_probs, _rounded(unknown - revised.logsumexp(-1), o), log_probs.argmax(-1), None)

    def loss(self, o: Tensor, y: Tensor) -> Tensor:
        self._check(o, y)
        return F.cross_entropy(at_least_float32(o), y.long())

    def fit(self, o: Tensor, y: Tensor) -> Self:
        """Fit the means and tails of the classes; the paper uses the training data."""
        self._check(o, y)
        if not len(o) or not o.sum().isfinite():  # a sum takes one pass; looking for the rows at fault takes several
            check_known("outputs", o)
        o = o.detach()
        rows = (o.argmax(1) == y).nonzero().squeeze(1)  # (m,) classified correctly
        if not len(rows):
            message = f"OpenMaxHead learns from correctly classified examples, got none among {len(o)}"
            raise HeadError(f"{message}; check that the labels belong to the outputs and that the network is trained")
        y = y[rows].long()
        self.counts = y.bincount(minlength=self.num_classes)
        sums = o.new_zeros((self.num_classes, self.num_classes), dtype=torch.float64)  # of each class
        for v, labels in self._blocks(o, rows, y, SUMMED):
            sums.index_add_(0, labels, v)
        self.means = self._centred(sums / self.counts.clamp_min(1).unsqueeze(1))
        blocks = self._blocks(o, rows, y, MEASURED)
        d = torch.cat([self._distances(self._centred(v), self.means.index_select(0, labels)) for v, labels in blocks])
        self.smallest, self.shape, self.log_scale = fit_tails(largest_per_class(d, y, self.num_classes, self.tail))
        return self

    def _blocks(self, o: Tensor, rows: Tensor, y: Tensor, outputs: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield some of the selected rows of outputs at a time, with their labels."""
        size = max(1, outputs // self.num_classes)
        for block, labels in zip(torch.split(rows, size), torch.split(y, size), strict=True):
            yield _precise(o.index_select(0, block)), labels

    def _revised(self, o: Tensor) -> tuple[Tensor, Tensor]:
        """Return the activations of the unknown and of the classes, ``(b, k) -> (b,), (b, k)``, in float64."""
        self._check_fitted()
        self._check(o)
        v, ranks = self._centred(_precise(o)), min(self.alpha, self.num_classes)
        top, classes = v.topk(min(ranks + 1, self.num_classes))
        top, following, classes = top[:, :ranks], top[:, ranks:], classes[:, :ranks]  # (b, a), (b, 1 or 0), (b, a)
        weight = 1 - torch.arange(ranks, dtype=v.dtype, device=v.device) / self.alpha
        # one rank at a time: all at once would take alpha times the memory
        means = self.means.double()
        d = torch.stack([self._distances(v, means.index_select(0, labels)) for labels in classes.unbind(1)], 1)
        cdf = tail_cdf(d, Tails(self.smallest[classes], self.shape[classes], self.log_scale[classes]))
        share = weight * cdf.masked_fill(self.counts[classes] == 0, 0.0)  # (b, a) 1 - w
        if self.form == "shifted":
            zero = following.clamp_min(0).sum(-1, keepdim=True)  # 0, the row's mean, where all are revised
            v, top = v - zero, (top - zero).clamp_min(0)
        taken = top * share
        return taken.sum(-1), v.scatter_add(-1, classes, -taken)

    def _centred(self, v: Tensor) -> Tensor:
        """Return the activations, minus their mean in the shifted form; ``(b, k) -> (b, k)``."""
        return v if self.form == "raw" else v - v.mean(-1, keepdim=True)

    def _distances(self, v: Tensor, means: Tensor) -> Tensor:
        """Return the distance of each row to its mean, from differences, without cancellation: ``(b, k) -> (b,)``."""
        if self.distance == "cosine":
            return _cosine_distances(v, means)
        euclidean: Tensor = torch.linalg.vector_norm(v - means, dim=-1)
        return euclidean if self.distance == "euclidean" else euclidean / 200 + _cosine_distances(v, means)


def _all_log_probs(unknown: Tensor, revised: Tensor) -> Tensor:
    return torch.cat([unknown.unsqueeze(-1), revised], -1).log_softmax(-1)  # (b, 1 + k)


def _cosine_distances(a: Tensor, b: Tensor) -> Tensor:
    """Return 1 - cosine, as half the square of a distance between directions; 1 where a row is 0 and has none."""
    sizes = [torch.linalg.vector_norm(x, dim=-1, keepdim=True) for x in (a, b)]
    one, other = (x / torch.where(size > 0, size, 1.0) for x, size in zip((a, b), sizes, strict=True))
    return torch.where(((sizes[0] > 0) & (sizes[1] > 0)).squeeze(-1), (one - other).square().sum(-1) / 2, 1.0)


def _precise(o: Tensor) -> Tensor:
    return o.double().clamp(-LARGEST, LARGEST)


def _rounded(x: Tensor, o: Tensor) -> Tensor:
    """Return ``x`` in the type of the outputs, float32 at least; finite values stay finite."""
    dtype = torch.promote_types(o.dtype, torch.float32)
    limit = torch.finfo(dtype).max
    return x.clamp(-limit, limit).to(dtype)
