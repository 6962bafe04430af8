"""Which classes are known and which are novel, and which examples are kept for testing."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openradial.data.examples import Examples
from openradial.data.readers.tables import Table
from openradial.errors import DataError, OptionError, check_count, listed, nearest
from openradial.files import write_text

KNOWN, NOVEL, FACTS = "known.txt", "novel.txt", "split.json"
RULES = "random:N, names:A,B,... or file:PATH"
OWN_NUMBERS = 20471  # any number, so that no set is drawn with the same one
Labelled = TypeVar("Labelled", Examples, Table)


@dataclass(frozen=True)
class Split:
    """Known and novel classes, by name. The place of a name in ``known`` is its label.

    ``facts`` say how the split was made (rule, seed) and are written beside the lists.

    >>> Split(known=("cat", "dog"), novel=("owl",)).classes
    ('cat', 'dog', 'owl')
    """

    known: tuple[str, ...]
    novel: tuple[str, ...]
    facts: Mapping[str, object] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", tuple(self.known))
        object.__setattr__(self, "novel", tuple(self.novel))
        if not self.known:
            raise DataError(f"a split needs at least one known class, got none and {len(self.novel)} novel ones")
        both = [name for name in self.known if name in set(self.novel)]
        if both:
            raise DataError(f"a class is either known or novel, got {both[0]!r} in both")
        _check_names(self.classes)

    @property
    def classes(self) -> tuple[str, ...]:
        """All classes, the known ones first."""
        return self.known + self.novel

    def write(self, folder: Path | str) -> None:
        """Write ``known.txt`` and ``novel.txt``, one class per line, and the facts as ``split.json``."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        facts = {**self.facts, "known": len(self.known), "novel": len(self.novel), "lists": _fingerprint(self)}
        write_text(folder / KNOWN, _lines(self.known))
        write_text(folder / NOVEL, _lines(self.novel))
        write_text(folder / FACTS, json.dumps(facts, indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path | str) -> Self:
        """Read what :meth:`write` wrote, or two class lists written by hand."""
        folder = Path(folder)
        facts = _read_facts(folder / FACTS)
        split = cls(read_names(folder / KNOWN), read_names(folder / NOVEL), facts)
        if facts.get("lists", _fingerprint(split)) != _fingerprint(split):
            raise DataError(
                f"{KNOWN} and {NOVEL} in {folder} are not the lists that {FACTS} was written for; "
                f"make the split again, or remove {FACTS} if you changed the lists on purpose"
            )
        return split


def random_split(classes: Iterable[str], known: int, seed: int = 0) -> Split:
    """Draw ``known`` classes at random; the rest is novel.

    The same set of classes and the same seed give the same split, in whatever order the classes come: they are sorted,
    each gets a raw 64-bit number of PCG64, and the ``known`` smallest win. (NumPy promises that the raw numbers of
    PCG64 never change; it does not promise that for ``Generator.permutation``.)

    >>> random_split(["a", "b", "c", "d"], known=2, seed=0).known
    ('c', 'd')
    """
    names = sorted(classes)
    _check_names(names)
    check_count("known", known)
    check_count("seed", seed, least=0)
    if known > len(names):
        raise OptionError(f"known must be at most the number of classes, {len(names)}, got {known}")
    chosen = np.sort(_shuffled(len(names), seed)[:known])
    taken = set(chosen.tolist())
    rest = tuple(name for place, name in enumerate(names) if place not in taken)
    return Split(tuple(names[place] for place in chosen), rest, {"rule": f"random:{known}", "seed": seed})


def random_splits(classes: Iterable[str], known: int, seeds: Iterable[int] = range(5)) -> tuple[Split, ...]:
    """One random split per seed; results are usually reported as their mean over five."""
    names = tuple(classes)
    return tuple(random_split(names, known, seed) for seed in seeds)


def named_split(
    classes: Iterable[str], *, known: Sequence[str] | None = None, novel: Sequence[str] | None = None
) -> Split:
    """Split by naming the known or the novel classes; the rest, in its order, is the other side.

    >>> named_split(["cat", "dog", "owl"], novel=["dog"])
    Split(known=('cat', 'owl'), novel=('dog',), facts={'rule': 'names'})
    """
    if (known is None) == (novel is None):
        raise OptionError("name either the known classes or the novel ones, and the rest is the other side")
    names = tuple(classes)
    _check_names(names)
    given = tuple(known if known is not None else novel or ())
    for name in given:
        if name not in names:
            raise DataError(f"{name!r} is no class of this set{nearest(name, names) or f'; it has {listed(names)}'}")
    rest = tuple(name for name in names if name not in set(given))
    facts = {"rule": "names"}
    return Split(given, rest, facts) if known is not None else Split(rest, given, facts)


def parse_known(rule: str, classes: Sequence[str], *, seed: int = 0) -> Split:
    """Split classes by a rule that names the known ones: ``random:N``, ``names:A,B,...`` or ``file:PATH``.

    >>> parse_known("names:cat,owl", ["cat", "dog", "owl"]).novel
    ('dog',)
    """
    kind, _, value = rule.partition(":")
    if not value.strip() or kind not in ("random", "names", "file"):
        raise OptionError(f"known must be {RULES}, got {rule!r}")
    if kind == "random":
        if not value.strip().isdecimal():
            raise OptionError(f"random: needs a number of classes, as in random:100, got {value!r}")
        return random_split(classes, int(value), seed)
    given = read_names(value) if kind == "file" else [name.strip() for name in value.split(",") if name.strip()]
    return replace(named_split(classes, known=given), facts={"rule": rule})


def divide(examples: Labelled, split: Split) -> tuple[Labelled, Labelled]:
    """The examples of known and of novel classes, each labelled by its place in ``split.known`` or ``split.novel``.

    Examples without a class (label -1) go with the novel ones and stay without.
    """
    _check_covered(examples.classes, split)
    labels = _renumbered(examples, split.known)
    is_known = labels >= 0
    known, novel = examples.select(is_known), examples.select(~is_known)
    return (
        replace(known, labels=labels[is_known], classes=split.known),
        replace(novel, labels=_renumbered(novel, split.novel), classes=split.novel),
    )


def as_unknown(examples: Labelled, classes: tuple[str, ...] = ()) -> Labelled:
    """The same examples with label -1 throughout; ``classes`` are those of the model that shall not know them."""
    return replace(examples, labels=torch.full_like(examples.labels, -1), classes=classes)


def identical_groups(rows: Tensor) -> Tensor:
    groups: Tensor = torch.unique(rows, dim=0, return_inverse=True)[1]
    return groups


def train_test_split(
    examples: Labelled, test: float = 0.2, seed: int = 0, groups: Tensor | None = None
) -> tuple[Labelled, Labelled]:
    """Keep a share of each class for testing; both parts stay in the order of the examples.

    A class with two or more examples has at least one in each part; a class with one has it in the first part.
    """
    if not 0 < test < 1:
        raise OptionError(f"test must be a share between 0 and 1, got {test!r}")
    check_count("seed", seed, least=0)
    labels = examples.labels.cpu().numpy()
    keys = np.empty(len(labels), dtype=np.int64)
    # numbers apart from those of sets that are drawn with the same seed, or the split would follow their values
    keys[_shuffled(len(labels), seed, OWN_NUMBERS)] = np.arange(len(labels))
    order = np.lexsort((keys, labels))  # class by class, at random within each
    _, starts, counts = np.unique(labels[order], return_index=True, return_counts=True)
    wanted = np.clip(np.rint(counts * test), np.minimum(counts - 1, 1), counts - 1).astype(np.int64)
    rank = np.arange(len(labels)) - np.repeat(starts, counts)
    for_test = torch.zeros(len(labels), dtype=torch.bool)
    for_test[torch.from_numpy(order[rank < np.repeat(wanted, counts)])] = True
    for_test = for_test.to(examples.labels.device)
    return examples.select(~for_test), examples.select(for_test)


def read_names(path: Path | str) -> tuple[str, ...]:
    """The names in a text file, one per line; empty lines do not count."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise DataError(f"expected a list of classes, one name per line, at {path}; there is no such file") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} must be text in UTF-8, one class per line ({error}); save it as UTF-8") from error
    return tuple(line.strip() for line in text.split("\n") if line.strip())


def _shuffled(n: int, *seed: int) -> NDArray[np.int64]:
    return np.argsort(np.random.PCG64(seed if len(seed) > 1 else seed[0]).random_raw(n), kind="stable")


def _renumbered(examples: Examples | Table, chosen: Sequence[str]) -> Tensor:
    """Each label as the place of its class in ``chosen``, or -1."""
    place = {name: i for i, name in enumerate(chosen)}
    places = [*(place.get(name, -1) for name in examples.classes), -1]  # label -1 finds the last one
    return torch.tensor(places, device=examples.labels.device)[examples.labels]


def _check_covered(classes: Sequence[str], split: Split) -> None:
    left = [name for name in classes if name not in set(split.classes)]
    if left:
        raise DataError(
            f"a split must name every class of the examples: {listed(left)} neither known nor novel; "
            f"make the split from these classes{nearest(left[0], split.classes)}"
        )
    extra = [name for name in split.classes if name not in set(classes)]
    if extra:
        raise DataError(
            f"a split must name only classes of the examples: they have no {listed(extra)}; "
            f"make the split from these classes{nearest(extra[0], classes)}"
        )


def _check_names(names: Sequence[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise DataError(f"a split names each class once, got {name!r} {count} times")
        # each name must survive a text file with one name per line
        if name != name.strip() or not name or any(c in "\r\n" or "\ud800" <= c <= "\udfff" for c in name):
            raise DataError(
                f"a class name must be one line of text without blanks around it, got {name!r}; rename the class"
            )


def _lines(names: Sequence[str]) -> str:
    return "".join(f"{name}\n" for name in names)


def _fingerprint(split: Split) -> str:
    text = f"{_lines(split.known)}\n{_lines(split.novel)}"
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _read_facts(path: Path) -> dict[str, object]:
    if not path.exists():
        return {}
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} must hold JSON ({error}); make the split again") from error
    if not isinstance(facts, dict):
        raise DataError(f"{path} must hold a JSON object, got {type(facts).__name__}; make the split again")
    return facts
