"""How large, where and with what an experiment runs; and its finished parts, cached in files."""

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from filelock import FileLock
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from openradial.errors import OptionError, TrainingError

Size = Literal["tiny", "quick", "full"]
SIZES: tuple[Size, ...] = ("tiny", "quick", "full")
Results = dict[str, Any]
S = TypeVar("S")


def ignore(text: str) -> None:
    """Discard a message."""


@dataclass(frozen=True)
class Plan:
    """One run of experiments in one folder.

    Args:
        folder: receives the results and, below ``parts``, cached intermediate results.
        size: ``"full"`` has the paper's settings, ``"quick"`` is the quick mode, ``"tiny"`` is for tests.
        seeds: number of seeds; None keeps the number in each experiment's settings.
        jobs: number of experiments that run at the same time, each in a process.
        options: inputs of some experiments by name: ``tiny_imagenet``, a folder.
        listener: receives the messages of :meth:`note`.
        computed: seconds of the parts that were computed, by file name.
        reused: seconds that the parts read from the folder took when they were computed.
    """

    folder: Path
    size: Size = "full"
    seeds: int | None = None
    jobs: int = 1
    options: Mapping[str, str] = field(default_factory=dict)
    listener: Callable[[str], None] = ignore
    computed: dict[str, float] = field(default_factory=dict, compare=False, repr=False)
    reused: dict[str, float] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise OptionError(f"size must be one of {', '.join(map(repr, SIZES))}, got {self.size!r}")
        for name, value in (("jobs", self.jobs), ("seeds", self.seeds)):
            if value is not None and value < 1:
                raise OptionError(f"{name} must be at least 1, got {value}")

    def settings(self, table: Mapping[Size, S]) -> S:
        """Return the settings of this size, with the plan's number of seeds where they have ``seeds``."""
        settings = table[self.size]
        if self.seeds is None or not hasattr(settings, "seeds"):
            return settings
        return dataclasses.replace(settings, seeds=self.seeds)  # type: ignore[type-var]

    def note(self, text: str) -> None:
        """Report progress to the user."""
        self.listener(text)

    def cached(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return a part from its JSON file, or compute and write it; either way as JSON returns it."""
        path = self.folder / "parts" / f"{name}.json"
        with self._locked(path), self._timed(path):
            if not path.exists():
                write_text(path, json.dumps(compute(), allow_nan=False) + "\n")
            return read_json(path)

    def cached_tensors(self, name: str, compute: Callable[[], Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Return named tensors, such as the weights of networks, from their file, or compute and write them."""
        path = self.folder / "parts" / f"{name}.safetensors"
        with self._locked(path), self._timed(path):
            if not path.exists():
                tensors = {key: tensor.detach().contiguous() for key, tensor in compute().items()}
                with written_at_once(path) as scratch:
                    save_file(tensors, scratch)
            try:
                return dict(load_file(path))
            except (OSError, SafetensorError) as error:
                raise _damaged(path, error) from error

    def facts(self) -> dict[str, Any]:
        """Return everything that the numbers depend on: runs with equal facts may share a folder."""
        return {"size": self.size, "seeds": self.seeds, "options": dict(self.options)}

    @contextmanager
    def _timed(self, path: Path) -> Iterator[None]:
        """Measure a part without the parts inside it, or read how long it took when it was computed."""
        seconds, name = path.with_name(f".{path.name}.seconds"), path.name
        is_new, start, inside = not path.exists(), time.monotonic(), sum(self.computed.values())
        yield
        if is_new:
            self.computed[name] = time.monotonic() - start - (sum(self.computed.values()) - inside)
            write_text(seconds, f"{self.computed[name]:.2f}\n")
        elif name not in self.computed and seconds.exists():
            self.reused[name] = float(seconds.read_text())

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        """Let two experiments that need the same part at the same time compute it once."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock")):
            yield


@contextmanager
def written_at_once(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` at the end, so that no reader sees half of a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield scratch
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file at once."""
    with written_at_once(path) as scratch:
        scratch.write_text(text, encoding="utf-8", newline="\n")


def read_json(path: Path) -> Any:
    """Read a JSON file of the folder."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error


def claim_folder(plan: Plan, *, resume: bool) -> None:
    """Reserve the folder for this plan; raise if it holds another plan, or this one without ``resume``."""
    path = plan.folder / "plan.json"
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"cannot create the folder {plan.folder} ({error.strerror}); choose another one") from error
    if not path.exists():
        write_text(path, json.dumps(plan.facts()) + "\n")
    elif not resume:
        raise TrainingError(f"{plan.folder} already holds results; add --resume to continue or choose another folder")
    elif (facts := read_json(path)) != plan.facts():
        raise OptionError(
            f"{plan.folder} was started with {_describe(facts)}, not with {_describe(plan.facts())}; "
            "use the same options, or choose another folder"
        )


def _describe(facts: Mapping[str, Any]) -> str:
    seeds = "" if facts["seeds"] is None else f", {facts['seeds']} seeds"
    return f"size {facts['size']}{seeds}" + "".join(f", {name} {value}" for name, value in facts["options"].items())


def _damaged(path: Path, error: Exception) -> TrainingError:
    return TrainingError(f"{path} is damaged ({error}); delete it and continue with --resume")
