"""Every data set by name: what it is, and how to load it."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from openradial.data.download import Source
from openradial.data.examples import Examples
from openradial.errors import OptionError, nearest

Kind = Literal["points", "images", "sequences", "texts"]


@dataclass(frozen=True)
class Entry:
    """A set in the catalogue. Its module is imported when it is needed."""

    name: str
    kind: Kind
    classes: str
    examples: str  # train / test
    where: str  # module:function
    fetched: bool = True

    def source(self) -> Source | None:
        """Where its files come from; None for sets that need none."""
        source: Source | None = self._module().SOURCE if self.fetched else None
        return source

    def load(self, split: str = "train", **options: Any) -> Examples:
        """The examples of a split; options are those of the set's own function."""
        function: Callable[..., Examples] = getattr(self._module(), self.where.partition(":")[2])
        return function(split=split, **options)

    def _module(self) -> Any:
        return import_module(f"openradial.data.sets.{self.where.partition(':')[0]}")


ENTRIES = {
    entry.name: entry
    for entry in (
        Entry("spiral", "points", "any", "any", "spiral:spiral", fetched=False),
        Entry("digits", "images", "10", "1,442 / 355", "digits:digits", fetched=False),
        Entry("mnist", "images", "10", "60,000 / 10,000", "mnist:mnist"),
        Entry("fashion-mnist", "images", "10", "60,000 / 10,000", "fashion_mnist:fashion_mnist"),
        Entry("quickdraw", "images", "345", "27,600 / 6,900", "quickdraw:quickdraw"),
        Entry("cifar10", "images", "10", "50,000 / 10,000", "cifar10:cifar10"),
        Entry("reuters", "texts", "15", "5,548 / 2,321", "reuters:reuters"),
        Entry("japanese-vowels", "sequences", "9", "270 / 370", "japanese_vowels:japanese_vowels"),
        Entry("ucr", "sequences", "2 to 50", "51 sets", "ucr:ucr"),
    )
}


def names() -> list[str]:
    """The names of all sets that can be loaded."""
    return list(ENTRIES)


def entry(name: str) -> Entry:
    """The catalogue's entry of a name; underscores and capital letters are forgiven."""
    wanted = name.lower().replace("_", "-")
    if wanted not in ENTRIES:
        hint = nearest(wanted, list(ENTRIES)) or f"; the sets are: {', '.join(ENTRIES)}"
        raise OptionError(f"there is no data set {name!r}{hint}")
    return ENTRIES[wanted]


def load(name: str, split: str = "train", **options: Any) -> Examples:
    """Load a set by name; ``"ucr:Crop"`` is the set Crop of the UCR archive.

    >>> load("spiral", n=300).inputs.shape
    torch.Size([300, 2])
    """
    name, _, part = name.partition(":")
    if part:
        options["name"] = part
    found = entry(name)
    if found.name == "ucr" and "name" not in options:
        raise OptionError("ucr is an archive of many sets; name one, such as 'ucr:Crop'")
    return found.load(split, **options)
