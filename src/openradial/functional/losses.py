"""The loss: how far an output is from the prototype of its target."""

from typing import Literal

import torch
from torch import Tensor

from openradial import errors
from openradial.functional import eager
from openradial.functional.geometry import Axes, PrototypesLike, make_geometry
from openradial.functional.norms import make_metric
from openradial.functional.probabilities import KIND, as_rows

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
    label_smoothing: float = 0.0,
    prototypes: PrototypesLike | None = None,
    metric: errors.MetricName = "euclidean",
    axis_scale: Tensor | None = None,
    target_weight: float = 1.0,
) -> Tensor:
    r"""Return the negative log-probability of the target, used like :func:`torch.nn.functional.cross_entropy`.

    .. math:: -\log p(y \mid x) = \beta\, d_y

    Only the target's distance is computed: one pass over ``o`` forward, one backward. On the prototype the gradient
    is exactly zero. A target that is a distribution :math:`t` over the classes has the expected distance as its loss,
    with class weights :math:`w_k` (1 by default):

    .. math:: -\sum_k w_k t_k \log p(k \mid x) = \beta \sum_k w_k t_k d_k

    ``label_smoothing`` :math:`\varepsilon` replaces :math:`t` by :math:`(1-\varepsilon)\, t + \varepsilon / K`. Then,
    and for distributions, all distances are computed.

    Args:
        o: outputs, ``(outputs,)``, ``(n, outputs)`` or ``(n, outputs, d1, ...)``.
        target: classes, ``()``, ``(n,)`` or ``(n, d1, ...)``, int64 or uint8; or distributions, floating point,
            ``(classes,)``, ``(n, classes)`` or ``(n, classes, d1, ...)``.
        weight: one factor per class; for classes, ``"mean"`` then divides by the sum of the factors of the targets.
        ignore_index: targets with this value do not count; for classes only.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: from 0 to 1.
        target_weight: :math:`\kappa` of the rescaled square loss :math:`\kappa (o_y - a)^2 + \sum_{j \ne y} o_j^2` (Hui
            and Belkin, 2021) with ``scale`` a; needs ``metric="squared_euclidean"`` and axis prototypes.

    The other arguments are those of :func:`radial_distances`.

    >>> radial_loss(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]), reduction="none")
    tensor([0.0000, 1.4142])
    >>> radial_loss(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.75, 0.25]]))
    tensor(0.3536)
    """
    errors.check_positive("beta", beta)
    errors.check_choice("reduction", reduction, ("mean", "sum", "none"))
    is_default = weight is None and axis_scale is None and metric == "euclidean" and label_smoothing == 0
    if is_default and target_weight == 1 and ignore_index < 0 and reduction != "none" and _fast_path_applies(o, target):
        geometry = make_geometry(prototypes, scale, o.shape[1])
        if isinstance(geometry, Axes):
            factor = beta / len(o) if reduction == "mean" else beta
            return eager.summed_target_distances(o, target, geometry.scale, float(factor))
    rows = as_rows(o.movedim(1, -1) if isinstance(o, Tensor) and o.ndim > 2 else o)
    geometry, measure = make_geometry(prototypes, scale, rows.shape[1]), make_metric(metric, axis_scale)
    classes, is_distribution = geometry.num_classes(rows.shape[1]), _is_distribution(target)
    shapes = tuple(target.shape), tuple(o.shape), classes, (classes,) if weight is None else tuple(weight.shape)
    errors.check_targets(*shapes, ignore_index, label_smoothing, ".long()" if is_distribution else None)
    errors.check_target_weight(target_weight, metric, isinstance(geometry, Axes))

    def distances(y: Tensor | None = None) -> Tensor:  # times beta, (n, k), or to y alone, (n,)
        d = geometry.distances(rows, measure) if y is None else geometry.distances_to(rows, y, measure)
        if target_weight != 1:
            squares = measure.divide(rows - geometry.scale).square()  # type: ignore[union-attr]
            d = d + (target_weight - 1) * (squares if y is None else squares.gather(-1, y.unsqueeze(-1)).squeeze(-1))
        return eager.scaled(d, float(beta))

    if is_distribution:
        d = distances()  # (n, k)
        t = (target.movedim(1, -1) if target.ndim > 2 else target).reshape(-1, classes)
        t = t.to(rows.dtype) * (1 - label_smoothing) + label_smoothing / classes
        loss = (d * t if weight is None else d * t * weight.to(d)).sum(-1)  # (n,)
        share = torch.ones_like(loss)
    else:
        y, kept = _classes(target, classes, ignore_index)
        share = kept.to(rows.dtype) if weight is None else weight.to(rows)[y] * kept
        if label_smoothing == 0:
            loss = distances(y) * share
        else:
            d = distances()
            to_target = d.gather(-1, y.unsqueeze(-1)).squeeze(-1) * share
            to_all = (d if weight is None else d * weight.to(d)).mean(-1)
            loss = (1 - label_smoothing) * to_target + label_smoothing * to_all
        loss = torch.where(kept, loss, 0.0)
    if reduction == "none":
        return loss.reshape(errors.batch_shape(tuple(o.shape)))
    return loss.sum() / share.sum() if reduction == "mean" else loss.sum()


def _is_distribution(target: Tensor) -> bool:
    """Return whether targets are distributions; raise unless they are that or classes."""
    dtype = target.dtype if isinstance(target, Tensor) else type(target).__name__
    is_distribution = isinstance(target, Tensor) and target.is_floating_point()
    if not is_distribution and dtype not in (torch.int64, torch.uint8):
        message = f"targets must be classes of dtype int64 or uint8, or distributions of floating point, got {dtype}"
        raise errors.DTypeError(f"{message}; call .long() on classes")
    return is_distribution


def _classes(target: Tensor, classes: int, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Return the classes, 0 where they are ignored, and which ones count, ``(n,)`` each."""
    y = target.long().reshape(-1)
    kept = y != ignore_index
    if eager.has_values(y) and eager.first_order_only(y):
        wrong = y[kept & ((y < 0) | (y >= classes))]
        if len(wrong):
            raise errors.target_error(int(wrong[0]), classes, ignore_index)
    return torch.where(kept, y, 0), kept


def _fast_path_applies(o: Tensor, target: Tensor) -> bool:
    """Return whether this is a plain batch on the CPU, under first-order autograd, with every target in range."""
    return (
        eager.has_values(o)
        and eager.has_values(target)
        and o.ndim == 2
        and target.ndim == 1
        and o.shape[0] == target.shape[0]
        and o.numel() > 0
        and o.dtype in (torch.float32, torch.float64)
        and target.dtype == torch.int64
        and eager.first_order_only(o)
        and not hasattr(o, KIND)
        and target.min().item() >= 0
        and target.max().item() < o.shape[1]
    )
