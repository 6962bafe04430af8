"""What the radial layer costs beside softmax, the paper's form and other ways to write it."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.timing import Run, Timing, duel
from openradial import functional, models

SIZES = [(50, 3), (1024, 10), (256, 1000), (256, 21_841), (128, 100_000)]
PAPER_FORM_LIMIT = 3e8  # differences that fit into memory
EMPTY_LIMIT = 20_000  # outputs up to which the overhead of a call matters
OPENRADIAL = "openradial"
STEP_BATCH = 256

# The most that we allow ourselves: a ratio openradial / rival, or milliseconds beyond the rival.
LIMITS = {
    ("loss", (50, 3)): ("ms", 0.1),
    ("loss", (1024, 10)): ("ms", 0.1),
    ("loss", (256, 1000)): ("x", 1.0),
    ("loss", (256, 21_841)): ("x", 0.5),
    ("loss", (128, 100_000)): ("x", 0.5),
    ("nearest", (256, 1000)): ("x", 1.2),
    ("nearest", (256, 21_841)): ("x", 1.0),
    ("nearest", (128, 100_000)): ("x", 1.0),
    ("log_probs", (256, 21_841)): ("x", 4.0),
    ("log_probs", (128, 100_000)): ("x", 4.0),
    ("step", (STEP_BATCH, 10)): ("x", 1.02),
}
RIVAL = {
    "loss": "cross_entropy",
    "nearest": "softmax, max",
    "log_probs": "log_softmax",
    "step": "softmax step",
}


def paper_form(o: Tensor, y: Tensor) -> Tensor:
    """The definition as the paper writes it: all differences to all prototypes."""
    prototypes = torch.eye(o.shape[1])
    distances = (o.unsqueeze(1) - prototypes).square().sum(-1).sqrt()
    return distances.gather(1, y.unsqueeze(1)).mean()


def cdist_form(o: Tensor, y: Tensor) -> Tensor:
    return torch.cdist(o, torch.eye(o.shape[1])).gather(1, y.unsqueeze(1)).mean()


def closed_form(o: Tensor, y: Tensor) -> Tensor:
    """The usual closed form, in plain PyTorch; it cancels next to a prototype."""
    return (o.square().sum(-1) - 2 * o.gather(1, y.unsqueeze(1)).squeeze(1) + 1).clamp_min(1e-12).sqrt().mean()


def closed_log_probs(o: Tensor) -> Tensor:
    return -(o.square().sum(-1, keepdim=True) - 2 * o + 1).clamp_min(1e-12).sqrt()


class Empty(torch.autograd.Function):
    """What a Python autograd function costs that does nothing."""

    @staticmethod
    def forward(ctx: Any, o: Tensor, y: Tensor) -> Tensor:
        ctx.shape = o.shape
        return o.new_zeros(())

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g.expand(ctx.shape), None


def losses(n: int, k: int) -> dict[str, Run]:
    o, y = _outputs(n, k), torch.randint(k, (n,), generator=torch.Generator().manual_seed(1))

    def forward_backward(loss: Callable[[Tensor, Tensor], Tensor]) -> Run:
        def run() -> None:
            o.grad = None
            loss(o, y).backward()

        return run

    rivals = {
        "cross_entropy": forward_backward(F.cross_entropy),
        OPENRADIAL: forward_backward(functional.radial_loss),
        "closed form": forward_backward(closed_form),
    }
    if n * k <= EMPTY_LIMIT:
        rivals["empty function"] = forward_backward(Empty.apply)
    if n * k * k <= PAPER_FORM_LIMIT:
        rivals["paper's form"] = forward_backward(paper_form)
        rivals["cdist"] = forward_backward(cdist_form)
    return rivals


def log_probs(n: int, k: int) -> dict[str, Run]:
    o, upstream = _outputs(n, k), torch.randn(n, k, generator=torch.Generator().manual_seed(1))

    def forward_backward(function: Callable[[Tensor], Tensor]) -> Run:
        def run() -> None:
            o.grad = None
            function(o).backward(upstream)

        return run

    return {
        "log_softmax": forward_backward(lambda o: F.log_softmax(o, -1)),
        OPENRADIAL: forward_backward(functional.radial_log_probs),
        "closed form": forward_backward(closed_log_probs),
    }


def predictions(n: int, k: int) -> dict[str, Run]:
    o = _outputs(n, k).detach()
    return {"softmax, max": lambda: o.softmax(-1).max(-1), OPENRADIAL: lambda: functional.radial_nearest(o)}


def steps(n: int, k: int) -> dict[str, Run]:
    """One training step of the paper's MNIST network."""
    torch.manual_seed(0)
    network = models.build("mnist_radial", k)
    x, y = torch.randn(n, 1, 28, 28), torch.randint(k, (n,))

    def step(loss: Callable[[Tensor, Tensor], Tensor]) -> Run:
        net = copy.deepcopy(network)
        optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)

        def run() -> None:
            optimiser.zero_grad()
            loss(net(x), y).backward()
            optimiser.step()

        return run

    return {"softmax step": step(F.cross_entropy), OPENRADIAL: step(functional.radial_loss)}


def measure(task: str, n: int, k: int, rounds: int) -> dict[str, Timing]:
    """Time all rivals of one task at one size."""
    rivals = {"loss": losses, "log_probs": log_probs, "nearest": predictions, "step": steps}[task](n, k)
    slow: dict[str, Run] = {
        name: rivals.pop(name) for name in ("paper's form", "cdist") if name in rivals and n * k * k > 1e6
    }
    if task != "step":
        rivals["copy"] = _outputs(n, k).detach().clone
    # short blocks: on a busy machine some of them run undisturbed
    timings = duel(rivals, rounds=rounds, block_seconds=0.005)
    return timings | duel(slow, rounds=3) if slow else timings


def _outputs(n: int, k: int) -> Tensor:
    return torch.randn(n, k, generator=torch.Generator().manual_seed(0)).requires_grad_()
