"""What decides that a row is unknown: how far its prototype and the nearest row that was trained on are."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from openradial.classifier import OpenClassifier
from openradial.conformal import Rejector
from openradial.conformal.calibration import examples_needed
from openradial.data.examples import Examples
from openradial.data.splits import train_test_split
from openradial.errors import OptionError
from openradial.estimator.network import Answering
from openradial.heads import RadialHead
from openradial.models import MLP
from openradial.nn import hidden_layers
from openradial.scorers import Combination, NeighbourScorer

OUTPUTS, FIRST = "outputs", "hidden.relu1"  # what comes out of the network, and out of its first hidden layer
REFERENCES = 10_000  # rows that the nearest is looked for among
SHARE = 1 / 3  # of the rows that are held out, for the combination
FEWEST = 20  # rows that a combination learns from
EQUAL = 1e-9  # of the largest feature: two rows that are not farther apart are told apart by rounding alone


@dataclass(frozen=True)
class Seen:
    """At most 10,000 different rows that were trained on, drawn at random.

    >>> len(Seen.of(torch.ones(5, 2), seed=0).rows)
    1
    """

    rows: Tensor  # (n, d)
    keys: Tensor  # (n,) random numbers: those rows stay that have the smallest

    @classmethod
    def of(cls, rows: Tensor, seed: int) -> Self:
        keys = torch.rand(len(rows), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return cls(rows, keys)._smallest()._different()

    def joined(self, other: Self) -> Self:
        """Both together, as if they had been drawn from all rows at once."""
        both = type(self)(torch.cat([self.rows, other.rows]), torch.cat([self.keys, other.keys]))
        return both._different()._smallest()  # more epochs show the same rows again

    def _smallest(self) -> Self:
        order = self.keys.argsort()[:REFERENCES]
        return type(self)(self.rows[order], self.keys[order])

    def _different(self) -> Self:
        rows, place = torch.unique(self.rows, dim=0, return_inverse=True)
        keys = self.keys.new_ones(len(rows)).scatter_reduce(0, place, self.keys, "amin")
        return type(self)(rows, keys)


def check_neighbours(value: object) -> None:
    """Raise unless ``value`` is True or False, of Python or of NumPy."""
    if not isinstance(value, bool | np.bool_):
        raise OptionError(f"neighbours must be True or False, got {value!r}; it is always the one nearest row")


def has_hidden_layer(net: nn.Module) -> bool:
    """Whether the network is one of ours with a hidden layer to look at."""
    return isinstance(net, MLP) and len(net.hidden) > 0


def calibrated(
    net: Answering, head: RadialHead, rate: float, seen: Seen | None, held: Examples, seed: int
) -> OpenClassifier:
    """A trained network with its scores and a rejector; no held-out row serves both for scores and rejector.

    Without rows that were ``seen`` in training, or with too few that are held out, the distance to the prototype is
    the only score.
    """
    for_scores, for_rejector = (None, held) if seen is None else divided(held, rate, seed)
    model = OpenClassifier(net.net, head, rejector=Rejector(rate))
    if seen is not None and for_scores is not None:
        model = _with_neighbours(net, head, rate, seen, for_scores) or model
    return model.calibrate(net.parts(for_rejector.inputs))


def divided(held: Examples, rate: float, seed: int) -> tuple[Examples | None, Examples]:
    """Rows for the combination, or None where there are too few, and rows for the rejector."""
    for_rejector, for_scores = train_test_split(held, SHARE, seed)
    if len(for_scores) < FEWEST or len(for_rejector) < examples_needed(rate):
        return None, held
    return for_scores, for_rejector


def _with_neighbours(
    net: Answering, head: RadialHead, rate: float, seen: Seen, held: Examples
) -> OpenClassifier | None:
    """The distance to the prototype combined with that to the nearest row; None where they cannot be combined."""
    near, both = NeighbourScorer(k=1), Combination("standardised")
    scorers = {OUTPUTS: head, FIRST: near}
    model = OpenClassifier(net.net, head, scorers=scorers, combination=both, rejector=Rejector(rate))
    model.fit_scorers(net.parts(seen.rows), torch.zeros(len(seen.rows), dtype=torch.int64))
    rows = held.inputs[_is_apart(net, near, held.inputs)]
    if len(rows) < FEWEST:
        return None
    try:
        return model.fit_combination(net.parts(rows))
    except OptionError:  # a network that does not tell rows apart gives all of them the same score
        return None


@torch.no_grad()
def _is_apart(net: Answering, near: NeighbourScorer, x: Tensor) -> Tensor:
    """Whether each row differs from all that were trained on, ``(n, d) -> (n,)``.

    Equal rows have distance 0, or what rounding makes of it, which has no logarithm of use. Later such a row gets the
    score of the smallest distance that the combination has learnt from.
    """
    scores = [near.unknown_score(hidden_layers(net.net, part, [FIRST])[FIRST]) for part in net.parts(x)]
    return torch.cat(scores) > EQUAL * near.references.abs().max()
