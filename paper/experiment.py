"""One figure or table of the paper."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paper.plan import Numbers, Plan, Size

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Experiment:
    """What is computed, and how it is drawn.

    Args:
        id: the paper's figure or table, and the name of the result's files.
        title: what it is, for the list and above the figure.
        caption: two sentences of what to see.
        settings: a dataclass per size, written beside the numbers.
        run: a plan to plain numbers that JSON can hold.
        draw: these numbers, as JSON gives them back, to a figure; nothing else.
        claims: numbers of the claims that it serves.
        minutes: about how long the full size takes on one core, without what another one makes too; of several at a
            time the longest begin first.
    """

    id: str
    title: str
    caption: str
    settings: Mapping[Size, Any]
    run: Callable[[Plan], Numbers]
    draw: Callable[[Numbers], "Figure"]
    claims: tuple[int, ...] = ()
    minutes: float = 1.0
