"""Settings of a training run, checked when they are made."""

import dataclasses
import math
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from openradial.errors import OptionError, nearest

OptimiserName = Literal["adam", "adamw", "rmsprop", "sgd"]
ScheduleName = Literal["constant", "linear", "cosine", "step"]
Precision = Literal["float32", "bfloat16", "float16", "float64"]


@dataclass(frozen=True)
class Settings:
    """Settings of one training run. ``batch_size`` counts the examples of all processes together."""

    epochs: int = 10
    batch_size: int = 128
    optimiser: OptimiserName = "adam"
    learning_rate: float = 1e-3
    momentum: float = 0.0  # sgd and rmsprop
    decay: float = 0.9  # rmsprop: decay of the mean square
    betas: tuple[float, float] = (0.9, 0.999)  # adam and adamw
    weight_decay: float = 0.0
    schedule: ScheduleName = "constant"
    warmup_epochs: float = 0.0
    step_epochs: int = 30  # step: epochs between two decreases of the learning rate
    step_factor: float = 0.1  # step: factor of each decrease
    clip_norm: float | None = None
    precision: Precision = "float32"
    patience: int | None = None  # epochs without a better validation loss before the run ends
    channels_last: bool = False  # memory format of images: faster convolutions on many machines
    ema: float | None = None  # decay of an exponential moving average of the weights
    explosion: float = 1e6  # a loss above this multiple of the first one stops the run
    checkpoint_seconds: float = 30.0  # between checkpoints, besides those after the first epoch and at the end
    seed: int = 0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = _typed(field.name, getattr(self, field.name), typing.get_type_hints(type(self))[field.name])
            object.__setattr__(self, field.name, value)
        for name, (low, high, open_low) in RANGES.items():
            for value in _numbers(getattr(self, name)):
                if not (low < value if open_low else low <= value) or value > high:
                    raise OptionError(f"{name} must lie in {'(' if open_low else '['}{low}, {high}], got {value!r}")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Make settings from names and values of a command line or a file."""
        checked_names(values, [field.name for field in dataclasses.fields(cls)])
        return cls(**values)

    @classmethod
    def from_toml(cls, path: Path | str, section: str = "training") -> Self:
        """Make settings from a section of a TOML file."""
        return cls.from_mapping(read_toml(path).get(section, {}))

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as values for JSON."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in dataclasses.asdict(self).items()
        }


RANGES: dict[str, tuple[float, float, bool]] = {  # low, high, whether low itself is excluded
    "epochs": (1, 10**9, False),
    "batch_size": (1, 10**9, False),
    "learning_rate": (0, 1e6, True),
    "momentum": (0, 1 - 1e-9, False),
    "decay": (0, 1 - 1e-9, True),
    "betas": (0, 1 - 1e-9, False),
    "weight_decay": (0, 1e6, False),
    "warmup_epochs": (0, 10**6, False),
    "step_epochs": (1, 10**9, False),
    "step_factor": (0, 1, True),
    "clip_norm": (0, math.inf, True),
    "patience": (1, 10**9, False),
    "ema": (0, 1 - 1e-9, True),
    "explosion": (1, math.inf, True),
    "checkpoint_seconds": (0, 10**9, False),
    "seed": (0, 2**63 - 1, False),
}


def checked_names(given: Iterable[str], known: Sequence[str]) -> None:
    """Raise for the first name that is not known, and suggest the nearest known one."""
    for name in given:
        if name not in known:
            hint = nearest(name, known) or f"; the settings are: {', '.join(known)}"
            raise OptionError(f"there is no setting {name!r}{hint}")


def read_toml(path: Path | str) -> dict[str, Any]:
    """Read a TOML file."""
    path = Path(path)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"the settings file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} is not a TOML file: {error}") from error


def _numbers(value: object) -> list[float]:
    if isinstance(value, tuple):
        return [number for part in value for number in _numbers(part)]
    return [value] if isinstance(value, int | float) else []


def _typed(name: str, value: Any, wanted: Any) -> Any:
    """Return the value as its declared type, or raise with the expected type."""
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is types.UnionType:  # X | None
        return None if value is None else _typed(name, value, parts[0])
    if origin is Literal:
        if value not in parts:
            raise OptionError(f"{name} must be one of {', '.join(parts)}, got {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple) or len(value) != len(parts):
            raise OptionError(f"{name} must be {len(parts)} numbers, got {value!r}")
        return tuple(_typed(name, part, kind) for part, kind in zip(value, parts, strict=True))
    if wanted is bool:
        if not isinstance(value, bool):
            raise OptionError(f"{name} must be true or false, got {value!r}")
        return value
    if isinstance(value, bool) or not isinstance(value, int if wanted is int else int | float):
        raise OptionError(f"{name} must be {'a whole number' if wanted is int else 'a number'}, got {value!r}")
    if math.isnan(value):
        raise OptionError(f"{name} must be a number, got nan")
    return wanted(value)
