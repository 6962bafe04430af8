"""How openradial makes an open-world classifier: the loss, the scores that count, and how they become one."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from openradial.classifier import OpenClassifier
from openradial.conformal import Rejector, fit_beta
from openradial.errors import OptionError, ShapeError
from openradial.functional import safe_beta
from openradial.heads import RadialHead
from openradial.scorers import Combination, NeighbourScorer, Scorer
from openradial.training.loop import BatchSource
from openradial.training.outliers import DEFAULTS, OutlierObjective, make_outliers

OUTPUTS, LAST = "outputs", "classifier"
HIDDEN = {"mnist": ("fc2", "fc1"), "mlp": ("hidden.fc2",), "spiral": ("hidden.fc2",)}  # by how the name begins
NEIGHBOURS = 1  # chosen on known data alone, as the weight of outliers: see docs/recipe.md
REFERENCES = 10_000  # training examples that neighbours are looked for among


@dataclass(frozen=True)
class Recipe:
    """What to minimise, and which hidden layers are looked at afterwards (what goes into them)."""

    head: RadialHead
    objective: OutlierObjective
    places: tuple[str, ...]


def make_recipe(net: nn.Module, network: str, kind: str, num_classes: int) -> Recipe:
    """The radial recipe: squared distances, outliers made from each batch, neighbours in hidden layers."""
    head = RadialHead(num_classes, beta=safe_beta(num_classes), loss="squared")
    layers = dict(net.named_modules())
    wanted = next((names for start, names in HIDDEN.items() if network.startswith(start)), (LAST,))
    found = tuple(f"{name}:input" for name in wanted if name in layers)
    if not found and isinstance(layers.get(LAST), nn.Linear):
        found = (f"{LAST}:input",)
    return Recipe(head, OutlierObjective(head.loss, DEFAULTS[kind]), found)


@dataclass(frozen=True)
class Held:
    """Inputs in batches, ready for the network and in the same order every time, and the labels of all of them."""

    source: BatchSource

    @property
    def labels(self) -> Tensor:
        return self.source.labels

    def __iter__(self) -> Iterator[Tensor]:
        return (x for x, _ in self.source.epoch(0))


def open_classifier(
    net: nn.Module, recipe: Recipe, rate: float, *, train: Held, combination: Held | None, calibration: Held
) -> OpenClassifier:
    """A trained network with its scores, their combination and a rejector, each fitted on known data of its own."""
    net.eval()
    if combination is None or len(train.labels) < NEIGHBOURS or not recipe.places:
        model = OpenClassifier(net, recipe.head, rejector=Rejector(rate))
    else:
        model = _combined(net, recipe, rate, train, combination)
    # beta changes no order of distances, so the calibration stays untouched by what it is fitted on
    recipe.head.layer.beta = true_beta(net, recipe, calibration if combination is None else combination)
    return model.calibrate(calibration)


@torch.no_grad()
def true_beta(net: nn.Module, recipe: Recipe, held: Held) -> float:
    """The beta that makes probabilities true where every second input is an outlier made from held-out ones.

    Known inputs alone would make it so small that far-away inputs get high probabilities too.
    """
    distances: list[Tensor] = []
    labels: list[Tensor] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for x, y in held.source.epoch(0):
            own = recipe.head.layer.distances(net(x))
            distances, labels = [*distances, own], [*labels, y]
            made = make_outliers(x, y, recipe.objective.kinds)
            if len(made):
                far = recipe.head.layer.distances(net(made))
                distances, labels = [*distances, far], [*labels, far.argmax(1)]  # never the nearest: always wrong
    try:
        return fit_beta(torch.cat(distances), torch.cat(labels)).beta
    except ShapeError:  # nothing is classified wrongly, not even an outlier
        return safe_beta(recipe.head.num_classes)


def _combined(net: nn.Module, recipe: Recipe, rate: float, train: Held, combination: Held) -> OpenClassifier:
    scorers: dict[str, Scorer] = {OUTPUTS: RadialHead(recipe.head.num_classes)}
    directions = _takes_directions(net)
    scorers |= {place: NeighbourScorer(NEIGHBOURS, normalise=directions) for place in recipe.places}
    merge = Combination("fisher" if directions else "standardised")
    model = OpenClassifier(net, recipe.head, scorers=scorers, combination=merge, rejector=Rejector(rate))
    model.fit_scorers(train, train.labels)
    try:
        return model.fit_combination(combination)
    except OptionError:  # equal rows of a table have distance 0, of which there is no logarithm
        model.combination = Combination("fisher")
        return model.fit_combination(combination)


def _takes_directions(net: nn.Module) -> bool:
    """Whether features count by their direction and scores are merged by their p-values: better behind convolutions."""
    return any(isinstance(layer, nn.Conv2d) for layer in net.modules())
