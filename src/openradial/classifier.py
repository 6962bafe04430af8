"""A network with all that makes it open-world: a head, scores of hidden layers, their combination, a rejector."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self, TypeVar

import torch
from torch import Tensor, nn

from openradial.conformal import Rejector
from openradial.errors import HeadError, OptionError
from openradial.heads import Head
from openradial.nn import hidden_layers
from openradial.scorers import Combination, Scorer

OUTPUTS = "outputs"
T = TypeVar("T")


class Answer(NamedTuple):
    """What is said of each input of a batch: labels with -1 for unknown, and why."""

    labels: Tensor  # (b,)
    nearest: Tensor  # (b,) the most probable class, whatever the rejector says
    log_probs: Tensor  # (b, k)
    unknown_score: Tensor  # (b,)
    p_values: Tensor | None  # (b,), where there is a rejector


class OpenClassifier(nn.Module):
    """Inputs to a class or "unknown".

    ``scorers`` are the unknown-scores that count, by the place in the network that each looks at (see
    :func:`openradial.nn.hidden_layers`); without any, the head's own score counts. Several need a ``combination``. The
    ``rejector`` turns the score into a decision; without it nothing is rejected.

    Known data serve three times, and no example twice: :meth:`fit_scorers` takes what the network was trained on,
    :meth:`fit_combination` and :meth:`calibrate` take held-out examples.

    >>> from openradial.heads import RadialHead
    >>> model = OpenClassifier(nn.Identity(), RadialHead(2), rejector=Rejector(0.2))
    >>> known = torch.tensor([[1.0, 0.1], [0.2, 1.0], [1.0, 0.3], [0.0, 0.6]])
    >>> model.calibrate([known]).answer(torch.tensor([[1.0, 0.0], [5.0, 5.0]])).labels
    tensor([ 0, -1])
    """

    def __init__(
        self,
        net: nn.Module,
        head: Head,
        *,
        scorers: Mapping[str, Scorer] | None = None,
        combination: Combination | None = None,
        rejector: Rejector | None = None,
    ) -> None:
        super().__init__()
        self.places = tuple(scorers or {})
        if len(self.places) > 1 and combination is None:
            raise OptionError(f"{len(self.places)} scores need a combination that makes one of them, got none")
        if len(self.places) < 2 and combination is not None:
            raise OptionError(f"a combination needs at least two scores, got {len(self.places)}")
        self.net, self.head, self.combination, self.rejector = net, head, combination, rejector
        self.scorers = nn.ModuleList((scorers or {}).values())
        self.eval()  # the network has been trained

    def fit_scorers(self, inputs: Iterable[Tensor], labels: Tensor) -> Self:
        """Let the head and the scorers learn from the training data, in batches; ``labels`` of all of them."""
        layers = self._layers(inputs, (OUTPUTS, *self.places))
        self.head.fit(layers[OUTPUTS], labels)
        for place, scorer in zip(self.places, self._scorers(), strict=True):
            scorer.fit(layers[place], labels)
        return self

    def fit_combination(self, inputs: Iterable[Tensor]) -> Self:
        """Let the combination learn from held-out known inputs."""
        if self.combination is not None:
            self.combination.fit(torch.cat(_some([self._columns(layers) for layers in self._each(inputs)])))
        return self

    def calibrate(self, inputs: Iterable[Tensor]) -> Self:
        """Let the rejector learn from other held-out known inputs."""
        if self.rejector is None:
            raise HeadError("there is no rejector to calibrate: give one, as in rejector=Rejector(0.05)")
        scores, labels = zip(*_some([self._scored(layers) for layers in self._each(inputs)]), strict=True)
        self.rejector.fit(torch.cat(scores), torch.cat(labels) if self.rejector.per_class else None)
        return self

    @torch.no_grad()
    def answer(self, x: Tensor, false_reject_rate: float | None = None) -> Answer:
        """What is said of a batch; another rate than the rejector's may be asked for."""
        layers = hidden_layers(self.net, x, (OUTPUTS, *self.places))
        log_probs: Tensor = self.head.log_probs(layers[OUTPUTS])
        scores, nearest = self._scored(layers)
        if self.rejector is None:
            return Answer(nearest, nearest, log_probs, scores, None)
        labels = self.rejector.decide(scores, nearest, false_reject_rate)
        per_class = nearest if self.rejector.per_class else None
        return Answer(labels, nearest, log_probs, scores, self.rejector.p_values(scores, per_class))

    def forward(self, x: Tensor) -> Tensor:
        """Log-probabilities, ``(b, ...) -> (b, k)``."""
        log_probs: Tensor = self.head.log_probs(self.net(x))
        return log_probs

    def _scored(self, layers: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The unknown-score and the most probable class of each input."""
        o = layers[OUTPUTS]
        if not self.places:
            return self.head.unknown_score(o), self.head.predict(o)
        columns = self._columns(layers)
        merged = columns[:, 0] if self.combination is None else self.combination.unknown_score(columns)
        return merged, self.head.predict(o)

    def _columns(self, layers: Mapping[str, Tensor]) -> Tensor:
        pairs = zip(self.places, self._scorers(), strict=True)
        return torch.stack([scorer.unknown_score(layers[place]) for place, scorer in pairs], 1)  # (b, m)

    def _scorers(self) -> list[Scorer]:
        return [scorer for scorer in self.scorers if isinstance(scorer, Scorer)]

    @torch.no_grad()
    def _each(self, inputs: Iterable[Tensor]) -> Iterable[dict[str, Tensor]]:
        for x in inputs:
            yield hidden_layers(self.net, x, (OUTPUTS, *self.places))

    def _layers(self, inputs: Iterable[Tensor], names: tuple[str, ...]) -> dict[str, Tensor]:
        parts = _some(list(self._each(inputs)))
        return {name: torch.cat([part[name] for part in parts]) for name in names}


def _some(parts: list[T]) -> list[T]:
    if not parts:
        raise OptionError("known data are needed to learn from, got no batch")
    return parts
