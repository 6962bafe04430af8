"""The loss: how far an output is from the prototype of its target."""

from typing import Literal

import torch
from torch import Tensor

from openradial.errors import DTypeError, ShapeError, TargetError, check_choice, check_positive
from openradial.functional import eager, native
from openradial.functional.distances import as_rows
from openradial.functional.geometry import Axes, Prototypes, make_geometry
from openradial.functional.norms import MetricName, make_metric

Reduction = Literal["mean", "sum", "none"]


def radial_loss(
    o: Tensor,
    target: Tensor,
    *,
    beta: float = 1.0,
    scale: float = 1.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    prototypes: Prototypes | None = None,
    metric: MetricName = "euclidean",
    axis_scale: Tensor | None = None,
) -> Tensor:
    r"""Negative log-probability of the target class, used like :func:`torch.nn.functional.cross_entropy`.

    .. math:: -\log p(y \mid x) = \beta\, d_y

    Only the target's distance is computed: one pass over ``o`` forward, one backward. On the prototype the gradient
    is exactly zero.

    Args:
        o: outputs, ``(outputs,)``, ``(n, outputs)`` or ``(n, outputs, d1, ...)``.
        target: classes, ``()``, ``(n,)`` or ``(n, d1, ...)``, int64 or uint8.
        weight: one factor per class; ``"mean"`` then divides by the sum of the factors used.
        ignore_index: targets with this value count for nothing.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    The other arguments are those of :func:`radial_distances`.

    >>> radial_loss(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]), reduction="none")
    tensor([0.0000, 1.4142])
    """
    usual = weight is None and axis_scale is None and metric == "euclidean" and ignore_index < 0
    usual = usual and reduction in ("mean", "sum") and eager.first_order_only(o)
    kernel = native.radial_loss() if usual else None
    if kernel is not None and prototypes is None:
        try:
            return kernel(o, target, beta, scale, reduction == "mean")
        except (IndexError, RuntimeError, TypeError):  # unusual or wrong: the careful way below knows which
            pass
    check_positive("beta", beta)
    check_choice("reduction", reduction, ("mean", "sum", "none"))
    rows, y = _rows_and_targets(o, target)
    geometry, measure = make_geometry(prototypes, scale, rows.shape[1]), make_metric(metric, axis_scale)
    n, classes = rows.shape[0], geometry.num_classes(rows.shape[1])
    if usual and isinstance(geometry, Axes) and n > 0 and eager.has_values(rows):
        try:
            if kernel is not None:
                return kernel(rows.contiguous(), y.contiguous(), beta, geometry.scale, reduction == "mean")
            return eager.summed_target_distances(
                rows, y, geometry.scale, beta / n if reduction == "mean" else float(beta)
            )
        except (IndexError, RuntimeError):  # a target that is to be ignored or out of range
            pass
    kept = y != ignore_index
    _check_range(y, kept, classes, ignore_index)
    y = torch.where(kept, y, 0)
    loss = eager.scaled(geometry.distances_to(rows, y, measure), float(beta))
    share = _shares(weight, y, kept, classes, loss)
    loss = torch.where(kept, loss * share, 0.0)
    if reduction == "none":
        return loss.reshape(target.shape)
    return loss.sum() / share.sum() if reduction == "mean" else loss.sum()


def _rows_and_targets(o: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs as ``(n, outputs)`` and targets as ``(n,)``, checked."""
    if not isinstance(target, Tensor) or target.dtype not in (torch.int64, torch.uint8):
        kind = target.dtype if isinstance(target, Tensor) else type(target).__name__
        raise DTypeError(f"targets must be class indices of dtype int64 or uint8, got {kind}; call .long() on them")
    if isinstance(o, Tensor) and o.ndim > 2:
        expected = (o.shape[0], *o.shape[2:])
        rows = as_rows(o.movedim(1, -1))
    else:
        expected = tuple(o.shape[:-1]) if isinstance(o, Tensor) else ()
        rows = as_rows(o)
    if tuple(target.shape) != expected:
        raise ShapeError(
            f"outputs of shape {tuple(o.shape)} need targets of shape {expected}, got {tuple(target.shape)}; "
            "classes are on axis 1 of the outputs"
        )
    y = target if target.dtype == torch.int64 else target.long()
    return rows, y if y.ndim == 1 else y.reshape(-1)


def _check_range(y: Tensor, kept: Tensor, classes: int, ignore_index: int) -> None:
    if not (eager.has_values(y) and eager.first_order_only(y)):
        return
    wrong = y[kept & ((y < 0) | (y >= classes))]
    if len(wrong):
        raise TargetError(
            f"targets must lie in 0..{classes - 1} or be ignore_index={ignore_index}, got {int(wrong[0])}; "
            "map your labels to 0..classes-1 or widen the last layer"
        )


def _shares(weight: Tensor | None, y: Tensor, kept: Tensor, classes: int, like: Tensor) -> Tensor:
    """How much each example counts."""
    if weight is None:
        return kept.to(like.dtype)
    if tuple(weight.shape) != (classes,):
        raise ShapeError(
            f"weight must hold one factor per class: expected shape ({classes},), got {tuple(weight.shape)}; "
            "use 1.0 for classes that are not special"
        )
    return weight.to(like)[y] * kept
