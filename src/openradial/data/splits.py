"""Split classes into known and novel ones, and examples into parts for training and testing."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openradial.data.examples import Examples
from openradial.data.readers.columns import Numbers
from openradial.data.readers.folder import ImageFolder
from openradial.data.readers.tables import Table
from openradial.errors import DataError, OptionError, check_count, listed, nearest
from openradial.files import check_regular, expecting

SPLIT_STREAM = 20471  # any number, so that no data set is drawn from the same random stream
Ints = NDArray[np.int64]
AnyExamples = TypeVar("AnyExamples", Examples, Table)


@dataclass(frozen=True)
class Split:
    """Known and novel classes, by name. The index of a name in ``known`` is its label.

    >>> Split(known=("cat", "dog"), novel=("owl",)).classes
    ('cat', 'dog', 'owl')
    """

    known: tuple[str, ...]
    novel: tuple[str, ...]

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
    drawn = set(_shuffled(len(names), seed)[:known].tolist())
    rest = tuple(name for i, name in enumerate(names) if i not in drawn)
    return Split(tuple(names[i] for i in sorted(drawn)), rest)


def named_split(
    classes: Iterable[str], *, known: Sequence[str] | None = None, novel: Sequence[str] | None = None
) -> Split:
    """Split by naming the known or the novel classes; the rest, in its order, is the other side.

    >>> named_split(["cat", "dog", "owl"], novel=["dog"])
    Split(known=('cat', 'owl'), novel=('dog',))
    """
    if (known is None) == (novel is None):
        raise OptionError("name either the known classes or the novel ones, and the rest is the other side")
    names = tuple(classes)
    _check_names(names)
    option, given = ("novel", tuple(novel or ())) if known is None else ("known", tuple(known))
    for name in given:
        if name not in names:
            hint = nearest(name, names) or f"; the classes are {listed(names)}"
            raise OptionError(f"{option} must name classes of the data, and there is no class {name!r}{hint}")
    rest = tuple(name for name in names if name not in set(given))
    return Split(given, rest) if known is not None else Split(rest, given)


def parse_known(rule: str, classes: Sequence[str], *, seed: int = 0) -> Split:
    """Split classes by a rule that names the known ones: ``random:N``, ``names:A,B,...`` or ``file:PATH``.

    >>> parse_known("names:cat,owl", ["cat", "dog", "owl"]).novel
    ('dog',)
    """
    kind, _, value = rule.partition(":")
    if not value.strip() or kind not in ("random", "names", "file"):
        raise OptionError(f"known must be random:N, names:A,B,... or file:PATH, got {rule!r}")
    if kind == "random":
        if not value.strip().isdecimal():
            raise OptionError(f"random: needs a number of classes, as in random:100, got {value!r}")
        return random_split(classes, int(value), seed)
    given = read_names(value) if kind == "file" else [name.strip() for name in value.split(",") if name.strip()]
    return named_split(classes, known=given)


def divide(examples: AnyExamples, split: Split) -> tuple[AnyExamples, AnyExamples]:
    """Return the examples of known and of novel classes, labelled by index in ``split.known`` or ``split.novel``.

    Examples without a class (label -1) go with the novel ones and stay without.
    """
    left = [name for name in examples.classes if name not in set(split.classes)]
    extra = [name for name in split.classes if name not in set(examples.classes)]
    if left or extra:
        problem = f"every class of the examples: {listed(left)} neither known nor novel"
        problem = problem if left else f"only classes of the examples: they have no {listed(extra)}"
        hint = nearest(left[0], split.classes) if left else nearest(extra[0], examples.classes)
        raise DataError(f"a split must name {problem}; make the split from these classes{hint}")
    is_known = renumbered(examples, split.known) >= 0
    known, novel = examples.select(is_known), examples.select(~is_known)
    return (
        replace(known, labels=renumbered(known, split.known), classes=split.known),
        replace(novel, labels=renumbered(novel, split.novel), classes=split.novel),
    )


def identical_groups(data: Tensor | Examples | Table | ImageFolder) -> Tensor:
    """Return for each example the index of the first one with the same input, ``(n,)`` int64; labels do not matter.

    Inputs are compared by a hash of their content: of tensors, of the values of a table, or of the bytes of image
    files. Identical inputs must stay in one part of a split: a copy in two parts makes measured rates too good.

    >>> identical_groups(torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]))
    tensor([0, 1, 0])
    """
    if isinstance(data, ImageFolder):
        return torch.from_numpy(_identical_files(data.paths))
    if isinstance(data, Table):
        columns = data.columns.values()
        bits = (_bits(each.values).view(np.int64) if isinstance(each, Numbers) else each.codes for each in columns)
        return torch.from_numpy(_identical_rows(np.stack(list(bits), axis=1)))
    rows = data.inputs if isinstance(data, Examples) else data
    return torch.from_numpy(_identical_rows(_bits(rows.numpy(force=True))))


def count_duplicates(groups: Tensor) -> int:
    """Return how many examples are not the first of their group.

    >>> count_duplicates(torch.tensor([0, 1, 0, 0]))
    2
    """
    return len(groups) - len(torch.unique(groups))


def train_test_split(
    examples: AnyExamples, test: float = 0.2, seed: int = 0, groups: NDArray[np.integer] | Tensor | None = None
) -> tuple[AnyExamples, AnyExamples]:
    """Hold out a share of each class for testing; both parts keep the order of the examples.

    A class with two or more examples has at least one in each part; a class with one has it in the first part.
    ``groups`` are one integer per example, such as :func:`identical_groups` returns. Examples of a group stay in one
    part; the shares ``test`` of the classes are then met as closely as the groups allow.
    """
    if not 0 < test < 1:
        raise OptionError(f"test must be a share between 0 and 1, got {test!r}")
    check_count("seed", seed, least=0)
    labels = examples.labels.cpu().numpy()
    keys = np.empty(len(labels), dtype=np.int64)
    # a random stream apart from that of data sets drawn with the same seed, or the split would follow their values
    keys[_shuffled(len(labels), (seed, SPLIT_STREAM))] = np.arange(len(labels))
    _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    wanted = np.clip(np.rint(counts * test), np.minimum(counts - 1, 1), counts - 1).astype(np.int64)
    groups = torch.arange(len(labels)) if groups is None else groups
    given = groups.numpy(force=True) if isinstance(groups, Tensor) else np.asarray(groups)
    if given.shape != labels.shape or given.dtype.kind not in "iu":
        wanted_groups = f"{len(labels)} integers, one per example"
        raise OptionError(f"groups must be {wanted_groups}, got {given.dtype} of shape {given.shape}")
    members = np.unique(given, return_inverse=True)[1]
    if members.max(initial=-1) + 1 == len(labels):  # no two examples belong together
        order = np.lexsort((keys, codes))  # class by class, at random within each
        rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
        held_out = np.zeros(len(labels), dtype=bool)
        held_out[order[rank < np.repeat(wanted, counts)]] = True
    else:
        held_out = _groups_for_test(members, codes, keys, wanted, counts)[members]
    for_test = torch.from_numpy(held_out).to(examples.labels.device)
    return examples.select(~for_test), examples.select(for_test)


def _groups_for_test(members: Ints, codes: Ints, keys: Ints, wanted: Ints, counts: Ints) -> NDArray[np.bool_]:
    """Return which groups are held out, ``(g,)``: in random order, those that bring classes nearer to ``wanted``."""
    num_groups = int(members.max()) + 1
    first = np.full(num_groups, len(keys))
    np.minimum.at(first, members, keys)  # the key of a group is its members' smallest
    pairs, sizes = np.unique(members * len(counts) + codes, return_counts=True)
    pair_groups, pair_codes, pair_sizes = pairs // len(counts), (pairs % len(counts)).tolist(), sizes.tolist()
    bounds = np.searchsorted(pair_groups, np.arange(num_groups + 1)).tolist()  # group g has the pairs bounds[g:g+2]
    lacking, left = wanted.tolist(), counts.tolist()  # for the test part, and in the training part
    held_out, order = np.zeros(num_groups, dtype=bool), np.argsort(first).tolist()

    def take(group: int, *, always: bool) -> None:
        """Hold out a group, if each of its classes keeps an example to train on and the shares do not suffer."""
        members, change = range(bounds[group], bounds[group + 1]), 0
        for pair in members:
            code, size = pair_codes[pair], pair_sizes[pair]
            if left[code] <= size:
                return
            change += abs(lacking[code] - size) - abs(lacking[code])
        if change <= 0 or always:
            held_out[group] = True
            for pair in members:
                lacking[pair_codes[pair]] -= pair_sizes[pair]
                left[pair_codes[pair]] -= pair_sizes[pair]

    for group in order:
        take(group, always=False)
    for code in np.flatnonzero(wanted).tolist():  # a class whose groups are all too large gives its smallest
        rest = pair_groups[np.asarray(pair_codes) == code] if lacking[code] == wanted[code] else ()
        for group in sorted(rest, key=lambda group: (sum(pair_sizes[bounds[group] : bounds[group + 1]]), first[group])):
            if lacking[code] == wanted[code]:
                take(int(group), always=True)
    return held_out


def _bits(values: NDArray[Any]) -> NDArray[Any]:
    """Return the array with one representation for zero and one for NaN, so that equal values have equal bytes."""
    if values.dtype.kind != "f":
        return values
    plain: NDArray[Any] = values + values.dtype.type(0)  # -0.0 becomes 0.0
    plain[np.isnan(plain)] = np.nan
    return plain


def _identical_rows(rows: NDArray[Any]) -> Ints:
    content = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
    width, seen = len(content) // max(1, len(rows)), dict[bytes, int]()
    parts = (content[i * width : (i + 1) * width] for i in range(len(rows)))
    first = (seen.setdefault(hashlib.blake2b(part, digest_size=16).digest(), i) for i, part in enumerate(parts))
    return np.fromiter(first, dtype=np.int64, count=len(rows))


def _identical_files(paths: list[str]) -> Ints:
    sizes = [os.path.getsize(path) if os.path.exists(path) else -1 for path in paths]
    counts, groups, seen = Counter(sizes), np.arange(len(paths)), dict[bytes, int]()
    for i, path in enumerate(paths):
        if counts[sizes[i]] > 1:  # only files of one size can be equal
            with suppress(OSError), open(path, "rb") as file:  # whoever decodes the file names the error
                groups[i] = seen.setdefault(hashlib.file_digest(file, "blake2b").digest(), i)
    return groups


def join_groups(first: Tensor, second: Tensor) -> Tensor:
    """Return groups, ``(n,)``, in which examples are together that share a group of either kind, also in a chain.

    >>> join_groups(torch.tensor([0, 0, 1, 2, 3]), torch.tensor([0, 1, 1, 2, 3])).tolist()
    [0, 0, 0, 1, 2]
    """
    joined = np.arange(len(first))
    while True:
        before = joined
        for groups in (first, second):
            codes = np.unique(groups.numpy(), return_inverse=True)[1]
            smallest = np.full(codes.max(initial=-1) + 1, len(first))
            np.minimum.at(smallest, codes, joined)
            joined = smallest[codes]
        if np.array_equal(joined, before):
            return torch.from_numpy(np.unique(joined, return_inverse=True)[1].astype(np.int64))


def read_names(path: Path | str) -> tuple[str, ...]:
    """Return the names in a text file, one per line; empty lines are skipped."""
    with expecting("one class per line in UTF-8", path, "save it as UTF-8"):
        text = check_regular(Path(path)).read_text(encoding="utf-8-sig")
    return tuple(line.strip() for line in text.split("\n") if line.strip())


def _shuffled(n: int, seed: int | tuple[int, int]) -> Ints:
    return np.argsort(np.random.PCG64(seed).random_raw(n), kind="stable")


def renumbered(examples: Examples | Table | ImageFolder, names: Sequence[str]) -> Tensor:
    """Return each label as the index of its class in ``names``, or -1."""
    index = {name: i for i, name in enumerate(names)}
    indices = [*(index.get(name, -1) for name in examples.classes), -1]  # label -1 selects the last one
    return torch.tensor(indices, device=examples.labels.device)[examples.labels]


def _check_names(names: Sequence[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise DataError(f"a split names each class once, got {name!r} {count} times")
        # each name must survive a text file with one name per line
        if name != name.strip() or not name or any(c in "\r\n" or "\ud800" <= c <= "\udfff" for c in name):
            wanted = "one line of text without blanks around it"
            raise DataError(f"a class name must be {wanted}, got {name!r}; rename the class")
