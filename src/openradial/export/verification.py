"""Verify an exported graph against its bundle: numbers may differ by rounding, decisions must be equal."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openradial.classifier import OpenClassifier, Predictions
from openradial.data.inputs import ImageInputs, Inputs, TableInputs, TextInputs, TokenInputs
from openradial.errors import ExportError

RELATIVE, ABSOLUTE = 1e-3, 1e-4  # tolerances for another order of rounding
SAMPLES = 64


@dataclass(frozen=True)
class Agreement:
    """The largest differences between an exported graph and PyTorch on the same inputs, at every tested rate.

    ``ties`` counts inputs whose decision or nearest class differs because rounding moved them across a threshold; any
    other difference in a decision is an error.
    """

    examples: int
    real: bool  # whether the inputs were given by the user, or random
    rates: tuple[float, ...]
    probability: float  # largest differences
    unknown_score: float
    distance: float | None
    p_value: float | None
    ties: int

    def __str__(self) -> str:
        names = ("probability", "unknown_score", "distance", "p_value")
        differences = {name.replace("p_", "p-").replace("_", " "): getattr(self, name) for name in names}
        worst = ", ".join(f"{name} {value:.2g}" for name, value in differences.items() if value is not None)
        same = "all decisions equal" if not self.ties else f"all decisions equal but {self.ties} within rounding"
        return f"{self.examples:,} {'given' if self.real else 'random'} inputs: {same}; largest differences: {worst}"


def compare(
    bundle: OpenClassifier, predict: Callable[[Tensor, float | None], Predictions], check: Any = None
) -> Agreement:
    """Compare an exported graph with its bundle; raise if they differ.

    ``check`` are raw or prepared inputs, by default random ones.
    """
    x = random_inputs(bundle.preprocessing) if check is None else bundle.preprocessing.ready(check)
    if not len(x):
        raise ExportError("an export is checked on at least one input, got none; give some, or leave check out")
    rejector = bundle.rejector
    rates = (None,) if rejector is None else (None, rejector.false_reject_rate, 0.5)
    pairs = [(bundle.predict(x, rate), predict(x, rate)) for rate in rates]
    ties = [_ties(bundle, *pair, rate) for pair, rate in zip(pairs, rates, strict=True)]
    ours, exported = pairs[0]
    return Agreement(
        examples=len(x),
        real=check is not None,
        rates=tuple(rate for rate in rates if rate is not None),
        probability=_difference("probability", ours.probability, exported.probability),
        unknown_score=_difference("unknown score", ours.unknown_score, exported.unknown_score),
        distance=None if ours.distance is None else _difference("distance", ours.distance, exported.distance),
        # a p-value is a step function of the score, so rounding may change it by a step
        p_value=None if ours.p_values is None else _difference("p-value", ours.p_values, exported.p_values, absolute=1),
        ties=max(ties),
    )


def _difference(name: str, ours: NDArray[Any], exported: NDArray[Any] | None, absolute: float = ABSOLUTE) -> float:
    """Return the largest difference; raise if it is more than rounding."""
    if exported is None or ours.shape != exported.shape:
        raise ExportError(f"the exported graph does not return a {name} for every input")
    finite = np.isfinite(ours)
    if not np.array_equal(finite, np.isfinite(exported)):
        raise ExportError(f"the exported graph disagrees with PyTorch on which inputs have a finite {name}")
    difference = np.abs(ours[finite] - exported[finite])
    excess = difference - (absolute + RELATIVE * np.abs(ours[finite]))
    if (excess > 0).any():
        worst = int(excess.argmax())
        raise ExportError(
            f"the exported graph disagrees with PyTorch: {name} {exported[finite][worst]:.6g}, expected "
            f"{ours[finite][worst]:.6g}; export to another format, or report it"
        )
    return float(difference.max(initial=0.0))


def _ties(bundle: OpenClassifier, ours: Predictions, exported: Predictions, rate: float | None) -> int:
    """Count decisions that differ because rounding moved an input across a threshold; raise if others differ."""
    # an input with a NaN score has no nearest class
    differ = (ours.labels != exported.labels) | ((ours.nearest != exported.nearest) & ~np.isnan(ours.unknown_score))
    close = ours.nearest == exported.nearest
    close |= np.abs(ours.top_probability[:, 0] - ours.top_probability[:, 1]) <= ABSOLUTE
    expected = exported.nearest
    if bundle.rejector is not None:
        scores = torch.from_numpy(exported.unknown_score)
        expected = bundle.rejector.decide(scores, torch.from_numpy(exported.nearest), rate).numpy()
    wrong = differ & ~(close & (exported.labels == expected))
    if wrong.any():
        first = int(wrong.argmax())
        raise ExportError(
            f"the exported graph disagrees with PyTorch: {int(wrong.sum())} of {len(ours)} decisions differ, the first "
            f"is {exported.names[first]!r}, expected {ours.names[first]!r}"
        )
    return int(differ.sum())


def random_inputs(inputs: Inputs, count: int = SAMPLES) -> Tensor:
    """Return prepared inputs of noise and extreme values, the same at every call."""
    generator, (texts, columns) = torch.Generator().manual_seed(0), text_inputs(inputs)
    shape = [count, *(12 if size is None else size for size in inputs.shape)]
    if isinstance(inputs, ImageInputs):
        x = torch.randint(256, shape, dtype=torch.uint8, generator=generator)
        x[0], x[1] = 0, 255
        return x
    x = torch.randn([count, columns] if texts else shape, generator=generator)
    if len(shape) == 2 and count > 3:  # not for sequences, which end at the first NaN
        x[0], x[1], x[2] = torch.nan, 1e4, -1e4
    if texts is None:
        return x
    return torch.cat([x, torch.randint(1, texts.num_tokens, (count, 12), generator=generator)], 1).to(inputs.dtype)


def text_inputs(inputs: Inputs) -> tuple[TextInputs | TokenInputs | None, int]:
    """Return how texts become tokens, None if there are none, and how many numbers stand before the tokens."""
    if isinstance(inputs, TableInputs) and inputs.tokens is not None:
        return inputs.tokens, len(inputs.encoder.inputs)
    return inputs if isinstance(inputs, TextInputs | TokenInputs) else None, 0
