"""k nearest neighbours (Sun, Ming, Zhu and Li 2022, "Out-of-Distribution Detection with Deep Nearest Neighbors").

The search is exact: a matrix product in float32 proposes, differences in float64 decide. For a row q and a row r of the
set, |q - r|² = |q|² + 2 s with s = |r|²/2 - q·r, so the smallest s are the nearest rows. A matrix product gives every
s, but only up to rounding. So a few more rows than requested are proposed, their distances are computed from the
differences, and a bound on the rounding shows whether any other row could be nearer. Where it could, the product is
computed again in float64.
"""

from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from openradial.errors import OptionError, check_choice, check_count
from openradial.scorers import base

PRODUCTS = 2**23  # numbers of the matrix s in memory at a time: 32 MB in float32
IN_CACHE = 2**19  # numbers of the differences in memory at a time: 4 MB, which stay in the cache
BLOCK = 64  # columns of s of which only the smallest is compared first
SPARE = {torch.float32: 6, torch.float64: 64}  # rows proposed beyond those requested

CentredRows = tuple[Tensor, Tensor]  # centred rows (n, d), half their squared lengths (n,)


class NeighbourSearch:
    """Exact search for the nearest rows of a set, ``(n, d)``."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows
        self.centre = rows.mean(0, dtype=torch.float64)
        self._prepared32 = self._prepared(torch.float32)

    def nearest(self, z: Tensor, k: int, excluded: Tensor | None = None) -> Tensor:
        """Return the distances to the k nearest rows but ``excluded`` ones, float64 ascending, ``(b, d) -> (b, k)``."""
        with torch.autocast(z.device.type, enabled=False):
            # the bound on the rounding needs float32 products that are computed in float32
            if z.device.type != "cpu" or torch.get_float32_matmul_precision() != "highest":
                return self._search(z, k, self._prepared(torch.float64), excluded)[0]
            distances, proven = self._search(z, k, self._prepared32, excluded)
            again = (~proven).nonzero().squeeze(1)
            if not len(again):
                return distances
            exact = self._search(z[again], k, self._prepared(torch.float64), excluded)[0]
            return distances.index_copy(0, again, exact)

    def _search(self, z: Tensor, k: int, prepared: CentredRows, excluded: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return distances, and whether it is proven that no other row is nearer; ``(b, d) -> (b, k), (b,)``."""
        (centred, half_squares), dtype = prepared, prepared[0].dtype
        count, found, proven = min(k + max(SPARE[dtype], k // 4), len(self.rows)), [], []
        for part in torch.split(z, max(1, PRODUCTS // len(centred))):
            with torch.no_grad():
                s = torch.addmm(half_squares, (part.double() - self.centre).to(dtype), centred.T, alpha=-1)  # (b, n)
                if excluded is not None:
                    s[:, : len(excluded)].masked_fill_(excluded, torch.inf)  # as the padding
                s, indices = smallest(s, count)  # (b, count)
            distances = self._distances(part, indices.clamp_max(len(self.rows) - 1))
            distances = distances.masked_fill(s == torch.inf, torch.inf).sort(1).values[:, :k]
            is_all = count == len(self.rows)
            found.append(distances)
            proven.append(s.isfinite().all(1) if is_all else self._is_proven(part, s[:, -1], distances[:, -1], dtype))
        return torch.cat(found), torch.cat(proven)

    def _prepared(self, dtype: torch.dtype) -> CentredRows:
        """Return the rows minus their mean and half their squared lengths, padded to full blocks with infinity."""
        count, width = self.rows.shape
        padded = -(-count // BLOCK) * BLOCK
        centred = self.rows.new_zeros(padded, width, dtype=dtype)
        half_squares = self.rows.new_full((padded,), torch.inf, dtype=dtype)
        for start in range(0, count, 4096):
            part = self.rows[start : start + 4096].double() - self.centre
            centred[start : start + len(part)] = part
            half_squares[start : start + len(part)] = part.square().sum(1) / 2
        return centred, half_squares

    def _distances(self, z: Tensor, indices: Tensor) -> Tensor:
        """Return the distances to the rows at some indices, from differences; ``(b, d), (b, m) -> (b, m)`` float64."""
        at_once = max(1, IN_CACHE // max(1, indices.shape[1] * self.rows.shape[1]))
        pairs = zip(torch.split(z.double(), at_once), torch.split(indices, at_once), strict=True)
        return torch.cat([torch.linalg.vector_norm(q.unsqueeze(1) - self.rows[at], dim=2) for q, at in pairs])

    def _is_proven(self, z: Tensor, s: Tensor, distance: Tensor, dtype: torch.dtype) -> Tensor:
        """Return whether a row that was not proposed, so with at least this s, cannot be nearer than this distance.

        A nearer row is at most |q| + distance long, which bounds the rounding of its s: a product of d terms is wrong
        by at most d units of rounding times |q||r|; the eight more are for q, r, |r|²/2 and the sum. What is below the
        smallest normal number may be lost.
        """
        length: Tensor = torch.linalg.vector_norm(z.detach().double() - self.centre, dim=1)
        distance, float_info = distance.detach(), torch.finfo(dtype)
        longest = length + distance
        lost = float_info.tiny * (1 + length + longest)
        rounding = (self.rows.shape[1] + 8) * (float_info.eps / 2 * (length * longest + longest.square() / 2) + lost)
        return (length.square() + 2 * (s.double() - rounding)).clamp_min(0) >= distance.square()


def smallest(s: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the ``count`` smallest of each row, ascending, and their indices; ``(b, n) -> (b, count), (b, count)``.

    The smallest numbers lie in the blocks with the smallest minima, so only those few blocks are sorted.
    """
    blocks = s.shape[1] // BLOCK
    if blocks < 4 * count:
        return s.topk(count, 1, largest=False)
    blocked = s.view(len(s), blocks, BLOCK)
    nearest = blocked.amin(2).topk(count, 1, largest=False, sorted=False).indices  # (b, count)
    candidates = blocked.gather(1, nearest.unsqueeze(2).expand(-1, -1, BLOCK)).flatten(1)
    values, at = candidates.topk(count, 1, largest=False)
    return values, nearest.gather(1, at // BLOCK) * BLOCK + at % BLOCK


class NeighbourScorer(base.Scorer):
    """The distance to the k nearest known examples.

    The score is the distance to the k-th nearest reference (``reduce="kth"``) or the mean distance to the k nearest
    (``"mean"``). The metric is Euclidean, or ``"cosine"``: one minus the cosine, where a row of zeros is at 1 from
    every other. ``normalise`` divides each row by its length first, as the paper does. With ``by_class`` the neighbours
    must be of one class: the score is the smallest of the scores against the references of each class alone.

    The search is exact also next to a reference: distances come from differences in float64. Memory is bounded.
    A row with nan scores nan, a row with an infinity scores infinity, or nan where only directions count.

    >>> known = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
    >>> NeighbourScorer(k=2).fit(known).unknown_score(torch.tensor([[0.0, 0.0], [9.0, 0.0]]))
    tensor([1., 9.])
    """

    takes: ClassVar[base.ScorerInput] = "features"
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
        self._cache: tuple[tuple[Tensor, int | None], list[NeighbourSearch]] | None = None

    def fit(self, z: Tensor, y: Tensor | None = None) -> Self:
        """Store the references, ``(n, d)``; only ``by_class`` needs the labels, ``(n,)``."""
        base.check_features(z)
        labels = torch.zeros(len(z), dtype=torch.long, device=z.device)
        if self.by_class:
            labels = base.check_classes(y, len(z)).to(z.device, copy=True)
        counts = labels.bincount()[labels]  # (n,) rows of the same class
        if self.k > counts.min():
            where = f" in class {int(labels[counts.argmin()])}" if self.by_class else ""
            message = f"k must be at most the number of references, got k={self.k} but {int(counts.min())} rows{where}"
            raise OptionError(f"{message}; use a smaller k")
        self.references, self.labels = z.detach().clone(), labels
        return self

    def unknown_score(self, z: Tensor, excluded: Tensor | None = None) -> Tensor:
        """Return the scores; ``excluded``, ``(n,)``, tells which references do not count, not with ``by_class``."""
        self._check_fitted()
        base.check_rows("features", z, self.references.shape[1])
        if excluded is not None and (self.by_class or self.k > int((~excluded).sum())):
            raise OptionError(f"k={self.k} references of one class, or of none, must be left; exclude fewer rows")
        rows = self._prepare(z, is_query=True)
        scores = [self._reduce(group.nearest(rows, self.k, excluded)) for group in self._searches()]
        return torch.stack(scores).amin(0).to(base.at_least_float32(z).dtype)

    def _searches(self) -> list[NeighbourSearch]:
        """Return the search of each class, or of all references; built once for the current references."""
        references, labels = self.references, self.labels
        state = (references, None if references.is_inference() else references._version)
        if self._cache is None or self._cache[0][0] is not references or self._cache[0][1] != state[1]:
            rows = self._prepare(references, is_query=False)
            groups = [rows[labels == label] for label in torch.unique(labels)] if self.by_class else [rows]
            self._cache = state, [NeighbourSearch(group) for group in groups]
        return self._cache[1]

    def _prepare(self, z: Tensor, *, is_query: bool) -> Tensor:
        """Return the points whose Euclidean distances are computed, ``(b, d) -> (b, d or d + 2)``."""
        if self.metric == "euclidean" and not self.normalise:
            return z
        rows = base.unit_length(z)
        if self.metric == "euclidean":
            return rows
        # rows of zeros get separate directions, so that they are orthogonal to every other row
        is_zero = (z == 0).all(1, keepdim=True).double()
        never = torch.zeros_like(is_zero)
        return torch.cat([rows, is_zero, never] if is_query else [rows, never, is_zero], 1)

    def _reduce(self, distances: Tensor) -> Tensor:
        """Return one score from the ascending distances of the neighbours, ``(b, k) -> (b,)``."""
        if self.metric == "cosine":
            distances = distances.square() / 2  # |u - v|² = 2 (1 - cos), without the digits that 1 - cos loses
        return distances[:, -1] if self.reduce == "kth" else distances.mean(1)
