"""Random Fourier features (Rahimi and Recht 2007): inner products that approximate a Gaussian kernel."""

import math
from typing import Self

import torch
from torch import Tensor, nn

PAIRS = 2_000  # pairs of rows whose median distance is the unit of the width


class RandomFeatures(nn.Module):
    r"""The map :math:`\phi(z) = \sqrt{2/m} \cos(z F / w + b)` with normal F and uniform b, ``(b, d) -> (b, m)``."""

    frequencies: Tensor  # (d, m) F / w
    phases: Tensor  # (m,)
    width: Tensor  # ()

    def __init__(self, frequencies: Tensor, phases: Tensor, width: Tensor) -> None:
        super().__init__()
        self.register_buffer("frequencies", frequencies)
        self.register_buffer("phases", phases)
        self.register_buffer("width", width)

    @classmethod
    @torch.inference_mode(False)  # a tensor made in that mode takes no part in gradients later
    def draw(cls, num_features: int, count: int, width: float, seed: int = 0) -> Self:
        """Draw frequencies and phases."""
        generator = torch.Generator().manual_seed(seed)
        frequencies = torch.randn(count, num_features, generator=generator).T.contiguous() / width
        phases = 2 * math.pi * torch.rand(count, generator=torch.Generator().manual_seed(seed + 1))
        return cls(frequencies, phases, torch.tensor(width, dtype=torch.float64))

    @staticmethod
    def same(first: "RandomFeatures | None", second: "RandomFeatures | None") -> bool:
        """Return whether both maps exist and are the same."""
        if first is None or second is None:
            return False
        pairs = zip(first.buffers(), second.buffers(), strict=True)
        return all(torch.equal(mine.cpu(), theirs.cpu()) for mine, theirs in pairs)

    def forward(self, z: Tensor) -> Tensor:
        frequencies, phases = (part.to(z.device, z.dtype) for part in (self.frequencies, self.phases))
        return torch.addmm(phases, z, frequencies).cos() * math.sqrt(2 / len(phases))


def median_distance(z: Tensor, seed: int = 0) -> float:
    """Return the median distance of random pairs of different rows; 1 if all rows are equal."""
    order = torch.randperm(len(z), generator=torch.Generator().manual_seed(seed))[: 2 * PAIRS]
    first, second = z[order[: len(order) // 2]].double(), z[order[len(order) // 2 : len(order) // 2 * 2]].double()
    distances = torch.linalg.vector_norm(first - second, dim=1)
    apart = distances[distances > 0]
    return float(apart.median()) if len(apart) else 1.0
