"""Networks on the spiral: trained once for all figures that need them, and their predictions in the plane."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from openradial.data import Examples, load
from openradial.functional import radial_distances, radial_loss
from openradial.models import MLP
from openradial.training import Objective
from paper.ensemble_training import train_ensemble
from paper.plan import Plan

HIDDEN = {"softmax": (50, 50, 2), "radial": (50, 50, 50)}  # as in the paper
LEARNED = 0.95  # a test accuracy; without learning it is a third
FAR = (2.0, 2.0)  # the far-away point of the figures; the data lie within a radius of 1.1
EXTENT = (-3.0, 3.0, -3.0, 3.0)
LOSSES: dict[str, Callable[..., Tensor]] = {"softmax": cross_entropy, "radial": radial_loss}


@dataclass(frozen=True)
class Nets:
    """Networks of one kind, one per seed; experiments that need equal ones share them."""

    head: str
    epochs: int
    seeds: int
    hidden: tuple[int, ...]
    learning_rate: float = 5e-4
    points: int = 2000
    noise: float = 0.02
    turns: float = 1.0
    label_noise: float = 0.0

    @property
    def name(self) -> str:
        """The name of their file."""
        width = "x".join(map(str, self.hidden))
        facts = f"{self.epochs}-{self.seeds}-{self.learning_rate:g}-{self.points}"
        return f"spiral-{self.head}-{width}-{facts}-{self.noise:g}-{self.turns:g}-{self.label_noise:g}"

    def data(self, split: str = "train") -> Examples:
        """Return the training points, or test points with their correct labels."""
        label_noise = self.label_noise if split == "train" else 0.0
        options = {"n": self.points, "noise": self.noise, "turns": self.turns, "label_noise": label_noise}
        return load("spiral", split, **options)

    def build(self) -> MLP:
        """Return a new network."""
        return MLP(3, inputs=2, hidden=self.hidden)


def trained(plan: Plan, nets: Nets) -> list[nn.Module]:
    """Return the networks, from the plan's folder or trained now."""
    tensors = plan.cached_tensors(nets.name, partial(_train, plan, nets))
    return [loaded(nets.build(), tensors, seed) for seed in range(nets.seeds)]


def loaded(network: nn.Module, tensors: dict[str, Tensor], seed: int) -> nn.Module:
    """Load the weights of one seed into a network."""
    start = f"{seed}."
    network.load_state_dict({name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)})
    return network.eval()


def _train(plan: Plan, nets: Nets) -> dict[str, Tensor]:
    plan.note(f"training {nets.seeds} {nets.head} networks, {nets.epochs:,} epochs")
    return train_weights(nets.build, Objective(LOSSES[nets.head]), nets)


def train_weights(
    build: Callable[[], nn.Module], objective: Callable[..., tuple[Tensor, Tensor]], nets: Nets
) -> dict[str, Tensor]:
    """Train a network per seed with the paper's settings, and return all weights as ``seed.name``."""
    networks, _ = train_ensemble(
        build, objective, nets.data(), range(nets.seeds), epochs=nets.epochs, learning_rate=nets.learning_rate
    )
    return {f"{seed}.{name}": t for seed, net in enumerate(networks) for name, t in net.state_dict().items()}


@torch.no_grad()
def winning(network: nn.Module, head: str, x: Tensor, beta: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return the winning class and its probability at points, ``(b, 2) -> (b,), (b,)``."""
    o = network(x)
    if head == "softmax":
        prob, winner = o.softmax(-1).max(-1)
        return winner, prob
    d, winner = radial_distances(o).min(-1)
    return winner, (-beta * d).exp()


@torch.no_grad()
def accuracy(network: nn.Module, data: Examples) -> float:
    """Return the accuracy; for axis prototypes the nearest one has the largest output."""
    return float((network(data.inputs).argmax(-1) == data.labels).float().mean())


def grid(cells: int, extent: Sequence[float] = EXTENT) -> Tensor:
    """Return the centres of a square grid of cells, row by row from the bottom, ``(cells * cells, 2)``."""
    left, right, bottom, top = extent
    middles = (torch.arange(cells) + 0.5) / cells
    y, x = torch.meshgrid(bottom + (top - bottom) * middles, left + (right - left) * middles, indexing="ij")
    return torch.stack([x, y], -1).reshape(-1, 2)


def prediction_map(
    network: nn.Module, head: str, cells: int, beta: float = 1.0, extent: Sequence[float] = EXTENT
) -> dict[str, Any]:
    """Return winners and probabilities on a grid, for JSON."""
    winner, prob = winning(network, head, grid(cells, extent), beta)
    return {"extent": list(extent), "winners": rows(winner, cells), "probs": rows(prob, cells)}


def rows(values: Tensor, cells: int) -> list[list[float]]:
    """Return the values of a grid as rows of rounded numbers: three digits are more than a colour shows."""
    table: list[list[float]] = values.reshape(cells, cells).tolist()
    return [[round(value, 3) for value in row] for row in table]


def ring(radius: float, count: int = 360) -> Tensor:
    """Return points on a circle around the origin, ``(count, 2)``."""
    angle = 2 * torch.pi * torch.arange(count) / count
    return radius * torch.stack([angle.cos(), angle.sin()], -1)


def sample(data: Examples, most: int) -> dict[str, Any]:
    """Return the first points and their labels, for JSON; the classes of a spiral take turns."""
    points = [[round(value, 3) for value in point] for point in data.inputs[:most].tolist()]
    return {"points": points, "labels": data.labels[:most].tolist()}
