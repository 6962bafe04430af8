"""k nearest neighbours (Sun, Ming, Zhu and Li 2022, "Out-of-Distribution Detection with Deep Nearest Neighbors").

The search is exact: a matrix product in float32 proposes, differences in float64 decide. For a row q and a row r of the
set, |q - r|² = |q|² + 2 s with s = |r|²/2 - q·r, so the smallest s are the nearest rows. A matrix product gives every
s, but only up to rounding. So a few more rows than requested are proposed, their distances are computed from the
differences, and a bound on the rounding shows whether any other row could be nearer. Where it could, the product is
computed again in float64.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from openradial.errors import DataError, OptionError, ShapeError, check_choice, check_count
from openradial.scorers import base

PRODUCTS = 2**23  # numbers of the matrix s in memory at a time: 32 MB in float32
IN_CACHE = 2**19  # numbers of the differences in memory at a time: 4 MB, which stay in the cache
BLOCK = 64  # columns of s of which only the smallest is compared first
USUAL, FEW = 0.9, 10  # of the scale of a class: quantile, and weight of all references
SPARE = {torch.float32: 6, torch.float64: 64}  # rows proposed beyond those requested

CentredRows = tuple[Tensor, Tensor]  # centred rows (n, d), half their squared lengths (n,)


class NeighbourSearch:
    """Exact search for the nearest rows of a set, ``(n, d)``."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows
        self.centre = rows.mean(0, dtype=torch.float64)
        self._prepared32 = self._prepared(torch.float32)

    def nearest(self, z: Tensor, k: int, excluded: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return distances to the k nearest rows but ``excluded`` ones, and their indices; ``(b, d) -> (b, k)`` each.

        The distances are float64, ascending.
        """
        with torch.autocast(z.device.type, enabled=False):
            # the bound on the rounding needs float32 products that are computed in float32
            if z.device.type != "cpu" or torch.get_float32_matmul_precision() != "highest":
                return self._search(z, k, self._prepared(torch.float64), excluded)[:2]
            distances, indices, proven = self._search(z, k, self._prepared32, excluded)
            again = (~proven).nonzero().squeeze(1)
            if not len(again):
                return distances, indices
            exact, rows, _ = self._search(z[again], k, self._prepared(torch.float64), excluded)
            return distances.index_copy(0, again, exact), indices.index_copy(0, again, rows)

    def _search(
        self, z: Tensor, k: int, prepared: CentredRows, excluded: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return distances, indices, and whether no other row is nearer; ``(b, d) -> (b, k), (b, k), (b,)``."""
        (centred, half_squares), dtype = prepared, prepared[0].dtype
        count, matches, proven = min(k + max(SPARE[dtype], k // 4), len(self.rows)), [], []
        for part in torch.split(z, max(1, PRODUCTS // len(centred))):
            with torch.no_grad():
                s = torch.addmm(half_squares, (part.double() - self.centre).to(dtype), centred.T, alpha=-1)  # (b, n)
                if excluded is not None:
                    s[:, : len(excluded)].masked_fill_(excluded, torch.inf)  # as the padding
                s, indices = smallest(s, count)  # (b, count)
            indices = indices.clamp_max(len(self.rows) - 1)
            distances, order = self._distances(part, indices).masked_fill(s == torch.inf, torch.inf).sort(1)
            distances, indices = distances[:, :k], indices.gather(1, order[:, :k])
            is_all = count == len(self.rows)
            matches.append((distances, indices))
            proven.append(s.isfinite().all(1) if is_all else self._is_proven(part, s[:, -1], distances[:, -1], dtype))
        distances, indices = (torch.cat(parts) for parts in zip(*matches, strict=True))
        return distances, indices, torch.cat(proven)

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
    every other. ``normalise`` divides each row by its length first, as the paper does.

    With ``relative`` each distance is divided by the scale of the neighbour's class, so that a novel input beside a
    class whose examples lie close together counts as much as one beside a class with large differences. The scale of a
    class is the score that 90 % of its references have among the other references. Classes with few references borrow
    from all: the logarithm of the scale is a mean with the weight n of its n references and 10 of all.

    The search is exact also next to a reference: distances come from differences in float64. Memory is bounded.
    A row with nan scores nan, a row with an infinity scores infinity, or nan where only directions count.

    >>> known = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
    >>> NeighbourScorer(k=2).fit(known).unknown_score(torch.tensor([[0.0, 0.0], [9.0, 0.0]]))
    tensor([1., 9.])
    """

    takes: ClassVar[base.ScorerInput] = "features"
    fitted: ClassVar[tuple[str, ...]] = ("references", "scales")
    references: Tensor
    scales: Tensor  # (n,) of the class of each reference

    def __init__(
        self,
        k: int = 10,
        metric: Literal["euclidean", "cosine"] = "euclidean",
        reduce: Literal["kth", "mean"] = "kth",
        normalise: bool = False,
        relative: bool = False,
    ) -> None:
        super().__init__()
        check_count("k", k)
        check_choice("metric", metric, ("euclidean", "cosine"))
        check_choice("reduce", reduce, ("kth", "mean"))
        self.k, self.metric, self.reduce = int(k), metric, reduce
        self.normalise, self.relative = bool(normalise), bool(relative)
        self._cache: tuple[tuple[Tensor, int | None], NeighbourSearch] | None = None

    def fit(self, z: Tensor, y: Tensor | None = None) -> Self:
        """Store the references, ``(n, d)``; only ``relative`` needs the labels, ``(n,)``."""
        base.check_features(z)
        if self.k + self.relative > len(z):
            other = "other references" if self.relative else "references"
            message = f"k must be at most the number of {other}, got k={self.k} but {len(z) - self.relative} rows"
            raise OptionError(f"{message}; use a smaller k")
        labels = base.check_classes(y, len(z)).to(z.device) if self.relative else None
        self.references = z.detach().clone()
        self.scales = torch.ones(len(z), dtype=torch.float64, device=z.device)
        if labels is not None:
            self.scales = self._class_scales(labels)[labels]
        return self

    @torch.no_grad()
    def _class_scales(self, labels: Tensor) -> Tensor:
        """Return the scale of each class, ``(k,)``; a class of equal references has at least a tenth of that of all."""
        rows = self._prepare(self.references, is_query=True)
        usual = self._reduce(self._search().nearest(rows, self.k + 1)[0][:, 1:])  # the first is the row itself
        of_all = usual.quantile(USUAL)
        if of_all == 0:
            return torch.ones(int(labels.max()) + 1, dtype=torch.float64, device=labels.device)
        counts = labels.bincount().double()
        scales = torch.stack([usual[labels == k].quantile(USUAL) if n else of_all for k, n in enumerate(counts)])
        return of_all * (scales / of_all).clamp(0.1, 10.0) ** (counts / (counts + FEW))

    def restore(self, tensors: Mapping[str, Tensor]) -> Self:
        if tensors:
            base.check_rows("references", tensors["references"])
            if tensors["scales"].shape != tensors["references"].shape[:1]:
                shapes = " and ".join(str(tuple(tensors[name].shape)) for name in self.fitted)
                raise ShapeError(f"references and scales must have as many rows, got the shapes {shapes}")
            if not ((tensors["scales"] > 0) & tensors["scales"].isfinite()).all():
                raise DataError("the scales of classes must be finite and above 0; use another copy of the file")
        return super().restore(tensors)

    def unknown_score(self, z: Tensor, excluded: Tensor | None = None) -> Tensor:
        """Return the scores; ``excluded``, ``(n,)``, tells which references do not count, not with ``relative``."""
        self._check_fitted()
        base.check_rows("features", z, self.references.shape[1])
        if excluded is not None and (self.relative or self.k > int((~excluded).sum())):
            raise OptionError(f"k={self.k} references must be left, and none be relative; exclude fewer rows")
        distances, indices = self._search().nearest(self._prepare(z, is_query=True), self.k, excluded)
        scales = self.scales[indices] if self.relative else 1.0
        return self._reduce(distances, scales).to(base.at_least_float32(z).dtype)

    def _search(self) -> NeighbourSearch:
        """Return the search among the references; built once for the current ones."""
        references = self.references
        version = None if references.is_inference() else references._version
        if self._cache is None or self._cache[0][0] is not references or self._cache[0][1] != version:
            self._cache = (references, version), NeighbourSearch(self._prepare(references, is_query=False))
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

    def _reduce(self, distances: Tensor, scales: Tensor | float = 1.0) -> Tensor:
        """Return one score from the ascending distances of the neighbours and their scales, ``(b, k) -> (b,)``."""
        if self.metric == "cosine":
            distances = distances.square() / 2  # |u - v|² = 2 (1 - cos), without the digits that 1 - cos loses
        distances = distances / scales
        return distances[:, -1] if self.reduce == "kth" else distances.mean(1)
