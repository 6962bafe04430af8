"""Settings of a training run, checked when they are made; and the optimiser, schedule and average that they name."""

import dataclasses
import math
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from torch import nn, optim
from torch.optim.swa_utils import AveragedModel

from openradial.errors import OptionError, check_choice, nearest
from openradial.files import check_regular
from openradial.training.muon import Muon

OptimiserName = Literal["adam", "adamw", "muon", "rmsprop", "sgd"]
ScheduleName = Literal["constant", "linear", "cosine", "step"]
Precision = Literal["float32", "bfloat16", "float16", "float64"]
BELOW_1 = 1 - 1e-9


def within(low: float, high: float, default: Any, *, open_low: bool = False) -> Any:
    """Return a field whose numbers must lie in [low, high], or in (low, high]."""
    return dataclasses.field(default=default, metadata={"range": (low, high, open_low)})


@dataclass(frozen=True)
class CheckedSettings:
    """Settings that are checked against the types and ranges of their fields."""

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
        """Make settings from names and values of a command line, a file or a page."""
        checked_names(values, [field.name for field in dataclasses.fields(cls)])
        return cls(**values)


@dataclass(frozen=True)
class Settings(CheckedSettings):
    """Settings of one training run. ``batch_size`` counts the examples of all processes together."""

    epochs: int = within(1, 10**9, 10)
    batch_size: int = within(1, 10**9, 128)
    optimiser: OptimiserName = "adam"
    learning_rate: float = within(0, 1e6, 1e-3, open_low=True)
    momentum: float = within(0, BELOW_1, 0.0)  # sgd, rmsprop and muon
    decay: float = within(0, BELOW_1, 0.9, open_low=True)  # rmsprop: decay of the mean square
    betas: tuple[float, float] = within(0, BELOW_1, (0.9, 0.999))  # adam and adamw
    nesterov: bool = False  # sgd
    bias_factor: float = within(0, 1e6, 1.0, open_low=True)  # sgd and muon: of the rate of biases
    weight_decay: float = within(0, 1e6, 0.0)
    schedule: ScheduleName = "constant"
    warmup_epochs: float = within(0, 10**6, 0.0)
    step_epochs: int = within(1, 10**9, 30)  # step: epochs between two decreases of the learning rate
    step_factor: float = within(0, 1, 0.1, open_low=True)  # step: factor of each decrease
    clip_norm: float | None = within(0, math.inf, None, open_low=True)
    precision: Precision = "float32"
    patience: int | None = within(1, 10**9, None)  # epochs without a better validation loss before the run ends
    channels_last: bool = False  # memory format of images: faster convolutions on many machines
    frozen_statistics: bool = False  # batch normalisation keeps mean and variance: for fine-tuning with few examples
    ema: float | None = within(0, BELOW_1, None, open_low=True)  # decay of a moving average of the weights
    explosion: float = within(1, math.inf, 1e6, open_low=True)  # multiple of the first loss that stops the run
    checkpoint_seconds: float = within(0, 10**9, 30.0)  # besides those after the first epoch and at the end
    seed: int = within(0, 2**63 - 1, 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and not (self.optimiser == "sgd" and self.momentum):
            raise OptionError("nesterov needs optimiser='sgd' and a momentum above 0; set both, or leave it out")
        if self.bias_factor != 1 and self.optimiser not in ("sgd", "muon"):
            raise OptionError(f"bias_factor is for optimiser='sgd' or 'muon', got {self.optimiser!r}; leave it out")

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
    try:
        content = check_regular(Path(path)).read_bytes()
    except OSError as error:
        raise OptionError(f"the settings file {path} cannot be read: {error.strerror}") from error
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
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


def make_optimiser(net: nn.Module, settings: Settings) -> optim.Optimizer:
    """Return the optimiser that the settings name; a group of parameters may have a factor of the learning rate."""
    rate, decay, momentum = settings.learning_rate, settings.weight_decay, settings.momentum
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    fused = {parameter.device.type for parameter in trained} <= {"cpu", "cuda"}  # one kernel for all tensors
    if settings.optimiser == "muon":
        return Muon(net, rate, momentum=momentum, bias_factor=settings.bias_factor, weight_decay=decay)
    if settings.optimiser == "sgd":
        options: dict[str, Any] = {"momentum": momentum, "weight_decay": decay, "nesterov": settings.nesterov}
        parts = ([p for p in trained if p.ndim > 1], [p for p in trained if p.ndim < 2])  # biases and normalisation
        groups = [{"params": part, "factor": f} for part, f in zip(parts, (1.0, settings.bias_factor), strict=True)]
        return optim.SGD(groups, rate, fused=fused, **options)
    if settings.optimiser == "rmsprop":
        return optim.RMSprop(trained, rate, alpha=settings.decay, momentum=momentum, weight_decay=decay, foreach=True)
    kind = optim.Adam if settings.optimiser == "adam" else optim.AdamW
    return kind(trained, rate, betas=settings.betas, weight_decay=decay, fused=fused)


def learning_rate_factor(settings: Settings, step: int, steps_per_epoch: int) -> float:
    """Return the factor of the learning rate at a step: the schedule after a linear warm-up.

    >>> settings = Settings(epochs=10, schedule="cosine", warmup_epochs=1)
    >>> [round(learning_rate_factor(settings, step, 10), 2) for step in (0, 9, 10, 55, 99)]
    [0.1, 1.0, 1.0, 0.5, 0.0]
    """
    warmup = settings.warmup_epochs * steps_per_epoch
    if step < warmup:
        return (step + 1) / (warmup + 1) if warmup < 1 else min(1.0, (step + 1) / warmup)
    if settings.schedule == "constant":
        return 1.0
    if settings.schedule == "step":
        return float(settings.step_factor ** (step // steps_per_epoch // settings.step_epochs))
    done = (step - warmup) / max(1.0, settings.epochs * steps_per_epoch - warmup)  # share of the steps, in [0, 1)
    return 1 - done if settings.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2


@contextmanager
def averaged_weights(net: nn.Module, average: AveragedModel) -> Iterator[None]:
    """Load the averaged weights into ``net``, and restore the current ones at the end."""
    current = {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}
    net.load_state_dict(average.module.state_dict())
    try:
        yield
    finally:
        net.load_state_dict(current)
