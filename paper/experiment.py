"""One figure or table of the paper, and all of them by id."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

from openradial.errors import OptionError
from paper.plan import Plan, Results, Size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# in the paper's order, which is that of the report
# fmt: off
IDS = (
    "fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "tab1", "fig7", "fig8",
    "sup1", "sup2", "sup3", "sup4", "err", "rnn", "imbalance", "attack",
)
# fmt: on


@dataclass(frozen=True)
class Experiment:
    """What to compute, and how to draw it.

    Args:
        id: the paper's figure or table; also the name of the result files.
        title: for the list, and above the figure.
        caption: what to see in the figure.
        settings: a dataclass per size, written beside the numbers.
        run: maps a plan to plain numbers that JSON can hold.
        draw: maps these numbers, as JSON returns them, to a figure; it has no other input.
        claims: numbers of the claims that it serves.
        minutes: approximate duration at full size on one core, without parts shared with other experiments; in
            parallel runs the longest experiments start first.
    """

    id: str
    title: str
    caption: str
    settings: Mapping[Size, Any]
    run: Callable[[Plan], Results]
    draw: Callable[[Results], "Figure"]
    claims: tuple[int, ...] = ()
    minutes: float = 1.0


def find(id: str) -> Experiment:
    """Import and return the experiment with an id.

    >>> find("fig3").claims
    (2,)
    """
    if id not in IDS:
        near = get_close_matches(id, IDS, 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; the ids are: all, {', '.join(IDS)}"
        raise OptionError(f"there is no experiment {id!r}{hint}")
    experiment: Experiment = import_module(f"paper.{id}").EXPERIMENT
    return experiment


def select(ids: Sequence[str]) -> list[Experiment]:
    """Return experiments by id, each once, in the paper's order; ``all`` selects every one."""
    wanted = set(IDS) if "all" in ids else set()
    wanted |= {find(id).id for id in ids if id != "all"}
    return [find(id) for id in IDS if id in wanted]
