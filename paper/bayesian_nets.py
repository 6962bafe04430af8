"""Bayesian networks on the spiral: trained once for all figures that need them, and their samples."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from openradial import RadialLayer, RadialLoss
from openradial.bayes import ElboObjective, SampledPrediction, posterior, predict, to_bayesian
from paper.plan import Plan, Results, Size
from paper.spiral_nets import FAR, HIDDEN, Nets, loaded, ring, train_weights

BATCHES = 40  # the paper's M
RADII = (2.0, 3.0, 5.0)  # of the rings of far-away points; the data lie within 1.1
RING_POINTS = 36
TRAINING_RADIUS = 0.6  # about where on its arm the training point of the figures lies


@dataclass(frozen=True)
class Bayes:
    """Settings of every experiment with these networks, so that all experiments share them."""

    bayesian_epochs: int  # the paper's 25,000 would take hours for each kind of network
    seeds: int
    samples: int
    cells: int  # of the maps, each way
    betas: tuple[float, ...]  # of the radial networks; the figures show that of FIGURE_BETA
    learning_rate: float = 5e-4


FIGURE_BETA = 5.0
SETTINGS: dict[Size, Bayes] = {
    "tiny": Bayes(bayesian_epochs=1, seeds=2, samples=5, cells=10, betas=(5.0,)),
    "quick": Bayes(bayesian_epochs=80, seeds=5, samples=100, cells=100, betas=(5.0,), learning_rate=2e-3),
    "full": Bayes(bayesian_epochs=2_000, seeds=10, samples=200, cells=200, betas=(1.0, 5.0, 20.0)),
}


@dataclass(frozen=True)
class BayesNets(Nets):
    """Bayesian networks of one kind, one per seed; here beta weighs the likelihood against the prior."""

    beta: float = 1.0

    @property
    def name(self) -> str:
        return f"bayesian-{super().name}-{self.beta:g}"

    @property
    def layer(self) -> nn.Module:
        """Return the layer that maps outputs to log-probabilities."""
        return RadialLayer(3, beta=self.beta) if self.head == "radial" else nn.LogSoftmax(-1)


def softmax_nets(settings: Bayes, hidden: tuple[int, ...] = HIDDEN["softmax"]) -> BayesNets:
    """Return networks with softmax; as in the paper the last hidden layer has two units."""
    return BayesNets("softmax", settings.bayesian_epochs, settings.seeds, hidden, settings.learning_rate)


def radial_nets(settings: Bayes, beta: float = FIGURE_BETA) -> BayesNets:
    """Return networks with the radial layer."""
    facts = (settings.bayesian_epochs, settings.seeds, HIDDEN["radial"], settings.learning_rate)
    return BayesNets("radial", *facts, beta=beta)


def trained_bayesian(plan: Plan, nets: BayesNets) -> list[nn.Module]:
    """Return the networks, from the plan's folder or trained now."""
    tensors = plan.cached_tensors(nets.name, partial(_train, plan, nets))
    return [loaded(to_bayesian(nets.build()), tensors, seed) for seed in range(nets.seeds)]


def _train(plan: Plan, nets: BayesNets) -> dict[str, Tensor]:
    kind = nets.head if nets.head == "softmax" else f"radial (beta {nets.beta:g})"
    plan.note(f"training {nets.seeds} Bayesian {kind} networks, {nets.epochs:,} epochs")
    loss = RadialLoss(beta=nets.beta) if nets.head == "radial" else nn.CrossEntropyLoss()
    return train_weights(lambda: to_bayesian(nets.build()), ElboObjective(loss, BATCHES, 50), nets)


def drawn(network: nn.Module, nets: BayesNets, count: int) -> list[nn.Module]:
    """Return plain networks whose weights are draws from the posterior."""
    q = posterior(network)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        weights = q.draw(count)
    networks: list[nn.Module] = [nets.build().eval() for _ in range(count)]
    for plain, row in zip(networks, weights, strict=True):
        plain.load_state_dict(q.named(row))
    return networks


def two_points(nets: BayesNets) -> Tensor:
    """Return one training point and the far-away point, ``(2, 2)``."""
    arm = nets.data().inputs[nets.data().labels == 0]
    nearest = (arm.norm(dim=-1) - TRAINING_RADIUS).abs().argmin()
    return torch.stack([arm[nearest], torch.tensor(FAR)])


def measured(plan: Plan, nets: BayesNets, samples: int) -> Results:
    """Return accuracy on training points and confidence on far-away rings, one number per seed."""
    return plan.cached(f"told-{nets.name}-{samples}", partial(_measure, plan, nets, samples))  # type: ignore[no-any-return]


def _measure(plan: Plan, nets: BayesNets, samples: int) -> Results:
    data, far = nets.data(), torch.cat([ring(radius, RING_POINTS) for radius in RADII])
    results: Results = {"accuracy": [], "confident": [], "winning": [], "spread": []}
    for network in trained_bayesian(plan, nets):
        near = predict(network, data.inputs[:600], samples, head=nets.layer, seed=0)
        results["accuracy"].append(float((near.labels == data.labels[:600]).float().mean()))
        for name, value in described(predict(network, far, samples, head=nets.layer, seed=0)).items():
            results[name].append(value)
    return results


def described(prediction: SampledPrediction) -> dict[str, float]:
    """Return the confidence of the mean of the samples and the spread of the samples; means over the points."""
    return {
        "confident": float((prediction.probs.amax(-1) > 0.9).float().mean()),
        "winning": float(prediction.winning_probs.mean()),
        "spread": float(prediction.winning_probs.std(0).mean()),
    }


def best_seed(results: Results) -> int:
    """Return the seed with the highest accuracy; the first of them."""
    accuracies: list[float] = results["accuracy"]
    return accuracies.index(max(accuracies))
