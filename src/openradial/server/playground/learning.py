"""Two networks that learn the spiral side by side, one with softmax and one with the radial layer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy

from openradial.bayes import ElboObjective, posterior, to_bayesian
from openradial.data import Batches, Examples
from openradial.data.sets.spiral import spiral
from openradial.errors import OptionError
from openradial.functional import radial_probs
from openradial.models import MLP
from openradial.nn import RadialLoss
from openradial.nn.objective import Loss, Objective
from openradial.training import Settings
from openradial.training.flat_optimisers import make_update
from openradial.training.settings import checked_names
from openradial.training.stacked import make_stack
from openradial.training.stacks import Minimised

CLASSES = 3
POINTS, BATCH = 2000, 50
RANGES = {"label_noise": (0.0, 0.5), "scale": (0.5, 5.0), "beta": (0.5, 50.0), "seed": (0, 10**6)}
State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Wishes:
    """What cannot be changed without learning anew. ``beta`` matters to Bayesian networks alone: see docs/bayes.md."""

    label_noise: float = 0.0
    scale: float = 1.0
    beta: float = 5.0
    bayesian: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.bayesian, bool):
            raise OptionError(f"bayesian must be true or false, got {self.bayesian!r}")
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            wanted = int if name == "seed" else (int, float)
            if isinstance(value, bool) or not isinstance(value, wanted) or not low <= value <= high:
                what = "a whole number" if name == "seed" else "a number"
                raise OptionError(f"{name} must be {what} from {low:g} to {high:g}, got {value!r}")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Wishes from names and values, as they come from a page."""
        checked_names(values, [*RANGES, "bayesian"])
        return cls(**values)

    @property
    def pace(self) -> "Pace":
        return BAYESIAN if self.bayesian else PLAIN


@dataclass(frozen=True)
class Pace:
    """How a run is cut into frames, and what a frame shows: networks drawn, and places of the grid each way."""

    frames: int
    steps: int  # of training between two frames
    samples: int
    places: int
    learning: Settings


PLAIN = Pace(100, 8, 1, 96, Settings(optimiser="adam", learning_rate=5e-3, batch_size=BATCH))
BAYESIAN = Pace(80, 20, 12, 64, Settings(optimiser="rmsprop", learning_rate=5e-3, batch_size=BATCH))


class Pair(nn.Module):
    """Both networks as one: points ``(b, 2)`` to the outputs of softmax and then of the radial layer, ``(b, 6)``.

    Where their losses are added, each still learns as if it were alone: optimisers work number by number.
    """

    def __init__(self) -> None:
        super().__init__()
        self.softmax = MLP(CLASSES, inputs=2)
        self.radial = MLP(CLASSES, inputs=2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.softmax(x), self.radial(x)], 1)


class Learner:
    """A pair of networks with all that changes while it learns; :meth:`advance` gives the state of the next frame."""

    def __init__(self, wishes: Wishes) -> None:
        self.wishes, self.pace = wishes, wishes.pace
        self.data = spiral(POINTS, label_noise=wishes.label_noise, seed=wishes.seed)
        self.batches = Batches(self.data, BATCH, shuffle=True, seed=wishes.seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(wishes.seed)
            self.net = to_bayesian(Pair()) if wishes.bayesian else Pair()
        self.stacks = [make_stack([net], objective, self.data) for net, objective in self._parts()]
        self.updates = [make_update(stack.parameters, self.pace.learning) for stack in self.stacks]
        self.source = self._endless()

    def state(self) -> State:
        """The networks as they are now."""
        for stack in self.stacks:
            stack.write_back()
        return {name: tensor.detach().clone() for name, tensor in self.net.state_dict().items()}

    @torch.no_grad()
    def advance(self) -> State:
        """Learn from as many batches as lie between two frames."""
        for _ in range(self.pace.steps):
            x, y = next(self.source)
            for stack, update in zip(self.stacks, self.updates, strict=True):
                _, gradient = stack.gradients(stack.prepare(x)[None], y[None])
                update(gradient, self.pace.learning.learning_rate)
        return self.state()

    def _parts(self) -> list[tuple[nn.Module, Minimised]]:
        """What is differentiated together: of Bayesian networks, a pass of both takes little longer than of one."""
        radial = RadialLoss(self.wishes.beta if self.wishes.bayesian else 1.0, self.wishes.scale)
        if not self.wishes.bayesian:
            losses: dict[str, Loss] = {"softmax": cross_entropy, "radial": radial}
            return [(self.net.get_submodule(name), Objective(loss)) for name, loss in losses.items()]

        def both(o: Tensor, y: Tensor) -> Tensor:
            return cross_entropy(o[:, :CLASSES], y) + radial(o[:, CLASSES:], y)  # type: ignore[no-any-return]

        return [(self.net, ElboObjective(both, POINTS // BATCH, BATCH))]

    def _endless(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield from self.batches


class Viewer:
    """What the networks of a state say about places: outputs ``(samples, b, 6)``, always of the same draws."""

    def __init__(self, bayesian: bool) -> None:
        self.plain = Pair().eval()
        self.random = to_bayesian(Pair()).eval() if bayesian else None

    @torch.no_grad()
    def outputs(self, state: State, x: Tensor, samples: int) -> Tensor:
        if self.random is None:
            found: Tensor = functional_call(self.plain, dict(state), (x,))
            return found[None]
        self.random.load_state_dict(dict(state))
        q = posterior(self.random)
        # numbers of its own: those of torch's one generator are drawn by networks that learn meanwhile
        noise = torch.randn(samples, len(q.mean), generator=torch.Generator().manual_seed(0))
        drawn: Tensor = vmap(lambda row: functional_call(self.plain, q.named(row), (x,)))(q.weights(noise))
        return drawn


def accuracies(outputs: Tensor, y: Tensor, wishes: Wishes) -> dict[str, float]:
    """Share of points whose winner is right, for each head; ``outputs`` are ``(samples, b, 6)``."""
    softmax, radial = probabilities(outputs, wishes)
    return {
        name: float((probs.mean(0).argmax(-1) == y).float().mean())
        for name, probs in (("softmax", softmax), ("radial", radial))
    }


def probabilities(outputs: Tensor, wishes: Wishes) -> tuple[Tensor, Tensor]:
    """Probabilities of softmax and of the radial layer, ``(samples, b, 6) -> (samples, b, 3)`` each."""
    softmax, radial = outputs[..., :CLASSES], outputs[..., CLASSES:]
    return softmax.softmax(-1), radial_probs(radial, beta=wishes.beta, scale=wishes.scale)


def fresh_points(wishes: Wishes, count: int = 300) -> Examples:
    """Points that are not learned from, with true labels."""
    return spiral(count, seed=wishes.seed, split="test")
