"""Networks on the spiral: trained once for all figures that need them, and asked about places in the plane."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from openradial.data.examples import Examples
from openradial.data.sets.spiral import spiral
from openradial.functional import radial_distances, radial_loss
from openradial.models import MLP
from openradial.nn.objective import Loss
from openradial.training import Objective, Settings
from openradial.training.stacked import train_stacked
from paper.plan import Plan

HIDDEN = {"softmax": (50, 50, 2), "radial": (50, 50, 50)}  # as in the paper
LEARNED = 0.95  # a test accuracy; without learning it is a third
FAR = (2.0, 2.0)  # the far-away point of the figures; the data lie within a radius of 1.1
EXTENT = (-3.0, 3.0, -3.0, 3.0)
LOSSES: dict[str, Loss] = {"softmax": cross_entropy, "radial": radial_loss}


@dataclass(frozen=True)
class Nets:
    """Networks of one kind, one per seed; two experiments that ask for equal ones share them."""

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
        """The points they learn from; those of ``test`` have their true labels."""
        label_noise = self.label_noise if split == "train" else 0.0
        return spiral(self.points, noise=self.noise, turns=self.turns, label_noise=label_noise, split=split)

    def build(self) -> MLP:
        return MLP(3, inputs=2, hidden=self.hidden)

    def training(self) -> Settings:
        """The paper's settings, apart from what is given."""
        return Settings(
            epochs=self.epochs, batch_size=50, optimiser="rmsprop", learning_rate=self.learning_rate, decay=0.9
        )


def trained(plan: Plan, nets: Nets) -> list[nn.Module]:
    """The networks, from the plan's folder or trained now."""
    tensors = plan.kept_tensors(nets.name, partial(_train, plan, nets))
    return [loaded(nets.build(), tensors, seed) for seed in range(nets.seeds)]


def loaded(network: nn.Module, tensors: dict[str, Tensor], seed: int) -> nn.Module:
    """A network with the weights of one seed."""
    start = f"{seed}."
    network.load_state_dict({name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)})
    return network.eval()


def _train(plan: Plan, nets: Nets) -> dict[str, Tensor]:
    plan.note(f"training {nets.seeds} {nets.head} networks, {nets.epochs:,} epochs")
    objective, seeds = Objective(LOSSES[nets.head]), range(nets.seeds)
    networks = train_stacked(nets.build, objective, nets.data(), nets.training(), seeds).networks
    return {f"{seed}.{name}": t for seed in seeds for name, t in networks[seed].state_dict().items()}


@torch.no_grad()
def winning(network: nn.Module, head: str, x: Tensor, beta: float = 1.0) -> tuple[Tensor, Tensor]:
    """Winning class and its probability at places ``(b, 2)``; two of ``(b,)``."""
    o = network(x)
    if head == "softmax":
        prob, winner = o.softmax(-1).max(-1)
        return winner, prob
    d, winner = radial_distances(o).min(-1)
    return winner, (-beta * d).exp()


@torch.no_grad()
def accuracy(network: nn.Module, data: Examples) -> float:
    """Share of points with the right winner; for axis prototypes the nearest one has the largest output."""
    return float((network(data.inputs).argmax(-1) == data.labels).float().mean())


def grid(places: int, extent: Sequence[float] = EXTENT) -> Tensor:
    """A square grid, row by row from the bottom, ``(places * places, 2)``: the middles of the map's cells."""
    left, right, bottom, top = extent
    middles = (torch.arange(places) + 0.5) / places
    y, x = torch.meshgrid(bottom + (top - bottom) * middles, left + (right - left) * middles, indexing="ij")
    return torch.stack([x, y], -1).reshape(-1, 2)


def prediction_map(
    network: nn.Module, head: str, places: int, beta: float = 1.0, extent: Sequence[float] = EXTENT
) -> dict[str, Any]:
    """Winners and probabilities on a grid, as JSON holds them."""
    winner, prob = winning(network, head, grid(places, extent), beta)
    return {"extent": list(extent), "winners": rows(winner, places), "probs": rows(prob, places)}


def rows(values: Tensor, places: int) -> list[list[float]]:
    """Values of a grid as rows of rounded numbers: three digits are more than a colour shows."""
    table: list[list[float]] = values.reshape(places, places).tolist()
    return [[round(value, 3) for value in row] for row in table]


def ring(radius: float, count: int = 360) -> Tensor:
    """Places on a circle about the origin, ``(count, 2)``."""
    angle = 2 * torch.pi * torch.arange(count) / count
    return radius * torch.stack([angle.cos(), angle.sin()], -1)


def sample(data: Examples, most: int) -> dict[str, Any]:
    """The first points and their labels, as JSON holds them; every beginning of a spiral is balanced."""
    points = [[round(value, 3) for value in point] for point in data.inputs[:most].tolist()]
    return {"points": points, "labels": data.labels[:most].tolist()}
