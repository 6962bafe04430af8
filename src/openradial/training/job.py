"""A training job as plain values: what a command line or a TOML file says."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, get_args

from openradial.errors import OptionError, check_choice, check_positive
from openradial.models.weights import Reset
from openradial.training.settings import Settings, checked_names, read_toml

HeadName = Literal["radial", "softmax", "doc", "cac"]
TABLES = ("model_options", "training")  # sections of a file; everything else stands above them


@dataclass(frozen=True)
class Job:
    """What to train on what. ``data`` is a name from the catalogue, or a kind and a path.

    ``data``: ``mnist``, ``ucr:Crop``, ``folder:PATH``, ``tiny-imagenet:PATH``, ``ilsvrc:PATH`` or ``table:PATH``.
    ``known``: ``all``, ``random:6`` (drawn with ``split_seed``), ``names:cat,dog``, ``file:PATH`` and, for ILSVRC's
    classes, ``not:n00021939``.
    """

    data: str
    known: str = "all"
    split_seed: int = 0
    model: str = "auto"
    weights: str | None = None
    reset: Reset = "fully_connected"  # layers that start anew in spite of weights; or classifier, or none
    head: HeadName = "radial"
    beta: float = 1.0
    scale: float = 1.0
    size: int | None = None  # of images, in pixels
    label: str | None = None  # column of a table
    augment: bool = False  # images: random shifts and flips
    skip_broken: bool = False
    validation: float = 0.1  # share of the known training data that is kept for watching
    model_options: Mapping[str, Any] = field(default_factory=dict)
    training: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        check_choice("head", self.head, get_args(HeadName))
        check_choice("reset", self.reset, ("fully_connected", "classifier", "none"))
        check_positive("beta", self.beta)
        check_positive("scale", self.scale)
        if not 0 <= self.validation < 1:
            raise OptionError(f"validation must be a share from 0 to below 1, got {self.validation!r}")
        if self.size is not None and not (isinstance(self.size, int) and self.size > 0):
            raise OptionError(f"size must be a number of pixels above 0, got {self.size!r}")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """A job from nested names and values; unknown names are refused."""
        for name in set(values) & {f.name for f in dataclasses.fields(Settings)}:
            raise OptionError(f"the setting {name!r} belongs into the section [training]")
        checked_names(values, [f.name for f in dataclasses.fields(cls)])
        if "data" not in values:
            raise OptionError("a job needs data: name a set, such as data = 'mnist'")
        training = Settings.from_mapping(values.get("training", {}))
        rest = {name: value for name, value in values.items() if name != "training"}
        return cls(**rest, training=training)

    @classmethod
    def from_toml(cls, path: Path | str, **overrides: Any) -> Self:
        """A job from a file; ``overrides`` replace single values, those of ``training`` by their own names."""
        return cls.from_mapping(merged(cls, read_toml(path), overrides))

    def as_dict(self) -> dict[str, Any]:
        """The job as JSON can hold it."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return values | {"model_options": dict(self.model_options), "training": self.training.as_dict()}


def merged(job: type[Any], values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a kind of job with single ones replaced: its own fields, and those of ``training`` by name."""
    own = {f.name for f in dataclasses.fields(job)}
    result = {**values, "training": dict(values.get("training", {}))}
    for name, value in overrides.items():
        if name in own:
            result[name] = value
        else:
            result["training"][name] = value
    return result
