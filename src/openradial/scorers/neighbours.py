"""k nearest neighbours (Sun, Ming, Zhu and Li 2022, "Out-of-Distribution Detection with Deep Nearest Neighbors")."""

from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from openradial.errors import OptionError, check_choice, check_count
from openradial.scorers.base import Input, Scorer, at_least_float32, check_rows
from openradial.scorers.density import check_classes, check_features
from openradial.scorers.neighbour_search import Rows


class NeighbourDensity(Scorer):
    """How far the k nearest known examples are.

    The score is the distance to the k-th nearest reference (``reduce="kth"``) or the mean distance to the k nearest
    (``"mean"``). The metric is Euclidean, or ``"cosine"``: one minus the cosine, where a row of zeros is at 1 from
    every other. ``normalise`` divides each row by its length first, as the paper does. With ``by_class`` the neighbours
    must be of one class: the score is the smallest of the scores against the references of each class alone.

    The search is exact also next to a reference, because distances come from differences in float64; memory is bounded.
    A row with nan scores nan, a row with an infinity scores infinity, or nan where only directions count.

    >>> known = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
    >>> NeighbourDensity(k=2).fit(known).unknown_score(torch.tensor([[0.0, 0.0], [9.0, 0.0]]))
    tensor([1., 9.])
    """

    takes: ClassVar[Input] = "features"
    fitted: ClassVar[tuple[str, ...]] = ("references", "labels")
    references: Tensor
    labels: Tensor

    def __init__(
        self,
        k: int = 10,
        metric: Literal["euclidean", "cosine"] = "euclidean",
        reduce: Literal["kth", "mean"] = "kth",
        normalise: bool = False,
        by_class: bool = False,
    ) -> None:
        super().__init__()
        check_count("k", k)
        check_choice("metric", metric, ("euclidean", "cosine"))
        check_choice("reduce", reduce, ("kth", "mean"))
        self.k, self.metric, self.reduce = int(k), metric, reduce
        self.normalise, self.by_class = bool(normalise), bool(by_class)
        self._made: tuple[tuple[Tensor, int | None], list[tuple[Tensor, Rows]]] | None = None

    def settings(self) -> dict[str, Any]:
        return {
            "k": self.k,
            "metric": self.metric,
            "reduce": self.reduce,
            "normalise": self.normalise,
            "by_class": self.by_class,
        }

    def fit(self, z: Tensor, y: Tensor | None = None) -> Self:
        """Keep the references, ``(n, d)``; only ``by_class`` needs the labels, ``(n,)``."""
        check_features(z)
        labels = torch.zeros(len(z), dtype=torch.long, device=z.device)
        if self.by_class:
            labels = check_classes(y, len(z)).to(z.device, copy=True)
        counts = labels.bincount()[labels]  # (n,) rows of the row's own class
        if self.k > counts.min():
            where = f" in class {int(labels[counts.argmin()])}" if self.by_class else ""
            raise OptionError(
                f"k must be at most the number of references, got k={self.k} but {int(counts.min())} rows{where}; take "
                "a smaller k"
            )
        self.references, self.labels = z.detach().clone(), labels
        return self

    def unknown_score(self, z: Tensor) -> Tensor:
        self._check_fitted()
        check_rows("features", z, self.references.shape[1])
        rows = self._prepare(z, is_query=True)
        scores = [self._reduce(group.nearest(rows, self.k)) for _, group in self._groups()]
        return torch.stack(scores).amin(0).to(at_least_float32(z).dtype)

    def leave_one_out_scores(self) -> Tensor:
        """The score of each reference when it does not count as its own neighbour, ``(n,)``.

        Known data that is not in the set scores about like this, so a threshold can be set on these scores. The plain
        scores of references are too low for that: each has a neighbour at distance 0.
        """
        self._check_fitted()
        references = self.references
        rows, scores = self._prepare(references, is_query=True), []
        for places, group in self._groups():
            if self.k >= len(places):
                raise OptionError(
                    f"to leave one out, k must be below the number of references{' of a class' * self.by_class}, got "
                    f"k={self.k} but {len(places)}; fit with a smaller k"
                )
            own = torch.full_like(self.labels, -1)
            own[places] = torch.arange(len(places), device=own.device)
            scores.append(self._reduce(group.nearest(rows, self.k, own)))
        return torch.stack(scores).amin(0).to(at_least_float32(references).dtype)

    def _groups(self) -> list[tuple[Tensor, Rows]]:
        """Places and rows of each class, or of all references at once; made once for the references there are."""
        references, labels = self.references, self.labels
        state = (references, None if references.is_inference() else references._version)
        if self._made is None or self._made[0][0] is not references or self._made[0][1] != state[1]:
            rows = self._prepare(references, is_query=False)
            places = [(labels == label).nonzero().squeeze(1) for label in torch.unique(labels)]
            self._made = state, [(at, Rows(rows[at] if len(places) > 1 else rows)) for at in places]
        return self._made[1]

    def _prepare(self, z: Tensor, *, is_query: bool) -> Tensor:
        """The points whose Euclidean distances are to be found, ``(b, d) -> (b, d or d + 2)``."""
        if self.metric == "euclidean" and not self.normalise:
            return z
        rows = z.double()
        length: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        rows = rows / length.where(length > 0, 1.0)
        if self.metric == "euclidean":
            return rows
        # rows of zeros get directions of their own, so that they are orthogonal to every other row
        is_zero, never = (length == 0).double(), torch.zeros_like(length)
        return torch.cat([rows, is_zero, never] if is_query else [rows, never, is_zero], 1)

    def _reduce(self, distances: Tensor) -> Tensor:
        """One score from the rising distances of the neighbours, ``(b, k) -> (b,)``."""
        if self.metric == "cosine":
            distances = distances.square() / 2  # |u - v|² = 2 (1 - cos), without the digits that 1 - cos loses
        return distances[:, -1] if self.reduce == "kth" else distances.mean(1)
