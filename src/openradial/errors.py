"""The errors a user can cause, and the checks that raise them.

    OpenRadialError
    ├── ShapeError   (ValueError)   a tensor has the wrong shape
    ├── DTypeError   (TypeError)    a tensor has the wrong element type
    ├── TargetError  (IndexError)   a target names a class that does not exist
    ├── OptionError  (ValueError)   a setting is out of its range
    └── HeadError    (ValueError)   the classifier of a network cannot be found

Each message says what was expected, what came, and the way out.
"""

import math
from collections.abc import Iterable

__all__ = ["DTypeError", "HeadError", "OpenRadialError", "OptionError", "ShapeError", "TargetError"]


class OpenRadialError(Exception):
    """Root of all errors that openradial raises on purpose."""


class ShapeError(OpenRadialError, ValueError):
    """A tensor has the wrong shape."""


class DTypeError(OpenRadialError, TypeError):
    """A tensor has the wrong element type."""


class TargetError(OpenRadialError, IndexError):
    """A target names a class that does not exist."""


class OptionError(OpenRadialError, ValueError):
    """A setting is out of its range."""


class HeadError(OpenRadialError, ValueError):
    """The classifier of a network cannot be found."""


def check_positive(name: str, value: float) -> None:
    """Raise unless ``value`` is a finite number above zero."""
    if not (isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf):
        raise OptionError(f"{name} must be a finite number above 0, got {value!r}; the paper uses {name}=1.0")


def check_count(name: str, value: int, *, least: int = 1) -> None:
    """Raise unless ``value`` is a whole number of at least ``least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise OptionError(f"{name} must be a whole number of at least {least}, got {value!r}")


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Raise unless ``value`` is one of ``choices``."""
    choices = tuple(choices)
    if value not in choices:
        raise OptionError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
