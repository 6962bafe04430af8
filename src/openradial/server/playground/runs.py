"""Runs of the spiral: networks trained in a thread, frame by frame, while a page watches."""

import threading
from collections.abc import Sequence
from secrets import token_hex
from typing import Any, NamedTuple

import torch
from torch import Tensor

from openradial.data.sets.spiral import spiral
from openradial.server.monitoring import log_event
from openradial.server.playground.learning import Learner, SpiralSettings, Viewer, accuracies
from openradial.server.requests import RequestError
from openradial.server.settings import LogLevel

EXTENT = (-3.0, 3.0, -3.0, 3.0)  # of the map; the data lie within a radius of 1.1
SHOWN, TESTED = 300, 300  # training points that the page draws, and test points
AT_CROSS = 200  # weight samples for the distribution at one point
MOST = 4  # runs at the same time: a new one replaces the oldest
REST = 0.04  # least seconds between two frames, so that they can be followed by eye


class Frame(NamedTuple):
    """The networks at one moment, and their accuracy on test points."""

    state: dict[str, Tensor]
    facts: dict[str, Any]


class SpiralRun:
    """One run. It trains while it is watched and neither paused nor finished."""

    def __init__(self, settings: SpiralSettings) -> None:
        self.id, self.settings, self.pace = token_hex(8), settings, settings.pace
        self.learner = Learner(settings)
        self.frames: list[Frame] = []
        self.paused, self.closed, self.watchers = False, False, 0
        self.problem: str | None = None
        self._changed = threading.Condition()
        self._looking = threading.Lock()
        self._viewer, self._test = Viewer(settings.bayesian), spiral(TESTED, seed=settings.seed, split="test")
        self._grid = grid(self.pace.cells, EXTENT)
        self._add(self.learner.state())
        self._thread = threading.Thread(target=self._work, name=f"openradial-spiral-{self.id}", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Return whether no more frames will come."""
        return self.closed or self.problem is not None or len(self.frames) == self.pace.frames

    def describe(self) -> dict[str, Any]:
        """Return what a page needs before the first frame."""
        data = self.learner.data
        pace = {name: getattr(self.pace, name) for name in ("frames", "steps", "samples", "cells")}
        points = [[round(value, 3) for value in point] for point in data.inputs[:SHOWN].tolist()]
        return {"id": self.id, **pace, "extent": EXTENT, "points": points, "labels": data.labels[:SHOWN].tolist()}

    def pause(self, paused: bool = True) -> None:
        self._set(paused=paused)

    def watch(self, change: int) -> None:
        """Change the number of watchers; without any, training waits."""
        with self._changed:
            self._set(watchers=self.watchers + change)

    def close(self) -> None:
        """Stop the run and wait for its thread."""
        self._set(closed=True)
        self._thread.join()

    def wait(self, known: int, seconds: float) -> list[dict[str, Any]]:
        """Return the facts of all frames after the first ``known``; empty if none comes in time."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.frames) > known or self.is_done, seconds)
            return [frame.facts for frame in self.frames[known:]]

    def picture(self, frame: int) -> bytes:
        """Return outputs on the grid in half precision, ``(samples, cells * cells, 6)``, row by row from the bottom."""
        o = self._outputs(frame, self._grid, self.pace.samples)
        return o.clamp(-65_000, 65_000).half().numpy().tobytes()

    def at(self, frame: int, x: float, y: float) -> dict[str, list[list[float]]]:
        """Return the outputs of each head at one point, one row per weight sample."""
        o = self._outputs(frame, torch.tensor([[x, y]]), AT_CROSS)[:, 0]
        return {"softmax": o[:, :3].tolist(), "radial": o[:, 3:].tolist()}

    def _outputs(self, frame: int, x: Tensor, samples: int) -> Tensor:
        if not 0 <= frame < len(self.frames):
            raise RequestError(404, f"the run has the frames 0 to {len(self.frames) - 1} so far, got {frame}")
        with self._looking:
            return self._viewer.outputs(self.frames[frame].state, x, samples)

    def _work(self) -> None:
        try:
            while self._wait_for_work():
                self._add(self.learner.advance())
        except Exception as error:
            log_event(LogLevel.ERROR, "spiral", error=f"{type(error).__name__}: {error}")
            self._set(problem="training failed; start again with other settings")

    def _wait_for_work(self) -> bool:
        """Wait until there is something to do; return False if the run is done."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_done, REST)
            self._changed.wait_for(lambda: self.is_done or (self.watchers > 0 and not self.paused))
            return not self.is_done

    def _add(self, state: dict[str, Tensor]) -> None:
        with self._looking:
            o = self._viewer.outputs(state, self._test.inputs, self.pace.samples)
        index = len(self.frames)
        accuracy = accuracies(o, self._test.labels, self.settings)
        facts = {"frame": index, "step": index * self.pace.steps, "accuracy": accuracy}
        with self._changed:
            self.frames.append(Frame(state, facts))
            self._changed.notify_all()

    def _set(self, **values: Any) -> None:
        with self._changed:
            for name, value in values.items():
                setattr(self, name, value)
            self._changed.notify_all()


class Runs:
    """The runs of all open pages by id."""

    def __init__(self) -> None:
        self._runs: dict[str, SpiralRun] = {}
        self._changing = threading.Lock()

    def start(self, settings: SpiralSettings) -> SpiralRun:
        run = SpiralRun(settings)
        with self._changing:
            self._runs[run.id] = run
            old = [self._runs.pop(name) for name in list(self._runs)[:-MOST]]
        for each in old:
            each.close()
        return run

    def find(self, name: str) -> SpiralRun:
        if (run := self._runs.get(name)) is None:
            raise RequestError(404, "this run has ended; start it again")
        return run

    def end(self, name: str) -> None:
        with self._changing:
            run = self._runs.pop(name, None)
        if run is not None:
            run.close()

    def close(self) -> None:
        """End all runs."""
        for name in list(self._runs):
            self.end(name)


def grid(cells: int, extent: Sequence[float]) -> Tensor:
    """Return the centres of a square grid of cells, row by row from the bottom, ``(cells * cells, 2)``."""
    left, right, bottom, top = extent
    middles = (torch.arange(cells) + 0.5) / cells
    return torch.cartesian_prod(bottom + (top - bottom) * middles, left + (right - left) * middles).flip(1)
