"""Distances to prototypes given as a matrix, differences first: exact, also next to a prototype."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from openradial.functional.eager import first_order_only, has_values
from openradial.functional.norms import Metric

POWERS = {"euclidean": 2.0, "squared_euclidean": 2.0, "manhattan": 1.0, "chebyshev": math.inf}
WITHOUT_CANCELLATION = "donot_use_mm_for_euclid_dist"


def matrix_distances(o: Tensor, prototypes: Tensor, metric: Metric) -> Tensor:
    """Distance of each output to each row of ``prototypes``: ``(n, d), (k, d) -> (n, k)``.

    O(n*k*d) time; O(n*k) memory in eager mode, O(n*k*d) where the plain form runs (compilers, ``torch.func``).
    """
    if not (first_order_only(o) and first_order_only(prototypes)):
        return plain_matrix_distances(o, prototypes, metric)
    d: Tensor = _MatrixDistances.apply(  # type: ignore[no-untyped-call]
        metric.divide(o), metric.divide(prototypes), metric.name
    )
    return d


def plain_matrix_distances(o: Tensor, prototypes: Tensor, metric: Metric) -> Tensor:
    return metric.length(o.unsqueeze(-2) - prototypes)


class _MatrixDistances(Function):
    @staticmethod
    def forward(ctx: Any, o: Tensor, p: Tensor, name: str) -> Tensor:
        d = torch.cdist(o, p, POWERS[name], compute_mode=WITHOUT_CANCELLATION)
        if not has_values(o) or not math.isfinite(d.sum().item()):
            d = plain_matrix_distances(o, p, _distance(name))
        ctx.save_for_backward(o, p, d)
        ctx.name = name
        return d.square().clamp_max_(torch.finfo(d.dtype).max) if name == "squared_euclidean" else d

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        o, p, d = ctx.saved_tensors
        if torch.is_grad_enabled():  # double backward
            again = plain_matrix_distances(o, p, Metric(ctx.name))
            wanted = [t for t in (o, p) if t.requires_grad]
            grads = iter(torch.autograd.grad(again, wanted, g, create_graph=True))
            return *(next(grads) if t.requires_grad else None for t in (o, p)), None
        if ctx.name == "squared_euclidean":
            g = 2 * g * d
        o, p, power = o.contiguous(), p.contiguous(), POWERS[ctx.name]
        backward = torch.ops.aten._cdist_backward
        o_grad = backward(g.contiguous(), o, p, power, d) if ctx.needs_input_grad[0] else None
        p_grad = backward(g.t().contiguous(), p, o, power, d.t().contiguous()) if ctx.needs_input_grad[1] else None
        return o_grad, p_grad, None


def _distance(name: str) -> Metric:
    return Metric("euclidean") if name == "squared_euclidean" else Metric(name)  # type: ignore[arg-type]
