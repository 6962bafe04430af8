"""All experiments by id; each is loaded when it is asked for."""

from collections.abc import Sequence
from importlib import import_module

from openradial.errors import OptionError, nearest
from paper.experiment import Experiment

# In the paper's order, which is that of the report.
IDS = (
    "fig1",
    "fig2",
    "fig3",
    "fig4",
    "fig5",
    "fig6",
    "tab1",
    "fig7",
    "fig8",
    "sup1",
    "sup2",
    "sup3",
    "sup4",
    "err",
    "rnn",
    "attack",
)


def find(id: str) -> Experiment:
    """The experiment with an id.

    >>> find("fig3").claims
    (2,)
    """
    if id not in IDS:
        hint = nearest(id, IDS) or f"; there are: all, {', '.join(IDS)}"
        raise OptionError(f"there is no experiment {id!r}{hint}")
    experiment: Experiment = import_module(f"paper.{id}").EXPERIMENT
    return experiment


def chosen(ids: Sequence[str]) -> list[Experiment]:
    """Experiments by id, each once, in the paper's order; ``all`` is every one."""
    asked = set(IDS) if "all" in ids else set()
    asked |= {find(id).id for id in ids if id != "all"}
    return [find(id) for id in IDS if id in asked]
