"""One claim of the paper, and the rule that decides about it."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from paper.plan import Results

Verdict = Literal["reproduced", "partly", "not reproduced"]
Measures = dict[str, list[float]]  # by name, one number per seed


@dataclass(frozen=True)
class Claim:
    """A claim with its rule, which was fixed before the numbers were computed.

    Args:
        number: as in the report.
        text: what the paper says, in our words.
        paper: the paper's numbers, or that it has none.
        rule: in words, what :attr:`verdict` does.
        experiments: ids of those whose numbers it needs.
        measure: the numbers of these experiments, by id, to named measures with one number per seed.
        verdict: measures to a verdict.
        first: number of measures that the table itself shows.
    """

    number: int
    text: str
    paper: str
    rule: str
    experiments: tuple[str, ...]
    measure: Callable[[Mapping[str, Results]], Measures]
    verdict: Callable[[Mapping[str, Sequence[float]]], Verdict]
    first: int = 4


def error_of(values: Sequence[float]) -> float | None:
    """Return the paper's error: twice the corrected sample standard deviation; None for a single run.

    >>> error_of([1.0, 2.0, 3.0])
    2.0
    """
    return 2 * statistics.stdev(values) if len(values) > 1 else None


def clearly_above(more: Sequence[float], less: Sequence[float]) -> bool:
    """Return whether means are further apart than the larger error; never with a single run, which has no error.

    >>> clearly_above([0.9, 0.91], [0.5, 0.52]), clearly_above([0.9], [0.5])
    (True, False)
    """
    errors = [error for error in (error_of(more), error_of(less)) if error is not None]
    return len(errors) == 2 and statistics.fmean(more) - statistics.fmean(less) > max(errors)


def shown(values: Sequence[float]) -> str:
    """Return mean and error, as text.

    >>> shown([0.9, 0.91]), shown([0.5])
    ('0.905 ± 0.014', '0.500')
    """
    error = error_of(values)
    mean = f"{statistics.fmean(values):.3f}"
    return mean if error is None else f"{mean} ± {error:.3f}"
