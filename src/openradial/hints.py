"""Names in messages: the nearest one, and lists that stay short."""

from collections.abc import Sequence
from difflib import get_close_matches


def nearest(name: str, names: Sequence[str]) -> str:
    """A hint at the name that was probably meant, or nothing.

    >>> nearest("speces", ["species", "length"])
    "; did you mean 'species'?"
    """
    found = get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {found[0]!r}?" if found else ""


def listed(names: Sequence[str], most: int = 10) -> str:
    """The first names, and how many more there are.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
