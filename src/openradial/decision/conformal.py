"""Conformal p-values: how many known examples look at least as unknown as this one."""

import torch
from torch import Tensor

from openradial.errors import ShapeError


def conformal_p_values(calibration: Tensor, scores: Tensor) -> Tensor:
    r"""How likely a known example is to look at least as unknown as each score; ``(n,), (*b,) -> (*b,)`` float64.

    :math:`p(s) = \bigl(1 + \#\{i : c_i \ge s\}\bigr) / (n + 1)`, from unknown-scores c of known data that was not
    trained on. A larger score has a smaller p. If the score comes from known data too, p is at most r in at most a share
    r of all cases, for every r. A score that is nan counts as infinite: its p is the smallest there is, 1 / (n + 1).

    >>> conformal_p_values(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 2.0, 9.0]))
    tensor([1.0000, 0.7500, 0.2500], dtype=torch.float64)
    """
    if calibration.ndim != 1 or not len(calibration):
        raise ShapeError(
            f"calibration must have the shape (n,) with at least one score, got {tuple(calibration.shape)}; "
            "give the unknown-scores of held-out known data"
        )
    if calibration.isnan().any():
        raise ShapeError(f"calibration must not hold nan, got {int(calibration.isnan().sum())}; take those rows out")
    return sorted_p_values(calibration.to(scores.device, torch.float64).sort().values, scores)


def sorted_p_values(ordered: Tensor, scores: Tensor) -> Tensor:
    """:func:`conformal_p_values` of scores that are float64 and in rising order already."""
    exact = scores.detach().to(torch.float64).nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
    below = torch.searchsorted(ordered, exact.contiguous())
    return (1 + len(ordered) - below).to(torch.float64) / (len(ordered) + 1)
