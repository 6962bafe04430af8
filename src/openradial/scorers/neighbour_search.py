"""The nearest rows of a set, exactly: a matrix product in float32 proposes, differences in float64 decide.

For a row q and a row r of the set, |q - r|² = |q|² + 2 s with s = |r|²/2 - q·r, so the smallest s are the nearest rows.
A matrix product gives every s, but only up to rounding. So a few more rows than asked for are taken, their distances
are computed from the differences, and a bound on the rounding shows whether any other row could be nearer. Where it
could, the product is done again in float64.
"""

import torch
from torch import Tensor

AT_ONCE = 2**23  # numbers of the matrix s that are held at a time: 32 MB in float32
IN_CACHE = 2**19  # numbers of the differences that are held at a time: 4 MB, which stay in the cache
BLOCK = 64  # columns of s of which only the smallest is looked at first
SPARE = {torch.float32: 6, torch.float64: 64}  # rows proposed beyond those asked for

Ready = tuple[Tensor, Tensor]


class Rows:
    """A set of rows, ``(n, d)``, made ready to be searched."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows
        self.centre = rows.mean(0, dtype=torch.float64)
        self._ready32 = self._ready(torch.float32)

    def nearest(self, z: Tensor, k: int, own: Tensor | None = None) -> Tensor:
        """Distances to the k nearest rows, float64 and rising, ``(b, d) -> (b, k)``.

        ``own`` names for each row of ``z`` the place of a row of the set that is left out, or -1; ``(b,)``.
        """
        own = torch.full((len(z),), -1, device=z.device) if own is None else own
        with torch.autocast(z.device.type, enabled=False):
            if not _has_exact_products(z):
                return self._search(z, k, own, self._ready(torch.float64))[0]
            distances, proven = self._search(z, k, own, self._ready32)
            again = (~proven).nonzero().squeeze(1)
            if not len(again):
                return distances
            exact = self._search(z[again], k, own[again], self._ready(torch.float64))[0]
            return distances.index_copy(0, again, exact)

    def _search(self, z: Tensor, k: int, own: Tensor, ready: Ready) -> tuple[Tensor, Tensor]:
        """Distances, and whether it is proven that no other row is nearer; ``(b, d) -> (b, k), (b,)``."""
        at_once = max(1, AT_ONCE // len(ready[0]))
        parts = zip(torch.split(z, at_once), torch.split(own, at_once), strict=True)
        found = [self._propose_and_decide(part, k, its_own, ready) for part, its_own in parts]
        return torch.cat([distances for distances, _ in found]), torch.cat([proven for _, proven in found])

    def _propose_and_decide(self, z: Tensor, k: int, own: Tensor, ready: Ready) -> tuple[Tensor, Tensor]:
        dtype = ready[0].dtype
        count = min(k + max(SPARE[dtype], k // 4), len(self.rows))
        with torch.no_grad():
            s, places = smallest(self._halves(z, own, ready), count)  # (b, count)
        distances = self._distances(z, places.clamp_max(len(self.rows) - 1))
        distances = distances.masked_fill(s == torch.inf, torch.inf)  # the row itself, or none
        distances = distances.sort(1).values[:, :k]
        if count == len(self.rows):
            return distances, torch.isfinite(s).all(1)
        return distances, self._is_proven(z, s[:, -1], distances[:, -1], torch.finfo(dtype))

    def _halves(self, z: Tensor, own: Tensor, ready: Ready) -> Tensor:
        """The numbers s of all rows, infinite for a row's own place and for the padding, ``(b, n)``."""
        centred, half_squares = ready
        s = torch.addmm(half_squares, (z.double() - self.centre).to(centred.dtype), centred.T, alpha=-1)
        left_out = (own >= 0).nonzero().squeeze(1)
        s[left_out, own[left_out]] = torch.inf
        return s

    def _ready(self, dtype: torch.dtype) -> Ready:
        """The rows less their mean and half their squared lengths, padded to whole blocks by rows at infinity."""
        count, width = self.rows.shape
        padded = -(-count // BLOCK) * BLOCK
        centred = self.rows.new_zeros(padded, width, dtype=dtype)
        half_squares = self.rows.new_full((padded,), torch.inf, dtype=dtype)
        for start in range(0, count, 4096):
            part = self.rows[start : start + 4096].double() - self.centre
            centred[start : start + len(part)] = part
            half_squares[start : start + len(part)] = part.square().sum(1) / 2
        return centred, half_squares

    def _distances(self, z: Tensor, places: Tensor) -> Tensor:
        """Distances to the rows at some places, from the differences; ``(b, d), (b, m) -> (b, m)`` float64."""
        at_once = max(1, IN_CACHE // max(1, places.shape[1] * self.rows.shape[1]))
        pairs = zip(torch.split(z.double(), at_once), torch.split(places, at_once), strict=True)
        return torch.cat([torch.linalg.vector_norm(q.unsqueeze(1) - self.rows[at], dim=2) for q, at in pairs])

    def _is_proven(self, z: Tensor, s: Tensor, distance: Tensor, float_info: torch.finfo) -> Tensor:
        """Whether a row that was not proposed, so with at least this s, cannot be nearer than this distance.

        A nearer row is at most |q| + distance long, which bounds the rounding of its s: a product of d terms is wrong
        by at most d units of rounding times |q||r|; the eight more are for q, r, |r|²/2 and the sum. What is below the
        smallest normal number may be lost.
        """
        length: Tensor = torch.linalg.vector_norm(z.detach().double() - self.centre, dim=1)
        distance = distance.detach()
        longest = length + distance
        lost = float_info.tiny * (1 + length + longest)
        rounding = (self.rows.shape[1] + 8) * (float_info.eps / 2 * (length * longest + longest.square() / 2) + lost)
        return (length.square() + 2 * (s.double() - rounding)).clamp_min(0) >= distance.square()


def smallest(s: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` smallest of each row, rising, and their places; ``(b, n) -> (b, count), (b, count)``.

    The smallest numbers lie in the blocks with the smallest minima, so only those few blocks are sorted.
    """
    blocks = s.shape[1] // BLOCK
    if blocks < 4 * count:
        return s.topk(count, 1, largest=False)
    blocked = s.view(len(s), blocks, BLOCK)
    chosen = blocked.amin(2).topk(count, 1, largest=False, sorted=False).indices  # (b, count)
    candidates = blocked.gather(1, chosen.unsqueeze(2).expand(-1, -1, BLOCK)).flatten(1)
    values, at = candidates.topk(count, 1, largest=False)
    return values, chosen.gather(1, at // BLOCK) * BLOCK + at % BLOCK


def _has_exact_products(z: Tensor) -> bool:
    """Whether float32 products really are float32, which the bound on the rounding needs."""
    return z.device.type == "cpu" and torch.get_float32_matmul_precision() == "highest"
