"""What to fit on what, as plain values: what a command line or a TOML file says."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from openradial.conformal.inputs import check_rate
from openradial.data.splits import Split, named_split, parse_known
from openradial.errors import OptionError, check_count
from openradial.training.job import merged
from openradial.training.settings import Settings, checked_names, read_toml

RULES = ("random", "names", "file", "not", "under")  # of openradial.data.parse_known


@dataclass(frozen=True)
class FitJob:
    """A set and what is wanted of a model. What is not said follows from the data, see :func:`choose`.

    ``data``: a folder with one folder of images per class (or with such folders in ``train`` and ``val`` or ``test``);
    a table (CSV, Parquet, NPZ) with its ``label`` column; an NPZ file of uint8 images; or the name of a set.
    ``known`` or ``novel``: names of classes; the others are the other side. ``known`` may also be a rule such as
    ``random:6``. ``training`` holds settings that replace the chosen ones, ``model_options`` those of the network.
    """

    data: str
    label: str | None = None
    known: str | Sequence[str] | None = None
    novel: str | Sequence[str] | None = None
    model: str = "auto"
    size: int | None = None  # of images, in pixels
    false_reject_rate: float = 0.05
    skip_broken: bool = False
    flip: bool = False  # images: mirror them at random while training
    seed: int = 0
    model_options: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_rate("false_reject_rate", self.false_reject_rate)
        check_count("seed", self.seed, least=0)
        if self.size is not None:
            check_count("size", self.size, least=8)
        if self.known is not None and self.novel is not None:
            raise OptionError("name either the known classes or the novel ones, got both; the rest is the other side")
        for name in ("skip_broken", "flip"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name} must be true or false, got {getattr(self, name)!r}")
        Settings.from_mapping(self.training)  # refuses what no setting can be, before anything starts

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """A job from names and values; unknown names are refused."""
        checked_names(values, [f.name for f in dataclasses.fields(cls)])
        if "data" not in values:
            raise OptionError("a model needs data: name a folder, a table or a set, such as data = 'digits'")
        return cls(**values)

    @classmethod
    def from_toml(cls, path: Path | str, **overrides: Any) -> Self:
        """A job from a file; ``overrides`` replace single values, those of ``training`` by their own names."""
        return cls.from_mapping(merged(cls, read_toml(path), overrides))

    def split(self, classes: Sequence[str]) -> Split:
        """Which of the classes are known."""
        if self.known is None and self.novel is None:
            return Split(tuple(classes), (), {"rule": "all"})
        if self.novel is not None:
            return named_split(classes, novel=_names(self.novel))
        if isinstance(self.known, str) and self.known.partition(":")[0] in RULES and ":" in self.known:
            return parse_known(self.known, classes, seed=self.seed)
        return named_split(classes, known=_names(self.known or ()))

    def as_dict(self) -> dict[str, Any]:
        """The job as JSON can hold it."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain = {name: value if isinstance(value, str | None) else list(value) for name, value in _sides(self)}
        return values | plain | {"model_options": dict(self.model_options), "training": dict(self.training)}


def _sides(job: FitJob) -> list[tuple[str, Any]]:
    return [("known", job.known), ("novel", job.novel)]


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    names = given.split(",") if isinstance(given, str) else given
    cleaned = tuple(name.strip() for name in map(str, names) if name.strip())
    if not cleaned:
        raise OptionError(f"classes are named with commas between them, as in cat,dog, got {given!r}")
    return cleaned
