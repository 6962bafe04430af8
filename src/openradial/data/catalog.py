"""Every data set by name: what it is, and how to load it."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Literal

from openradial.data.download import Source
from openradial.data.examples import Examples
from openradial.errors import OptionError, nearest

Kind = Literal["images", "table", "points", "sequences", "texts"]


@dataclass(frozen=True)
class CatalogEntry:
    """A data set in the catalogue. Its module, named like its function, is imported when it is needed."""

    name: str
    kind: Kind
    classes: str
    examples: str  # train / test

    def source(self) -> Source | None:
        """Return where its files come from; None for data sets without files."""
        return getattr(self._module(), "SOURCE", None)

    def load(self, split: str = "train", **options: Any) -> Examples:
        """Load the examples of a split; options are those of the function that loads the data set."""
        function: Callable[..., Examples] = getattr(self._module(), self.name.replace("-", "_"))
        return function(split=split, **options)

    def _module(self) -> ModuleType:
        return import_module(f"openradial.data.sets.{self.name.replace('-', '_')}")


ENTRIES = {
    entry.name: entry
    for entry in (
        CatalogEntry("spiral", "points", "any", "any"),
        CatalogEntry("digits", "images", "10", "1,442 / 355"),
        CatalogEntry("mnist", "images", "10", "60,000 / 10,000"),
        CatalogEntry("fashion-mnist", "images", "10", "60,000 / 10,000"),
        CatalogEntry("quickdraw", "images", "345", "27,600 / 6,900"),
        CatalogEntry("cifar10", "images", "10", "50,000 / 10,000"),
    )
}


def names() -> list[str]:
    """Return the names of all sets that can be loaded."""
    return list(ENTRIES)


def entry(name: str) -> CatalogEntry:
    """Return the catalogue's entry of a name; case and underscores are ignored."""
    wanted = name.lower().replace("_", "-")
    if wanted not in ENTRIES:
        hint = nearest(wanted, list(ENTRIES)) or f"; the sets are: {', '.join(ENTRIES)}"
        raise OptionError(f"there is no data set {name!r}{hint}")
    return ENTRIES[wanted]


def load(name: str, split: str = "train", **options: Any) -> Examples:
    """Load a set by name; options are those of the function that loads it.

    >>> load("spiral", n=300).inputs.shape
    torch.Size([300, 2])
    """
    return entry(name).load(split, **options)
