"""Train two networks on the spiral side by side, one with softmax and one with the radial layer."""

from dataclasses import dataclass
from itertools import chain, repeat

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy

from openradial.bayes import ElboObjective, posterior, to_bayesian
from openradial.data import Batches
from openradial.data.sets.spiral import spiral
from openradial.functional import radial_probs
from openradial.models import MLP
from openradial.nn import RadialLoss
from openradial.nn.objective import Objective
from openradial.training import Settings
from openradial.training.settings import CheckedSettings, make_optimiser, within

CLASSES = 3
POINTS, BATCH = 2000, 50


@dataclass(frozen=True)
class SpiralSettings(CheckedSettings):
    """Settings whose change needs a new training. ``beta`` matters to Bayesian networks only: see docs/bayes.md."""

    label_noise: float = within(0.0, 0.5, 0.0)
    scale: float = within(0.5, 5.0, 1.0)
    beta: float = within(0.5, 50.0, 5.0)
    bayesian: bool = False
    seed: int = within(0, 10**6, 0)

    @property
    def pace(self) -> "Pace":
        """Return the frames of the run."""
        return BAYESIAN if self.bayesian else PLAIN


@dataclass(frozen=True)
class Pace:
    """How a run is divided into frames, and what a frame shows: weight samples, and grid cells in each direction."""

    frames: int
    steps: int  # of training between two frames
    samples: int
    cells: int
    training: Settings


PLAIN = Pace(100, 8, 1, 96, Settings(optimiser="adam", learning_rate=5e-3, batch_size=BATCH))
BAYESIAN = Pace(80, 20, 12, 64, Settings(optimiser="rmsprop", learning_rate=5e-3, batch_size=BATCH))


class Pair(nn.Module):
    """Both networks as one module: points ``(b, 2)`` to the outputs of softmax, then of the radial layer, ``(b, 6)``.

    Trained on the sum of both losses, each network learns as if it were alone: optimisers update each number by itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self.softmax = MLP(CLASSES, inputs=2)
        self.radial = MLP(CLASSES, inputs=2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.softmax(x), self.radial(x)], 1)


class Learner:
    """A pair of networks in training; :meth:`advance` returns the state of the next frame."""

    def __init__(self, settings: SpiralSettings) -> None:
        self.pace = settings.pace
        self.data = spiral(POINTS, label_noise=settings.label_noise, seed=settings.seed)
        batches = Batches(self.data, BATCH, shuffle=True, seed=settings.seed)
        self.batches = chain.from_iterable(repeat(batches))  # every pass has another order
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            self.net = to_bayesian(Pair()) if settings.bayesian else Pair()
        self.optimiser = make_optimiser(self.net, self.pace.training)
        radial = RadialLoss(settings.beta if settings.bayesian else 1.0, settings.scale)

        def loss(o: Tensor, y: Tensor) -> Tensor:
            total: Tensor = cross_entropy(o[:, :CLASSES], y) + radial(o[:, CLASSES:], y)
            return total

        self.objective = ElboObjective(loss, POINTS // BATCH, BATCH) if settings.bayesian else Objective(loss)

    def state(self) -> dict[str, Tensor]:
        """Return a copy of the weights."""
        return {name: tensor.detach().clone() for name, tensor in self.net.state_dict().items()}

    def advance(self) -> dict[str, Tensor]:
        """Train on as many batches as lie between two frames, and return the weights."""
        for _ in range(self.pace.steps):
            loss, _ = self.objective(self.net, *next(self.batches))
            self.optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimiser.step()
        return self.state()


class Viewer:
    """Computes the outputs of the networks of a state, always with the same weight samples."""

    def __init__(self, bayesian: bool) -> None:
        self.plain = Pair().eval()
        self.random = to_bayesian(Pair()).eval() if bayesian else None

    @torch.no_grad()
    def outputs(self, state: dict[str, Tensor], x: Tensor, samples: int) -> Tensor:
        """Return the outputs at points, ``(b, 2) -> (samples, b, 6)``; plain networks have one sample."""
        if self.random is None:
            outputs: Tensor = functional_call(self.plain, state, (x,))
            return outputs[None]
        self.random.load_state_dict(state)
        q = posterior(self.random)
        # a separate generator: networks that train meanwhile draw from the global one
        noise = torch.randn(samples, len(q.mean), generator=torch.Generator().manual_seed(0))
        drawn: Tensor = vmap(lambda row: functional_call(self.plain, q.named(row), (x,)))(q.weights(noise))
        return drawn


def accuracies(outputs: Tensor, y: Tensor, settings: SpiralSettings) -> dict[str, float]:
    """Return the accuracy of each head; ``outputs`` are ``(samples, b, 6)``."""
    heads = zip(("softmax", "radial"), probabilities(outputs, settings), strict=True)
    return {name: float((probs.mean(0).argmax(-1) == y).float().mean()) for name, probs in heads}


def probabilities(outputs: Tensor, settings: SpiralSettings) -> tuple[Tensor, Tensor]:
    """Return the probabilities of softmax and of the radial layer, ``(samples, b, 6) -> (samples, b, 3)`` each."""
    softmax, radial = outputs[..., :CLASSES], outputs[..., CLASSES:]
    return softmax.softmax(-1), radial_probs(radial, beta=settings.beta, scale=settings.scale)
