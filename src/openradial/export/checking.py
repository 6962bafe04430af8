"""Whether an exported graph says what the bundle says: differences in numbers, and decisions that must be equal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openradial.classifier import OpenClassifier, Predictions
from openradial.data.inputs import ImageInputs, Inputs, TextInputs
from openradial.errors import ExportError

RELATIVE, ABSOLUTE = 1e-3, 1e-4  # what rounding in another order may change
SAMPLES = 64

Predict = Callable[[Tensor, float | None], Predictions]


@dataclass(frozen=True)
class Agreement:
    """How far an exported graph and PyTorch are apart on the same inputs, at every rate that was tried.

    ``ties`` are inputs of which the decision or the nearest class differs because their numbers differ by rounding
    across a threshold; any other difference in a decision is an error.
    """

    examples: int
    real: bool  # whether the inputs were given, or made up
    rates: tuple[float, ...]
    probability: float  # largest differences
    unknown_score: float
    distance: float | None
    p_value: float | None
    ties: int

    def __str__(self) -> str:
        differences = {"probability": self.probability, "unknown-score": self.unknown_score}
        differences |= {} if self.distance is None else {"distance": self.distance}
        differences |= {} if self.p_value is None else {"p-value": self.p_value}
        worst = ", ".join(f"{name} {value:.2g}" for name, value in differences.items())
        same = "all decisions equal" if not self.ties else f"all decisions equal but {self.ties} within rounding"
        return f"{self.examples:,} {'given' if self.real else 'made-up'} inputs: {same}; largest differences: {worst}"


def compare(bundle: OpenClassifier, predict: Predict, check: Any = None) -> Agreement:
    """Compare an exported graph with its bundle; raise where they do not agree.

    ``check`` are raw or prepared inputs. Without them, inputs are made up: noise, and extremes.
    """
    x = made_up(bundle.preprocessing) if check is None else bundle.preprocessing.ready(check)
    if not len(x):
        raise ExportError("an export is checked on at least one input, got none; give some, or leave check out")
    rates = _rates(bundle)
    pairs = [(bundle.predict(x, rate), predict(x, rate)) for rate in rates]
    ties = [_ties(bundle, own, found, rate) for (own, found), rate in zip(pairs, rates, strict=True)]
    own, found = pairs[0]
    return Agreement(
        examples=len(x),
        real=check is not None,
        rates=tuple(rate for rate in rates if rate is not None),
        probability=_gap("probability", own.probability, found.probability),
        unknown_score=_gap("unknown-score", own.unknown_score, found.unknown_score),
        distance=None if own.distance is None else _gap("distance", own.distance, found.distance),
        p_value=None if own.p_values is None else _gap("p-value", own.p_values, found.p_values, allow=1.0),
        ties=max(ties),
    )


def _rates(bundle: OpenClassifier) -> Sequence[float | None]:
    """The rate that was calibrated for and one that rejects half: an export must know both."""
    rejector = bundle.rejector
    return (None,) if rejector is None else (None, rejector.false_reject_rate, 0.5)


def _gap(name: str, own: NDArray[Any], found: NDArray[Any] | None, allow: float = ABSOLUTE) -> float:
    """The largest difference, where numbers are the same up to rounding; p-values are steps, and may differ by one."""
    if found is None or own.shape != found.shape:
        raise ExportError(f"the exported graph gives no {name} for every input")
    if not np.array_equal(np.isfinite(own), np.isfinite(found)):
        raise ExportError(
            f"the exported graph does not agree: its {name} is finite where PyTorch's is not, or the other"
        )
    finite = np.isfinite(own)
    gap = np.abs(own[finite] - found[finite])
    allowed = allow + RELATIVE * np.abs(own[finite])
    if (gap > allowed).any():
        worst = int((gap - allowed).argmax())
        raise ExportError(
            f"the exported graph does not agree with PyTorch: {name} {found[finite][worst]:.6g} where it should be "
            f"{own[finite][worst]:.6g}; export with another target, or report it"
        )
    return float(gap.max(initial=0.0))


def _ties(bundle: OpenClassifier, own: Predictions, found: Predictions, rate: float | None) -> int:
    """Inputs that are decided otherwise because rounding moved them across a border; raise for any other reason."""
    # of an input that is nan, no class is the nearest
    differ = (own.labels != found.labels) | ((own.nearest != found.nearest) & ~np.isnan(own.unknown_score))
    close = own.nearest == found.nearest
    close |= np.abs(own.top_probability[:, 0] - own.top_probability[:, 1]) <= ABSOLUTE
    expected = found.nearest
    if bundle.rejector is not None:
        scores = torch.from_numpy(found.unknown_score)
        expected = bundle.rejector.decide(scores, torch.from_numpy(found.nearest), rate).numpy()
    wrong = differ & ~(close & (found.labels == expected))
    if wrong.any():
        raise ExportError(
            f"the exported graph does not agree with PyTorch: {int(wrong.sum())} of {len(own)} decisions differ, the "
            f"first is {found.names[int(wrong.argmax())]!r} and should be {own.names[int(wrong.argmax())]!r}"
        )
    return int(differ.sum())


def made_up(inputs: Inputs, count: int = SAMPLES) -> Tensor:
    """Prepared inputs that nobody took: noise and extremes, the same each time."""
    generator = torch.Generator().manual_seed(0)
    shape = [count, *(12 if size is None else size for size in inputs.shape)]
    if isinstance(inputs, ImageInputs):
        x = torch.randint(256, shape, dtype=torch.uint8, generator=generator)
        x[0], x[1] = 0, 255
        return x
    if isinstance(inputs, TextInputs):
        return torch.randint(1, len(inputs.words) + 2, shape, generator=generator)
    x = torch.randn(shape, generator=generator)
    if len(shape) == 2 and count > 3:  # a sequence ends where nan begins
        x[0], x[1], x[2] = torch.nan, 1e4, -1e4
    return x
