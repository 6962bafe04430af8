"""The mistakes that one should look at, the most telling first."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from openradial.data.sources import RawInput
from openradial.evaluation.measuring import Answered, Evaluation

Mask = NDArray[np.bool_]


class Mistake(NamedTuple):
    """An input, what it is, what was said, and the p-value: how compatible it is with known data."""

    row: RawInput
    true: str
    said: str
    p: float


def accepted_novel(evaluation: Evaluation) -> list[Mistake]:
    """Novel inputs that got a class, the least unknown first."""
    found = [(score, mistake) for part in evaluation.novel for score, mistake in _mistakes(part, part.said.labels >= 0)]
    return [mistake for _, mistake in sorted(found, key=lambda pair: pair[0])]


def wrong_known(evaluation: Evaluation) -> list[Mistake]:
    """Known inputs that got a wrong class, the least unknown first."""
    known = evaluation.known
    found = _mistakes(known, (known.said.labels >= 0) & ~known.correct)
    return [mistake for _, mistake in sorted(found, key=lambda pair: pair[0])]


def rejected_known(evaluation: Evaluation) -> list[Mistake]:
    """Known inputs that were called unknown, the most unknown first."""
    known = evaluation.known
    found = _mistakes(known, known.said.labels < 0)
    return [mistake for _, mistake in sorted(found, key=lambda pair: -pair[0])]


def _mistakes(part: Answered, which: Mask) -> list[tuple[float, Mistake]]:
    """Each with its unknown-score."""
    assert part.said.p_values is not None
    names, scores, p = part.said.names, part.scores, part.said.p_values
    return [
        (float(scores[i]), Mistake(part.rows[i], part.truths[i], names[i], float(p[i])))
        for i in np.flatnonzero(which).tolist()
    ]
