"""The errors a user can cause, and the checks that raise them.

    OpenRadialError
    ├── ShapeError    (ValueError)   a tensor has the wrong shape
    ├── DTypeError    (TypeError)    a tensor has the wrong element type
    ├── TargetError   (IndexError)   a target names a class that does not exist
    ├── OptionError   (ValueError)   a setting is out of its range
    ├── HeadError     (ValueError)   the classifier of a network cannot be found, or a head is not fitted
    ├── DataError     (ValueError)   data are damaged or do not have the expected form
    ├── FetchError    (OSError)      a data set or weights cannot be obtained
    ├── WeightsError  (ValueError)   weights do not fit the network
    ├── TrainingError (RuntimeError) training cannot continue, or not from this checkpoint
    ├── BundleError   (ValueError)   a saved classifier is damaged, changed, or not for this version
    ├── ExportError   (RuntimeError) a classifier cannot be exported, or its export does not agree with it
    └── MissingError  (ImportError)  an optional package is not installed

Each message says what was expected, what came, and the way out.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from numbers import Integral, Real
from os import PathLike
from types import ModuleType
from typing import Any, Literal, get_args

__all__ = ["BundleError", "DTypeError", "DataError", "ExportError", "FetchError", "HeadError", "MissingError"]
__all__ += ["OpenRadialError", "OptionError", "ShapeError", "TargetError", "TrainingError", "WeightsError"]


class OpenRadialError(Exception):
    """Root of all errors that openradial raises on purpose."""

    @property
    def reason(self) -> str:
        """The text for output that names the input itself: without path and row."""
        return str(self)


class ShapeError(OpenRadialError, ValueError):
    """A tensor has the wrong shape."""


class DTypeError(OpenRadialError, TypeError):
    """A tensor has the wrong element type."""


class TargetError(OpenRadialError, IndexError):
    """A target names a class that does not exist."""


class OptionError(OpenRadialError, ValueError):
    """A setting is out of its range."""


class HeadError(OpenRadialError, ValueError):
    """The classifier of a network cannot be found, or a head is not fitted."""


class DataError(OpenRadialError, ValueError):
    """Data are damaged or do not have the expected form.

    ``path``, ``row`` (counted from 1) and ``column`` say where, as far as that is known; ``str(error)`` puts them
    before the message.

    >>> str(DataError("expected a number, got 'x'", path="flowers.csv", row=3, column="length"))
    "flowers.csv, row 3, column 'length': expected a number, got 'x'"
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | PathLike[str] | None = None,
        row: int | None = None,
        column: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.path, self.row, self.column = message, None if path is None else str(path), row, column

    @property
    def reason(self) -> str:
        return self.message if self.column is None else f"column {self.column!r}: {self.message}"

    def __str__(self) -> str:
        row = None if self.row is None else f"row {self.row}"
        column = None if self.column is None else f"column {self.column!r}"
        where = ", ".join(filter(None, (self.path, row, column)))
        return f"{where}: {self.message}" if where else self.message


@contextmanager
def located(path: str | PathLike[str]) -> Iterator[None]:
    """Give a DataError that is raised inside this path, unless it has its own."""
    try:
        yield
    except DataError as error:
        error.path = str(path) if error.path is None else error.path
        raise


class FetchError(OpenRadialError, OSError):
    """A data set or weights cannot be obtained."""


class WeightsError(OpenRadialError, ValueError):
    """Weights do not fit the network."""


class TrainingError(OpenRadialError, RuntimeError):
    """Training cannot continue, or not from this checkpoint."""


class BundleError(OpenRadialError, ValueError):
    """A saved classifier is damaged, changed, or not for this version."""


class ExportError(OpenRadialError, RuntimeError):
    """A classifier cannot be exported, or its export does not agree with it."""


class MissingError(OpenRadialError, ImportError):
    """An optional package is not installed."""


WAYS_OUT = {"beta": "; the paper uses beta=1.0", "scale": "; the paper uses scale=1.0"}


def check_positive(name: str, value: float) -> None:
    """Raise unless ``value`` is a finite number above zero."""
    if not _is_positive(value):
        raise OptionError(f"{name} must be a finite number above 0, got {value!r}{WAYS_OUT.get(name, '')}")


def check_cutoff(value: object) -> None:
    """Raise unless ``value`` is None, ``"disjoint"`` or a radius."""
    if not (value is None or (isinstance(value, str) and value == "disjoint") or _is_positive(value)):
        raise OptionError(f"cutoff must be None, a radius above 0 or 'disjoint', got {value!r}")


def _is_positive(value: Any) -> bool:
    # int and float come first because asking the abstract class takes longer than the rest
    is_number = isinstance(value, (int, float, Real)) and not isinstance(value, bool)
    return is_number and bool(0 < value < math.inf)


def check_count(name: str, value: int, *, least: int = 1, most: int | None = None) -> None:
    """Raise unless ``value`` is a whole number of at least ``least``, and at most ``most``."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise OptionError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if most is not None and value > most:
        raise OptionError(f"{name} must be at most {most:,}, got {value}")


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Raise unless ``value`` is one of ``choices``."""
    choices = tuple(choices)
    if value not in choices:
        raise OptionError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


# Names and checks that openradial.functional and openradial.reference share; the checks take shapes.
MetricName = Literal["euclidean", "squared_euclidean", "manhattan", "chebyshev"]
METRIC_NAMES: tuple[MetricName, ...] = get_args(MetricName)
Shape = tuple[int, ...]


def check_outputs(shape: Shape, dtype: object, is_floating_point: bool) -> None:
    """Raise unless outputs are floating point of shape ``(..., outputs)``."""
    if not is_floating_point:
        raise DTypeError(f"outputs must be floating point, got {dtype}; pass the last affine layer's result as it is")
    if not shape or shape[-1] == 0:
        message = f"outputs must have at least one number per input on their last axis, got shape {shape}"
        raise ShapeError(f"{message}; expected (..., outputs)")


def check_unscaled(scale: float) -> None:
    """Raise unless the ``scale`` beside given prototypes is 1."""
    if scale != 1.0:
        raise OptionError(
            f"scale belongs to the axis prototypes, but prototypes are given: got scale={scale!r}; scale them instead"
        )


def check_label_smoothing(label_smoothing: float) -> None:
    """Raise unless ``label_smoothing`` lies between 0 and 1."""
    if not 0 <= label_smoothing <= 1:
        raise OptionError(f"label_smoothing must lie in 0..1, got {label_smoothing!r}; 0.0 turns it off")


def check_target_weight(target_weight: float, metric: str, has_axes: bool) -> None:
    """Raise unless the factor of the target's axis is positive, and 1 where there is no such axis."""
    check_positive("target_weight", target_weight)
    if target_weight != 1 and not (has_axes and metric == "squared_euclidean"):
        needs = "metric='squared_euclidean' and axis prototypes"
        raise OptionError(f"target_weight={target_weight!r} needs {needs}, got metric={metric!r}; use both or 1.0")


def batch_shape(outputs: Shape) -> Shape:
    """Return the shape of outputs ``(d,)``, ``(n, d)`` or ``(n, d, d1, ...)`` without ``d``: that of class targets."""
    return outputs[:-1] if len(outputs) <= 2 else (outputs[0], *outputs[2:])


def check_targets(
    shape: Shape, outputs: Shape, classes: int, weight: Shape, ignore_index: int, smoothing: float, to_int: str | None
) -> None:
    """Raise unless targets and options of a loss fit outputs of this shape.

    Targets are classes, or distributions if ``to_int`` is given: what converts classes that were stored as floats.
    """
    check_label_smoothing(smoothing)
    if weight != (classes,):
        message = f"weight must hold one factor per class: expected shape ({classes},), got {weight}"
        raise ShapeError(f"{message}; use 1.0 for classes that are not special")
    # shapes are formatted in errors alone: a compiler would take the sizes for constants
    expected, needed, hint = batch_shape(outputs), "targets of shape {}", "classes are on axis 1 of the outputs"
    if to_int is not None:
        expected = (classes,) if len(outputs) == 1 else (outputs[0], classes, *outputs[2:])
        needed, hint = "distributions of shape {} as targets", f"call {to_int} on targets that are classes"
        if ignore_index >= 0:
            message = f"ignore_index names a class, but targets are distributions: got ignore_index={ignore_index}"
            raise OptionError(f"{message}; give examples to ignore a target of zeros, or pass classes")
    if shape != expected:
        raise ShapeError(f"outputs of shape {outputs} need {needed.format(expected)}, got {shape}; {hint}")


def target_error(target: int, classes: int, ignore_index: int) -> TargetError:
    """Return the error for a target that is not a class."""
    return TargetError(
        f"targets must lie in 0..{classes - 1} or be ignore_index={ignore_index}, got {target}; "
        "map your labels to 0..classes-1 or widen the last layer"
    )


def first_line(error: BaseException) -> str:
    """Return the message of an error as one line, a short one if it is not our own."""
    text = (str(error).strip() or type(error).__name__).partition("\n")[0]
    text = f"it has no {text}" if isinstance(error, KeyError) else text
    return text if len(text) <= 200 or isinstance(error, OpenRadialError) else f"{text[:197]}..."


def require(package: str, extra: str, purpose: str) -> ModuleType:
    """Import an optional package, or raise with the command that installs it."""
    try:
        return import_module(package)
    except ImportError as error:
        message = f"{purpose} needs the package {package.partition('.')[0]}, which is not installed"
        raise MissingError(f"{message}; run: pip install 'openradial[{extra}]'") from error


def nearest(name: str, names: Sequence[str]) -> str:
    """Return a hint at the name that was probably meant, or nothing.

    >>> nearest("speces", ["species", "length"])
    "; did you mean 'species'?"
    """
    matches = get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def listed(names: Sequence[str], most: int = 10) -> str:
    """Return the first names, and how many more there are.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
