"""How large, where and with what an experiment runs; and what it has finished, kept in files."""

import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from filelock import FileLock
from torch import Tensor

from openradial.errors import OptionError, TrainingError, check_choice, check_count
from openradial.files import Failure, read_tensors, write_tensors, write_text

Size = Literal["tiny", "quick", "full"]
SIZES: tuple[Size, ...] = ("tiny", "quick", "full")
Numbers = dict[str, Any]
S = TypeVar("S")


def unheard(text: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Plan:
    """One run of experiments in one folder.

    Args:
        folder: for results, and for what is kept on the way.
        size: ``"full"`` is the paper's, ``"quick"`` a glance, ``"tiny"`` for tests.
        seeds: how many, in place of what each experiment's settings say.
        jobs: experiments that run at the same time, each in a process.
        options: what some experiments need, by name: ``tiny_imagenet``, a folder.
        listener: is told what :meth:`note` says.
        made: seconds of the parts that were computed, by file.
        read: seconds that the parts took which were found in the folder.
    """

    folder: Path
    size: Size = "full"
    seeds: int | None = None
    jobs: int = 1
    options: Mapping[str, str] = field(default_factory=dict)
    listener: Callable[[str], None] = unheard
    made: dict[str, float] = field(default_factory=dict, compare=False, repr=False)
    read: dict[str, float] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_choice("size", self.size, SIZES)
        check_count("jobs", self.jobs)
        if self.seeds is not None:
            check_count("seeds", self.seeds)

    def settings(self, table: Mapping[Size, S]) -> S:
        """The settings of this size, a dataclass; with the plan's number of seeds where they have ``seeds``."""
        chosen = table[self.size]
        if self.seeds is None or not hasattr(chosen, "seeds"):
            return chosen
        return dataclasses.replace(chosen, seeds=self.seeds)  # type: ignore[type-var]

    def note(self, text: str) -> None:
        """Tell the user what is going on."""
        self.listener(text)

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        """A finished part, from its file or computed now and kept; always as JSON gives it back."""
        path = self.folder / "parts" / f"{name}.json"
        with self._alone(path), self._timed(path):
            if not path.exists():
                write_text(path, json.dumps(make(), allow_nan=False) + "\n")
            return read_json(path)

    def kept_tensors(self, name: str, make: Callable[[], Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Tensors by name, such as the weights of trained networks, from their file or computed now and kept."""
        path = self.folder / "parts" / f"{name}.safetensors"
        with self._alone(path), self._timed(path):
            if not path.exists():
                write_tensors(path, make(), {})
            try:
                return read_tensors(path)[0]
            except Failure as error:
                raise _damaged(path, error) from error

    def place(self, name: str) -> Path:
        """A folder for the checkpoints of one training run."""
        return self.folder / "runs" / name

    def facts(self) -> dict[str, Any]:
        """What numbers depend on: two runs with the same facts may share a folder."""
        return {"size": self.size, "seeds": self.seeds, "options": dict(self.options)}

    @contextmanager
    def _timed(self, path: Path) -> Iterator[None]:
        """Note how long a part takes, without the parts inside it; or how long it took when it was made."""
        beside, name = path.with_name(f".{path.name}.seconds"), path.name
        is_new, start, inside = not path.exists(), time.monotonic(), sum(self.made.values())
        yield
        if is_new:
            self.made[name] = time.monotonic() - start - (sum(self.made.values()) - inside)
            write_text(beside, f"{self.made[name]:.2f}\n")
        elif name not in self.made and beside.exists():
            self.read[name] = float(beside.read_text())

    @contextmanager
    def _alone(self, path: Path) -> Iterator[None]:
        """Two experiments at the same time that need the same part make it once."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock")):
            yield


def read_json(path: Path) -> Any:
    """What a file of this folder holds."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error


def claim_folder(plan: Plan, *, resume: bool) -> None:
    """Make the folder this plan's; raise if it holds another one, or one that nobody asked to go on with."""
    path = plan.folder / "plan.json"
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"the folder {plan.folder} cannot be made ({error.strerror}); choose another one") from error
    if not path.exists():
        write_text(path, json.dumps(plan.facts()) + "\n")
    elif not resume:
        raise TrainingError(f"{plan.folder} holds results already; go on with them (--resume) or choose another folder")
    elif (then := read_json(path)) != plan.facts():
        raise OptionError(
            f"{plan.folder} was begun with {_said(then)}, not with {_said(plan.facts())}; "
            "ask for the same, or choose another folder"
        )


def _said(facts: Mapping[str, Any]) -> str:
    seeds = "" if facts["seeds"] is None else f", {facts['seeds']} seeds"
    return f"size {facts['size']}{seeds}" + "".join(f", {name} {value}" for name, value in facts["options"].items())


def _damaged(path: Path, error: Exception) -> TrainingError:
    return TrainingError(f"{path} is damaged ({error}); delete it and go on with --resume")
