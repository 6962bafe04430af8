"""Fast training of small networks: several seeds as one."""

import math
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from openradial.data.batches import Batches
from openradial.data.examples import Examples
from openradial.data.progress import bar
from openradial.errors import DataError, OptionError, TrainingError, check_count
from openradial.nn.objective import Objective
from openradial.training.flat_optimisers import clip_rows, make_update
from openradial.training.optimisers import learning_rate_factor
from openradial.training.settings import Settings
from openradial.training.stacks import FunctionalStack, LinearStack, Minimised, Stack, linear_chain, make_slope

COMPILE_FROM = 50_000  # steps: compiling takes half a minute and then saves up to a millisecond a step
CHUNK = 2**21  # numbers gathered at once, so that ten orders of a set need not fit into memory
ONE_THREAD_BELOW = 2**22  # multiplications in the largest product: less work than waking a second thread


@dataclass(frozen=True, eq=False)
class Trained:
    """Networks in the order of their seeds, and the loss of every step, ``(steps, seeds)``."""

    networks: list[nn.Module]
    losses: Tensor


def train_stacked(
    build: Callable[[], nn.Module],
    objective: Minimised,
    examples: Examples,
    settings: Settings,
    seeds: Sequence[int],
    *,
    compile: bool | None = None,
) -> Trained:
    """Train one network per seed, all at the same time.

    Each network starts as ``torch.manual_seed(seed); build()`` does and gets the batches of
    ``Batches(examples, batch_size, shuffle=True, seed=seed)``; apart from rounding it ends like one that was trained
    alone by a plain loop with torch.optim, whatever other seeds are trained beside it. ``settings.seed`` is not used.

    ``objective`` is what :func:`openradial.training.fit` takes. Plain fully connected networks with an ``Objective``
    are differentiated by hand, on one thread while they are small. Anything else that ``torch.func.vmap`` can stack is
    left to autograd. What draws random numbers (dropout, weight samples) draws them for all networks together, so there
    the company matters.

    ``compile`` is for the second kind: None compiles if the run has at least 50,000 steps and the machine a compiler,
    because it takes half a minute; True always, False never. Nothing is written to disk.
    """
    seeds = _checked_seeds(seeds)
    _check(settings, examples)
    with torch.random.fork_rng(), torch.no_grad():
        networks = _build(build, seeds, settings)
        torch.manual_seed(seeds[0])
        examples = examples.to(next(networks[0].parameters()).device)
        stack = make_stack(networks, objective, examples)
        if isinstance(stack, FunctionalStack) and _may_compile(compile, settings, len(examples), stack.parameters):
            stack.compile(settings.batch_size, strict=compile is True)
        run = _Run(stack, examples, settings, seeds)
        with _lean_arithmetic(stack, settings.batch_size):
            losses = run.go()
        stack.write_back()
    return Trained(networks, losses)


def make_stack(networks: Sequence[nn.Module], objective: Minimised, examples: Examples) -> Stack:
    """The fastest form that the networks, the objective and the inputs allow."""
    chains = [chain for network in networks if (chain := linear_chain(network)) is not None]
    if type(objective) is Objective and len(chains) == len(networks):
        inputs, labels = examples.inputs, examples.labels
        fits = inputs.is_floating_point() and inputs.shape[1:] == (chains[0][0].in_features,)
        known = bool(labels.min() >= 0) and bool(labels.max() < chains[0][-1].out_features)
        if fits:  # other inputs are left to the network, other labels to the loss: they say what is wrong
            return LinearStack(chains, make_slope(objective.loss, by_hand=known))
    return FunctionalStack(networks, objective)


class _Run:
    """One run: the networks with all that changes while they are trained."""

    def __init__(self, stack: Stack, examples: Examples, settings: Settings, seeds: Sequence[int]) -> None:
        self.stack, self.settings, self.seeds = stack, settings, seeds
        inputs = examples.inputs
        self.inputs = stack.prepare(inputs.to(stack.parameters.dtype) if inputs.is_floating_point() else inputs)
        self.labels = examples.labels
        self.orders = [Batches(examples, settings.batch_size, shuffle=True, seed=seed) for seed in seeds]
        self.update = make_update(stack.parameters, settings)
        self.batches = len(self.orders[0])
        self.losses = stack.parameters.new_empty(settings.epochs * self.batches, len(seeds))
        self.step = 0

    def go(self) -> Tensor:
        """Train to the end; the losses."""
        title = f"training {len(self.seeds)} network{'s' if len(self.seeds) > 1 else ''}"
        with bar(title, self.settings.epochs, unit="epochs") as advance:
            for epoch in range(self.settings.epochs):
                for index in self._indices(epoch):
                    self._train(index)
                advance(1)
        return self.losses

    def _indices(self, epoch: int) -> Iterator[Tensor]:
        """Places of the examples, some batches at a time, ``(batches, s, b)``; the rest of an epoch is a batch too."""
        orders = [order for source in self.orders if (order := source.order(epoch)) is not None]
        together = torch.stack(orders).to(self.labels.device)  # (s, n)
        s, b = len(self.seeds), self.settings.batch_size
        full = together.shape[1] // b
        chunk = max(1, CHUNK // (s * b * math.prod(self.inputs.shape[1:])))
        if full:
            yield from torch.split(together[:, : full * b].reshape(s, full, b).transpose(0, 1), chunk)
        if full < self.batches:
            yield together[None, :, full * b :]

    def _train(self, index: Tensor) -> None:
        places = index.reshape(-1)
        xs = self.inputs.index_select(0, places).view(*index.shape, *self.inputs.shape[1:])
        ys = self.labels.index_select(0, places).view(index.shape)
        losses = [self._step(x, y) for x, y in zip(xs.unbind(), ys.unbind(), strict=True)]
        done = self.losses[self.step - len(losses) : self.step]
        torch.mean(torch.stack(losses), -1, out=done)
        self._check_losses(done)

    def _step(self, x: Tensor, y: Tensor) -> Tensor:
        losses, gradient = self._first(x, y) if self.step == 0 else self.stack.gradients(x, y)
        if self.settings.clip_norm is not None:
            clip_rows(gradient, self.settings.clip_norm)
        self.update(gradient, self._rate(self.step))
        self.step += 1
        return losses

    def _first(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The first step, in which a compiler may be at work, and a wrong network or loss shows."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                losses, gradient = self.stack.gradients(x, y)
            except RuntimeError as error:
                if "vmap" not in str(error):
                    raise
                reason = str(error).partition(". ")[0]
                raise OptionError(
                    f"these networks cannot be trained together: {reason}; train each with fit"
                ) from error
        if losses.ndim != 2:
            shape = tuple(losses.shape[1:-1])
            raise OptionError(f"the loss of a batch must be one number, got shape {shape}; use reduction='mean'")
        return losses, gradient

    def _rate(self, step: int) -> float:
        return self.settings.learning_rate * learning_rate_factor(self.settings, step, self.batches)

    def _check_losses(self, losses: Tensor) -> None:
        limit = self.settings.explosion * self.losses[0].abs().clamp_min(1e-12)
        good = losses <= limit  # neither is NaN
        if bool(good.all()):
            return
        row, which = (~good).nonzero()[0].tolist()
        step = self.step - len(losses) + row
        epoch, batch = divmod(step, self.batches)
        raise TrainingError(
            f"the loss of seed {self.seeds[which]} became {losses[row, which]:g} in epoch {epoch + 1}, "
            f"batch {batch + 1}, at learning rate {self._rate(step):g}; "
            "lower the learning rate, set clip_norm, or look at the inputs"
        )


def _checked_seeds(seeds: Sequence[int]) -> list[int]:
    for seed in seeds:
        check_count("each seed", seed, least=0)
    if len(seeds) == 0 or len(set(seeds)) < len(seeds):
        raise OptionError(f"seeds must be one or more different numbers, got {list(seeds)}")
    return [int(seed) for seed in seeds]


def _check(settings: Settings, examples: Examples) -> None:
    for name in ("ema", "patience"):
        if getattr(settings, name) is not None:
            raise OptionError(f"networks trained together know no {name}; leave it out or train them with fit")
    if settings.precision not in ("float32", "float64"):
        raise OptionError(
            f"networks are trained together in float32 or float64, got {settings.precision}; train them with fit"
        )
    if len(examples) == 0:
        raise DataError("training needs at least one example, got none")


def _build(build: Callable[[], nn.Module], seeds: Sequence[int], settings: Settings) -> list[nn.Module]:
    networks = []
    for seed in seeds:
        torch.manual_seed(seed)
        networks.append(build().to(torch.float64 if settings.precision == "float64" else torch.float32).train())
        first, last = ({name: v.shape for name, v in net.state_dict().items()} for net in (networks[0], networks[-1]))
        if first != last:
            raise OptionError(
                f"build must give the same architecture for every seed, but seeds {seeds[0]} and {seed} differ; "
                "train them apart"
            )
    return networks


def _may_compile(wish: bool | None, settings: Settings, examples: int, like: Tensor) -> bool:
    if wish is None:
        steps = settings.epochs * -(-examples // settings.batch_size)
        return steps >= COMPILE_FROM and has_compiler(like.device)
    if wish and not has_compiler(like.device):
        raise TrainingError(
            "no C++ compiler was found; install one or set CXX, or leave compile=True out: it is optional"
        )
    return wish


def has_compiler(device: torch.device) -> bool:
    """Whether torch.compile can work: with the C++ compiler that it would take, or with Triton on other devices."""
    if device.type != "cpu":
        return find_spec("triton") is not None
    return shutil.which(os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")) is not None


@contextmanager
def _lean_arithmetic(stack: Stack, batch_size: int) -> Iterator[None]:
    """One thread for small products, and numbers below the normal range as zero; afterwards all is as before.

    Mean squares of units that no longer learn shrink into that range, where processors are slow; what they are divided
    into is zero.
    """
    threads, flushed = torch.get_num_threads(), _flushes_denormals()
    if isinstance(stack, LinearStack) and _largest_product(stack, batch_size) < ONE_THREAD_BELOW:
        torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushed)
        torch.set_num_threads(threads)


def _flushes_denormals() -> bool:
    return torch.tensor([1e-39]).mul(1.0).item() == 0  # torch can set this but not tell it


def _largest_product(stack: LinearStack, batch_size: int) -> int:
    return batch_size * max(matrix.numel() for matrix in stack.matrices)
