"""First-order eager kernels for euclidean axis prototypes: few passes over memory, little saved for the backward pass.

Each kernel has a plain equivalent made from :mod:`.norms`. That one runs under compilers, ``torch.func``, forward mode
and double backward, and where a value leaves the range in which the fast form is exact. A kernel measures first, on
detached tensors, and then adds one autograd node if the range was kept.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.forward_ad import unpack_dual

from openradial.functional.norms import EUCLIDEAN

# Private in torch, and asked by torch.autograd.Function itself; without it the plain forms run.
functorch_is_active: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)

BLOCK = 256  # outputs summed as one block; also bounds how many float32 terms are added in sequence
BLOCKED_FROM = 1024  # outputs from which blocks pay for their bookkeeping
PEAK_BLOCK = 64  # outputs per block in the search for the largest: a maximum is fast, its index is slow


def first_order_only(o: Tensor) -> bool:
    """Return whether eager first-order autograd is all that records ``o``."""
    return not (torch.compiler.is_compiling() or functorch_is_active() or unpack_dual(o).tangent is not None)  # type: ignore[no-untyped-call]


def has_values(o: Tensor) -> bool:
    """Return whether Python can read values at no cost: a tensor in host memory, neither fake, meta nor a subclass."""
    return type(o) in (Tensor, torch.nn.Parameter) and o.is_cpu


def target_distances(o: Tensor, y: Tensor, scale: float) -> Tensor:
    """Return the distance to the prototype ``scale * e_y``, ``(n, k), (n,) -> (n,)``."""
    if not first_order_only(o):
        return plain_target_distances(o, y, scale)
    measured = _measure_targets(o.detach(), y, scale)
    if not measured.is_exact:
        return plain_target_distances(o, y, scale)
    return _TargetDistances.apply(o, y, scale, None, measured) if o.requires_grad else measured.d  # type: ignore[no-untyped-call]


def summed_target_distances(o: Tensor, y: Tensor, scale: float, factor: float) -> Tensor:
    """Return ``factor`` times the sum of :func:`target_distances`, for plain CPU tensors and first-order autograd."""
    measured = _measure_targets(o.detach(), y, scale)
    if not measured.is_exact:
        return plain_target_distances(o, y, scale).sum() * factor
    return _TargetDistances.apply(o, y, scale, factor, measured) if o.requires_grad else measured.total.mul_(factor)  # type: ignore[no-untyped-call]


def all_distances(o: Tensor, scale: float, factor: float) -> Tensor:
    """Return ``factor`` times the distance to every prototype: ``(n, k) -> (n, k)``."""
    if not first_order_only(o):
        return plain_all_distances(o, scale, factor)
    rows = o.detach()
    if has_values(o) and o.numel():
        measured = _fast_all_distances(rows.contiguous(), scale, factor)
        if measured is None:
            return plain_all_distances(o, scale, factor)
    else:
        measured = plain_all_distances(rows, scale, factor), rows.abs().argmax(-1, keepdim=True)
    if not o.requires_grad:
        return measured[0]
    return _AllDistances.apply(o, scale, factor, measured)  # type: ignore[no-any-return, no-untyped-call]


def largest(o: Tensor) -> Tensor:
    """Return the first index of the largest output, ``(n, k) -> (n,)``; faster than argmax for long rows."""
    if o.shape[1] < 8 * PEAK_BLOCK or not (has_values(o) and first_order_only(o)):
        return o.argmax(-1)
    o = o.detach()
    whole = o.shape[1] // PEAK_BLOCK * PEAK_BLOCK
    peaks: Tensor = o[:, :whole].unflatten(1, (-1, PEAK_BLOCK)).amax(2)  # type: ignore[no-untyped-call]
    if whole < o.shape[1]:
        peaks = torch.cat([peaks, o[:, whole:].amax(1, keepdim=True)], 1)
    # The last block reaches back into the one before, where everything is smaller: else that block had been the first.
    start = (peaks.max(1).indices * PEAK_BLOCK).clamp_max_(o.shape[1] - PEAK_BLOCK)
    block = o.gather(1, start.unsqueeze(1) + torch.arange(PEAK_BLOCK))
    return start + block.max(1).indices


def plain_target_distances(o: Tensor, y: Tensor, scale: float) -> Tensor:
    """Return the distance to the prototype of each target, ``(n,)``, with plain autograd."""
    return EUCLIDEAN.length(shift_to_prototype(o, y, scale))


def plain_all_distances(o: Tensor, scale: float, factor: float) -> Tensor:
    """Return all distances times a factor, ``(n, k)``, with plain autograd."""
    return scaled(EUCLIDEAN.axis_lengths(o, scale), factor)


def scaled(d: Tensor, factor: float) -> Tensor:
    """Return ``factor * d``, finite where ``d`` is finite."""
    limit = torch.finfo(d.dtype).max
    return torch.where(d.isinf(), d * factor, (d * factor).clamp(-limit, limit))


def shift_to_prototype(o: Tensor, y: Tensor, scale: float) -> Tensor:
    """Return ``o - scale * e_y``, exact on the axis of the target."""
    return o.scatter_add(-1, y.unsqueeze(-1), o.new_full((), -scale).expand(*y.shape, 1))


def _block(o: Tensor, start: Tensor) -> Tensor:
    """Return the block of each row that begins at ``start``, ``(n, BLOCK)``, with zeros beyond the end of the row."""
    index = start.unsqueeze(1) + torch.arange(BLOCK, device=o.device)
    beyond = index >= o.shape[1]
    return o.gather(1, index.clamp_max(o.shape[1] - 1)).masked_fill_(beyond, 0.0)


def _block_norms(o: Tensor) -> Tensor:
    """Return the norms of the blocks of each row, ``(n, k) -> (n, ceil(k / BLOCK))``."""
    whole = o.shape[1] // BLOCK
    norms = o.new_empty(o.shape[0], -(-o.shape[1] // BLOCK))
    blocks = o[:, : whole * BLOCK].unflatten(1, (whole, BLOCK))  # type: ignore[no-untyped-call]
    torch.linalg.vector_norm(blocks, 2, 2, out=norms[:, :whole])
    if whole < norms.shape[1]:
        torch.linalg.vector_norm(o[:, whole * BLOCK :], 2, 1, out=norms[:, whole])
    return norms


def _long_target_distances(o: Tensor, y: Tensor, scale: float) -> Tensor:
    """Return the norm of ``o - scale * e_y`` without writing that difference: only the target's block is copied."""
    at = y // BLOCK  # (n, 1)
    norms = _block_norms(o)
    block = _block(o, at[:, 0] * BLOCK)
    block.scatter_(1, y - at * BLOCK, o.gather(1, y) - scale)
    norms.scatter_(1, at, torch.linalg.vector_norm(block, 2, 1, keepdim=True))
    return torch.linalg.vector_norm(norms, 2, 1)  # type: ignore[no-any-return]


def _fast_all_distances(o: Tensor, scale: float, factor: float) -> tuple[Tensor, Tensor] | None:
    """Return the scaled distances and each row's dominant axis, or None where squares overflow or lose digits.

    An axis with more than half of a row's energy lies in the block of largest norm, so one pass finds it. On all other
    axes ``S + a^2 - 2*a*o_k`` loses at most two bits.
    """
    if o.shape[1] < BLOCKED_FROM:
        size = o.abs()
        top = size.argmax(-1, keepdim=True)
        others = size.scatter_(1, top, 0.0).square_().sum(-1, keepdim=True)
    else:
        norms = _block_norms(o)
        at = norms.argmax(-1, keepdim=True)
        block = _block(o, at[:, 0] * BLOCK)
        inside = block.abs().argmax(-1, keepdim=True)
        block.scatter_(1, inside, 0.0)
        norms.scatter_(1, at, torch.linalg.vector_norm(block, 2, -1, keepdim=True))
        others = norms.square_().sum(-1, keepdim=True)
        top = at * BLOCK + inside
    peak = o.gather(1, top)
    base = others + peak.square()
    to_top = torch.sqrt_(others + (peak - scale).square_())
    in_range = math.isfinite(float(base.max()) * max(1.0, factor * factor) * 4)
    if not in_range or float(to_top.min()) < smallest(o.dtype):
        return None
    base += scale * scale
    out = torch.add(base, o, alpha=-2 * scale).sqrt_().mul_(factor)
    return out.scatter_(1, top, to_top.mul_(factor)), top


class _Measured(NamedTuple):
    """Target distances of a batch; for short rows also the differences that they are the norms of."""

    e: Tensor | None  # (n, k)
    d: Tensor  # (n,)
    total: Tensor  # ()
    is_exact: bool  # no square overflowed or lost digits


def _measure_targets(o: Tensor, y: Tensor, scale: float) -> _Measured:
    if not has_values(o):
        d = plain_target_distances(o, y, scale)
        return _Measured(None, d, d.sum(), True)
    n, k = o.shape
    if k < BLOCKED_FROM:
        e = o.scatter_add(1, y.unsqueeze(1), o.new_full((n, 1), -scale))
        d = torch.linalg.vector_norm(e, 2, 1)
    else:
        e, d = None, _long_target_distances(o.contiguous(), y.unsqueeze(1), scale)
    total = d.sum()
    is_exact = n == 0 or (math.isfinite(total.item()) and d.min().item() > smallest(d.dtype))
    return _Measured(e, d, total, is_exact)


class _TargetDistances(Function):
    """The distances, or with a factor their scaled sum, as one node."""

    @staticmethod
    def forward(ctx: Any, o: Tensor, y: Tensor, scale: float, factor: float | None, measured: _Measured) -> Tensor:
        # only plain tensors on the CPU are known to have no distance of 0, whose gradient is 0
        d = measured.d if has_values(o) else measured.d.clamp_min(smallest(o.dtype))
        ctx.save_for_backward(o, y, d, measured.e)
        ctx.scale, ctx.factor = scale, factor
        return measured.d if factor is None else measured.total.mul_(factor)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        o, y, d, e = ctx.saved_tensors
        if ctx.factor is not None:
            g = g * ctx.factor
        if torch.is_grad_enabled():  # double backward
            d = plain_target_distances(o, y, ctx.scale)
            return torch.autograd.grad(d, o, g.expand_as(d), create_graph=True)[0], None, None, None, None
        per_row = (g / d).unsqueeze(1)  # (n, 1)
        if e is not None:
            return e * per_row, None, None, None, None
        y = y.unsqueeze(1)
        grad = (o * per_row).scatter_(1, y, (o.gather(1, y) - ctx.scale) * per_row)
        return grad, None, None, None, None


@cache
def smallest(dtype: torch.dtype) -> float:
    """Return the distance below which the squares that it is made of lose digits."""
    info = torch.finfo(dtype)
    return math.sqrt(info.tiny / info.eps)


class _AllDistances(Function):
    @staticmethod
    def forward(ctx: Any, o: Tensor, scale: float, factor: float, measured: tuple[Tensor, Tensor]) -> Tensor:
        out, top = measured
        ctx.save_for_backward(o, out, top)
        ctx.scale, ctx.factor = scale, factor
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        o, out, top = ctx.saved_tensors
        scale, factor = ctx.scale, ctx.factor
        if torch.is_grad_enabled():  # double backward
            d = plain_all_distances(o, scale, factor)
            return torch.autograd.grad(d, o, g, create_graph=True)[0], None, None, None
        # With w = g / d the gradient is o * sum(w) - scale * w. On the dominant axis both terms may be huge and nearly
        # equal, so that axis is kept out of w and written last.
        out_top, o_top = out.gather(-1, top), o.gather(-1, top)
        w_top = torch.where(out_top == 0, 0.0, g.gather(-1, top) / out_top).mul_(factor * factor)
        w = torch.div(g, out)
        w.scatter_(-1, top, 0.0)
        w_rest = w.sum(-1, keepdim=True).mul_(factor * factor)
        w_all = w_rest + w_top
        w.mul_(-scale * factor * factor).addcmul_(o, w_all)
        return w.scatter_(-1, top, o_top * w_rest + (o_top - scale) * w_top), None, None, None
