"""Tolerances that follow from the arithmetic, and an imitation of CPUs that round differently.

Vector instructions handle most of a tensor and another loop handles the rest, so the last bits of a row depend on the
CPU and on the shape of the whole tensor. ``imitate`` makes that happen on every machine: products, convolutions and
sums add up in another order, and transcendental functions are off by one unit in the last place. With ``"tail"`` this
concerns the last rows and elements, as another batch size would; with ``"all"`` everything, as another CPU would.
Exact arithmetic (zeros, ones, small integers) stays exact, and one call on one shape always gives the same bits.
"""

import warnings
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

aten = torch.ops.aten
STEP = 7  # rows or elements that the imitated kernels take at a time: few batches are a multiple of it
FUNCTIONS = ("exp", "expm1", "log", "log1p", "tanh", "sigmoid", "sin", "cos", "erf", "lgamma", "digamma")
_kept: list[torch.library.Library] = []  # torch restores its kernels when a library is deleted


def tolerance(terms: int, dtype: torch.dtype = torch.float32, *, size: float = 1.0) -> dict[str, float]:
    """Return ``rtol`` and ``atol`` for two ways to compute one number: machine epsilon times the rounded operations.

    ``terms`` is the length of the reductions, multiplied by the condition where a difference cancels; ``size`` is the
    size of what is added up. Each operation rounds by at most half an epsilon, in each of the two ways.

    >>> tolerance(500)
    {'rtol': 5.9604644775390625e-05, 'atol': 5.9604644775390625e-05}
    """
    error = terms * torch.finfo(dtype).eps
    return {"rtol": error, "atol": error * size}


def imitate(extent: Literal["tail", "all"]) -> None:
    """Replace torch's CPU kernels in this process."""
    library = torch.library.Library("aten", "IMPL", "CPU")
    kernels = _Kernels(extent == "all")
    replaced: dict[str, Callable[..., Tensor]] = {
        "mm": kernels.mm,
        "bmm": kernels.mm,
        "addmm": kernels.addmm,
        "baddbmm": kernels.baddbmm,
        "convolution": kernels.convolution,
        "sum.dim_IntList": kernels.sum,
        "sum": lambda x, dtype=None: kernels.sum(x, dtype=dtype),
        "linalg_vector_norm": kernels.norm,
        "_softmax": lambda x, dim, half: kernels.nudged(aten._softmax.out(x, dim, half, out=torch.empty_like(x))),
        "_log_softmax": lambda x, dim, half: kernels.nudged(
            aten._log_softmax.out(x, dim, half, out=torch.empty_like(x))
        ),
        **{name: kernels.function(name) for name in FUNCTIONS},
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")  # torch tells what is replaced
        for name, kernel in replaced.items():
            library.impl(name, kernel, allow_override=True)
    _kept.append(library)


class _Kernels:
    """Kernels that call those of torch through their ``out`` forms, which are not replaced."""

    def __init__(self, everywhere: bool) -> None:
        self.everywhere = everywhere

    def _rest(self, size: int) -> int:
        """Return how many of the last ones the main loop leaves over."""
        return size if self.everywhere or size <= STEP else size % STEP

    def mm(self, a: Tensor, b: Tensor) -> Tensor:
        out, rows = _product(a, b), self._rest(a.shape[-2])
        if rows and _is_real(a) and a.shape[-1] > 1:
            out[..., -rows:, :] = _other_product(a[..., -rows:, :], b)
        return out

    def addmm(self, bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
        out = aten.addmm.out(bias, a, b, beta=beta, alpha=alpha, out=a.new_empty(a.shape[0], b.shape[1]))
        rows = self._rest(a.shape[0])
        if rows and _is_real(a) and a.shape[1] > 1:
            added = bias.expand_as(out)[-rows:] * beta if beta else 0  # a bias that counts nothing may be NaN
            out[-rows:] = _other_product(a[-rows:], b) * alpha + added
        return out

    def baddbmm(self, bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
        product = self.mm(a, b) * alpha
        return product + bias * beta if beta else product

    def convolution(self, x: Tensor, weight: Tensor, *options: object) -> Tensor:
        rest = (*options, False, False, True, True)
        out, rows = aten._convolution.default(x, weight, *rest), self._rest(x.shape[0])
        transposed, groups = options[4], options[6]
        if rows and groups == 1 and not transposed and x.ndim == weight.ndim and x.shape[1] > 1:
            out[-rows:] = aten._convolution.default(x[-rows:].flip(1), weight.flip(1), *rest)
        return out

    def sum(self, x: Tensor, dim: list[int] | None = None, keepdim: bool = False, dtype: object = None) -> Tensor:
        kind = dtype or (x.dtype if _is_real(x) or x.is_complex() else torch.int64)
        return self._reduced(
            lambda y: aten.sum.IntList_out(y, dim, keepdim, dtype=dtype, out=torch.empty(0, dtype=kind)), x, dim
        )

    def norm(
        self, x: Tensor, ord: float = 2, dim: list[int] | None = None, keepdim: bool = False, dtype: object = None
    ) -> Tensor:
        kind = dtype or x.abs().dtype
        return self._reduced(
            lambda y: aten.linalg_vector_norm.out(y, ord, dim, keepdim, dtype=dtype, out=torch.empty(0, dtype=kind)),
            x,
            dim,
        )

    def _reduced(self, reduce: Callable[[Tensor], Tensor], x: Tensor, dim: list[int] | None) -> Tensor:
        """Reduce in reverse order for the last outputs."""
        out = reduce(x)
        rest = self._rest(out.numel())
        if not (_is_real(x) and x.ndim and rest and x.numel() > out.numel()):
            return out
        other = reduce(x.flip(list(dim) if dim else list(range(x.ndim))))
        flat = out.reshape(-1).clone()
        flat[-rest:] = other.reshape(-1)[-rest:]
        return flat.reshape(out.shape)

    def function(self, name: str) -> Callable[[Tensor], Tensor]:
        exact = getattr(aten, name).out
        return lambda x: self.nudged(
            exact(x, out=torch.empty(0, dtype=x.dtype if _is_real(x) or x.is_complex() else torch.get_default_dtype()))
        )

    def nudged(self, out: Tensor) -> Tensor:
        """Move the last values to their neighbours; values that every implementation hits exactly stay."""
        rest = self._rest(out.numel())
        if not rest or out.dtype not in (torch.float32, torch.float64):
            return out
        flat = out.reshape(-1).clone()
        last = flat[-rest:]
        exact = (last == 0) | (last == 0.5) | (last.abs() == 1) | ~last.isfinite()
        away = last * torch.inf if self.everywhere else torch.zeros_like(last)  # from zero, or to it
        flat[-rest:] = torch.where(exact, last, torch.nextafter(last, away))
        return flat.reshape(out.shape)


def _is_real(x: Tensor) -> bool:
    return x.is_floating_point()


def _product(a: Tensor, b: Tensor) -> Tensor:
    kernel = aten.mm.out if a.ndim == 2 else aten.bmm.out
    return kernel(a, b, out=a.new_empty((*a.shape[:-1], b.shape[-1])))


def _other_product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply with another order of the sum: the second half first, each half in reverse."""
    half = a.shape[-1] // 2
    first, second = (
        _product(a[..., part].flip(-1), b[..., part, :].flip(-2)) for part in (slice(half, None), slice(0, half))
    )
    return first + second
