"""Split known data into parts without a common example: to train, to combine scores, to calibrate, to report."""

import math
from dataclasses import dataclass

from torch import Tensor

from openradial.conformal.calibration import MOST_EXAMPLES, examples_needed
from openradial.data.examples import Examples
from openradial.data.splits import train_test_split
from openradial.errors import DataError, OptionError
from openradial.recipe import MIN_COMBINATION

MOST = 5_000  # examples of a held-out part: a rate of 5 % is then known to about ± 0.6 %
SHARE, ENOUGH = 0.15, 1_500  # of the known data, for each held-out part, up to so many examples (± 1.1 %)
LARGE_SHARE = 0.05  # where that is more: training profits from the rest
LARGEST = 0.4  # share that the calibration may take if it needs more
ALONE = ": the score of the head alone decides, because other scores need more examples"
FOR_THREE, FOR_TWO = 10, 5  # examples per class needed to hold out three parts, or two


@dataclass(frozen=True)
class HeldOut:
    """Indices of examples; ``combination`` or ``report`` is None with too few examples, all parts if none is held out.

    ``notes`` are sentences about what could not be done.
    """

    train: Examples
    combination: Examples | None
    calibration: Examples | None
    report: Examples | None
    notes: tuple[str, ...] = ()


def hold_out(
    known: Examples, rate: float, *, has_test_data: bool = False, seed: int = 0, groups: Tensor | None = None
) -> HeldOut:
    """Split known examples by class, at random.

    Each held-out part gets 15 % of the data up to 1,500 examples, or 5 % up to 5,000; the calibration gets what the
    rate needs. With few examples, the calibration takes priority, then the report, then the combination.
    ``has_test_data`` says that the report has other data. Examples of one of the ``groups``, ``(n,)``, stay together.
    """
    _check(known)
    n, each, needed = len(known), len(known) / len(known.classes), examples_needed(rate)
    least = {"calibration": needed}
    if not has_test_data and each >= FOR_TWO:
        least["report"] = 1
    if each >= FOR_THREE:
        least["combination"] = MIN_COMBINATION
    usual = max(min(ENOUGH, round(SHARE * n)), min(MOST, round(LARGE_SHARE * n)))
    sizes = {name: max(usual, number) for name, number in least.items()}
    while len(sizes) > 1 and sum(sizes.values()) > n / 2:
        sizes.popitem()  # the one with the lowest priority
    if sizes["calibration"] > LARGEST * n:
        most = max(1, int(LARGEST * n))
        raise too_few(rate, most, f"of {n} known examples at most {most} can be held out")
    rest, parts = known, {}
    for name, size in sizes.items():
        rest, parts[name] = _taken(rest, size, needed if name == "calibration" else 1, seed, groups)
    notes = [] if "combination" in sizes else [_few(known) + ALONE]
    if "report" not in sizes and not has_test_data:
        notes.append(f"{_few(known)}: none is left for a report; keep some and run openradial evaluate")
    return HeldOut(rest, parts.get("combination"), parts["calibration"], parts.get("report"), tuple(notes))


def hold_out_nothing(known: Examples) -> HeldOut:
    """Return all examples for training: each of them is scored without its fold later."""
    _check(known)
    notes = [_few(known) + ALONE] if len(known) < MIN_COMBINATION else []
    return HeldOut(known, None, None, None, tuple(notes))


def _taken(rest: Examples, size: int, least: int, seed: int, groups: Tensor | None) -> tuple[Examples, Examples]:
    """Return the rest and a part of about ``size`` and at least ``least`` examples, stratified by class."""
    for wanted in range(size, len(rest)):
        left = None if groups is None else groups[rest.inputs]
        kept, part = train_test_split(rest, wanted / len(rest), seed=seed, groups=left)
        distinct = len(part) if groups is None else len(set(groups[part.inputs].tolist()))
        if distinct >= least:
            return kept, part
    raise DataError(
        f"{least} different examples must be held out for calibration, but most of the {len(rest)} known ones are the "
        "only one of their class, or copies; add examples"
    )


def _check(known: Examples) -> None:
    if len(known.classes) < 2:
        actual = ": ".join([f"{len(known.classes)}", *known.classes])
        raise DataError(f"a classifier needs two known classes or more, got {actual}; add examples of another class")
    empty = [name for name, count in zip(known.classes, known.counts().tolist(), strict=True) if not count]
    if empty:
        raise DataError(f"every known class needs examples, {empty[0]!r} has none; leave it out, or add some")


def too_few(rate: float, most: int, why: str) -> OptionError:
    """Return the error of a rate that ``most`` examples cannot be calibrated for; ``why`` says what there is."""
    needed = examples_needed(rate)
    asked = f"{needed if needed < MOST_EXAMPLES else f'more than {MOST_EXAMPLES:.0e}'} examples to calibrate with"
    way_out = f"use a rate of at least {rounded_up(1 / (most + 1)):g}, or add examples"
    return OptionError(f"a false-reject rate of {rate:g} takes {asked}, and {why}; {way_out}")


def rounded_up(rate: float) -> float:
    """Return the rate rounded up to two digits.

    >>> rounded_up(0.0123)
    0.013
    """
    step = 10.0 ** (math.floor(math.log10(rate)) - 1)
    return float(f"{math.ceil(rate / step - 1e-9) * step:.2g}")


def _few(known: Examples) -> str:
    return f"{len(known)} known examples in {len(known.classes)} classes are few"
