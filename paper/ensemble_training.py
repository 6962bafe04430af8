"""Train one small network per seed, all at the same time: ``torch.func.vmap`` over their stacked parameters."""

import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from openradial.data import Batches, Examples
from openradial.errors import TrainingError
from paper.progress import bar

ObjectiveFunction = Callable[[nn.Module, Tensor, Tensor], tuple[Tensor, Tensor]]
COMPILE_FROM = 2_000  # steps: compiling takes up to 15 seconds and saves 2 milliseconds per step


def train_ensemble(
    build: Callable[[], nn.Module],
    objective: ObjectiveFunction,
    examples: Examples,
    seeds: Sequence[int],
    *,
    epochs: int,
    batch_size: int = 50,
    learning_rate: float = 5e-4,
    decay: float = 0.9,
    dtype: torch.dtype = torch.float32,
    compile: bool | None = None,
    on_epoch: Callable[[int, Tensor], None] | None = None,
) -> tuple[list[nn.Module], Tensor]:
    """Train one network per seed with RMSprop; return the networks and the loss of every step, ``(steps, seeds)``.

    Each network starts as ``torch.manual_seed(seed); build()`` and gets the batches of
    ``Batches(examples, batch_size, shuffle=True, seed=seed)``. RMSprop updates each number by itself, so that, apart
    from rounding, each network ends as if it had been trained alone. Random numbers drawn in the forward pass (weight
    samples, dropout) are the exception: they are drawn for all networks together.

    Args:
        build: returns a new network; all its parameters are trained, and its buffers must not change in training.
        objective: as for :func:`openradial.training.fit`.
        compile: whether to compile the training step; None decides by the number of steps.
        on_epoch: called with the number of finished epochs and the parameters of all networks, ``(seeds, p)``.
    """
    with torch.random.fork_rng(devices=[]), _small_arithmetic():
        networks = [_build(build, seed, dtype) for seed in seeds]
        torch.manual_seed(seeds[0])
        sources = [Batches(examples, batch_size, shuffle=True, seed=seed) for seed in seeds]
        if compile is None:
            compile = epochs * len(sources[0]) >= COMPILE_FROM and has_compiler()
        rows, step = training_step(networks, objective, learning_rate, decay, compile=compile)
        inputs, losses = examples.inputs.to(dtype), []
        with bar(f"training {len(networks)} networks", epochs) as advance:
            for epoch in range(epochs):
                order = torch.stack([order for source in sources if (order := source.order(epoch)) is not None])
                xs, ys = (torch.split(data[order], batch_size, 1) for data in (inputs, examples.labels))  # (s, b, ...)
                losses.append(torch.stack([step(x.contiguous(), y.contiguous()) for x, y in zip(xs, ys, strict=True)]))
                if not losses[-1].isfinite().all():
                    raise TrainingError(f"a loss became infinite or NaN in epoch {epoch + 1}; lower the learning rate")
                if on_epoch is not None:
                    on_epoch(epoch + 1, rows.detach())
                advance(1)
    for network, row in zip(networks, rows.detach(), strict=True):
        vector_to_parameters(row, network.parameters())
    return networks, torch.cat(losses)


def _build(build: Callable[[], nn.Module], seed: int, dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(seed)
    return build().to(dtype).train()


def training_step(
    networks: Sequence[nn.Module], objective: ObjectiveFunction, learning_rate: float, decay: float, *, compile: bool
) -> tuple[Tensor, Callable[[Tensor, Tensor], Tensor]]:
    """Return the stacked parameters, ``(s, p)``, and a function that trains them by one step.

    The function takes a batch per network, ``(s, b, ...)`` and ``(s, b)``, and returns the losses, ``(s,)``.
    """
    module = _LossModule(networks[0], objective)
    shapes = {name: parameter.shape for name, parameter in module.named_parameters()}
    sizes = [shape.numel() for shape in shapes.values()]
    rows = torch.stack([parameters_to_vector(network.parameters()) for network in networks]).detach().requires_grad_()
    optimiser = torch.optim.RMSprop([rows], learning_rate, alpha=decay, foreach=False)

    def loss(row: Tensor, x: Tensor, y: Tensor) -> Tensor:  # (p,), (b, ...), (b,) -> ()
        parts = zip(shapes.items(), torch.split(row, sizes), strict=True)
        result: Tensor = functional_call(module, {name: part.view(shape) for (name, shape), part in parts}, (x, y))
        return result

    gradients, update = vmap(grad_and_value(loss), randomness="different"), optimiser.step
    if compile:  # with torch's random generators: compiled ones take 15 times as long
        logging.getLogger("torch._dynamo").setLevel(logging.ERROR)  # it warns that it ignores the optimiser's profiler
        torch.compiler.reset()  # else the ninth ensemble of a process exceeds the limit of recompilations
        gradients = torch.compile(gradients, fullgraph=True, dynamic=False, options={"fallback_random": True})
        update = torch.compile(update)

    @torch.no_grad()
    def step(x: Tensor, y: Tensor) -> Tensor:
        losses: Tensor
        rows.grad, losses = gradients(rows, x, y)
        update()
        return losses

    return rows, step


class _LossModule(nn.Module):
    """Network and objective as one module, because ``functional_call`` sets the parameters of a module."""

    def __init__(self, network: nn.Module, objective: ObjectiveFunction) -> None:
        super().__init__()
        self.network, self.objective = network, objective

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.objective(self.network, x, y)[0]


def has_compiler() -> bool:
    """Return whether torch.compile finds a C++ compiler."""
    return shutil.which(os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")) is not None


@contextmanager
def _small_arithmetic() -> Iterator[None]:
    """Use one thread, and zero in place of denormal numbers; restore both afterwards.

    At this size a second thread costs more than it gains. Mean squares of units that no longer learn become denormal,
    and processors are slow with such numbers.
    """
    threads, flushed = torch.get_num_threads(), torch.tensor([1e-39]).mul(1.0).item() == 0
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushed)
        torch.set_num_threads(threads)
