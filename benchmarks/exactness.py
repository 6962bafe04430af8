"""Relative error of float32 distances from next to a prototype to far away, for the ways to compute them."""

import torch
from torch import Tensor

from openradial import functional

FORMS = {
    "closed form": lambda o: (o.square().sum(-1, keepdim=True) - 2 * o + 1).clamp_min(0).sqrt(),
    "cdist": lambda o: torch.cdist(o, torch.eye(o.shape[1])),
    "openradial": functional.radial_distances,
}
DISTANCES = [10.0**e for e in range(-6, 7, 2)] + [1e-3]


def largest_errors(num_classes: int = 10, points: int = 1000) -> list[dict[str, float]]:
    """For each distance, the largest relative error over random points around the first prototype."""
    return [{"distance": d, **_errors(d, num_classes, points)} for d in sorted(DISTANCES)]


def _errors(distance: float, num_classes: int, points: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    direction = torch.nn.functional.normalize(torch.randn(points, num_classes, generator=generator), dim=1)
    o = (distance * direction + torch.eye(num_classes)[0]).float()
    exact = (o.double() - torch.eye(num_classes, dtype=torch.float64)[0]).norm(dim=1)
    return {name: _error(form(o)[:, 0], exact) for name, form in FORMS.items()}


def _error(measured: Tensor, exact: Tensor) -> float:
    return float(((measured.double() - exact).abs() / exact).max())
