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

from openradial.errors import OptionError, check_choice, nearest

OptimiserName = Literal["adam", "adamw", "rmsprop", "sgd"]
ScheduleName = Literal["constant", "linear", "cosine", "step"]
Precision = Literal["float32", "bfloat16", "float16", "float64"]
BELOW_1 = 1 - 1e-9


def _within(low: float, high: float, default: Any, *, open_low: bool = False) -> Any:
    """Return a field whose numbers must lie in [low, high], or in (low, high]."""
    return dataclasses.field(default=default, metadata={"range": (low, high, open_low)})


@dataclass(frozen=True)
class Settings:
    """Settings of one training run. ``batch_size`` counts the examples of all processes together."""

    epochs: int = _within(1, 10**9, 10)
    batch_size: int = _within(1, 10**9, 128)
    optimiser: OptimiserName = "adam"
    learning_rate: float = _within(0, 1e6, 1e-3, open_low=True)
    momentum: float = _within(0, BELOW_1, 0.0)  # sgd and rmsprop
    decay: float = _within(0, BELOW_1, 0.9, open_low=True)  # rmsprop: decay of the mean square
    betas: tuple[float, float] = _within(0, BELOW_1, (0.9, 0.999))  # adam and adamw
    weight_decay: float = _within(0, 1e6, 0.0)
    schedule: ScheduleName = "constant"
    warmup_epochs: float = _within(0, 10**6, 0.0)
    step_epochs: int = _within(1, 10**9, 30)  # step: epochs between two decreases of the learning rate
    step_factor: float = _within(0, 1, 0.1, open_low=True)  # step: factor of each decrease
    clip_norm: float | None = _within(0, math.inf, None, open_low=True)
    precision: Precision = "float32"
    patience: int | None = _within(1, 10**9, None)  # epochs without a better validation loss before the run ends
    channels_last: bool = False  # memory format of images: faster convolutions on many machines
    ema: float | None = _within(0, BELOW_1, None, open_low=True)  # decay of a moving average of the weights
    explosion: float = _within(1, math.inf, 1e6, open_low=True)  # multiple of the first loss that stops the run
    checkpoint_seconds: float = _within(0, 10**9, 30.0)  # besides those after the first epoch and at the end
    seed: int = _within(0, 2**63 - 1, 0)

    def __post_init__(self) -> None:
        types_by_name = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            value = _typed(field.name, getattr(self, field.name), types_by_name[field.name])
            object.__setattr__(self, field.name, value)
            if "range" not in field.metadata or value is None:
                continue
            low, high, open_low = field.metadata["range"]
            for number in value if isinstance(value, tuple) else (value,):
                if not (low < number if open_low else low <= number) or number > high:
                    bounds = f"{'(' if open_low else '['}{low}, {high}]"
                    raise OptionError(f"{field.name} must lie in {bounds}, got {number!r}")

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
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}


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


def _typed(name: str, value: Any, wanted: Any) -> Any:
    """Return the value as its declared type, or raise with the expected type."""
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is types.UnionType:  # X | None
        return None if value is None else _typed(name, value, parts[0])
    if origin is Literal:
        check_choice(name, value, parts)
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple) or len(value) != len(parts):
            raise OptionError(f"{name} must be {len(parts)} numbers, got {value!r}")
        return tuple(_typed(name, part, kind) for part, kind in zip(value, parts, strict=True))
    accepted: Any = int | float if wanted is float else wanted
    if not isinstance(value, accepted) or isinstance(value, bool) != (wanted is bool) or math.isnan(value):
        noun = {bool: "true or false", int: "a whole number", float: "a number"}[wanted]
        raise OptionError(f"{name} must be {noun}, got {value!r}")
    return wanted(value)
