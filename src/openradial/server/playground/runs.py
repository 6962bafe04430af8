"""Runs of the spiral: networks that learn in a thread of their own, frame by frame, while a page looks on."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

import torch
from torch import Tensor

from openradial.server.monitoring import log_event
from openradial.server.playground.learning import Learner, State, Viewer, Wishes, accuracies, fresh_points
from openradial.server.requests import RequestError
from openradial.server.settings import LogLevel

EXTENT = (-3.0, 3.0, -3.0, 3.0)  # of the map; the data lie within a radius of 1.1
SHOWN = 300  # points that the page draws
AT_CROSS = 200  # networks drawn where the distribution at one place is asked for
MOST = 4  # runs that are kept: a new one takes the place of the oldest
REST = 0.04  # seconds between two frames at least, so that eyes can follow


@dataclass(frozen=True, eq=False)
class Frame:
    """The networks at one moment, and how they do on points that they do not learn from."""

    state: State
    facts: dict[str, Any]


class Run:
    """One run. It learns while it is neither paused nor at its end, and somebody looks on."""

    def __init__(self, wishes: Wishes) -> None:
        self.id, self.wishes, self.pace = token_hex(8), wishes, wishes.pace
        self.learner = Learner(wishes)
        self.frames: list[Frame] = []
        self.paused, self.closed, self.watchers = False, False, 0
        self.problem: str | None = None
        self._changed = threading.Condition()
        self._looking = threading.Lock()
        self._viewer, self._test = Viewer(wishes.bayesian), fresh_points(wishes)
        self._grid = grid(self.pace.places, EXTENT)
        self._add(self.learner.state())
        self._thread = threading.Thread(target=self._work, name=f"openradial-spiral-{self.id}", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether nothing more will come."""
        return self.closed or self.problem is not None or len(self.frames) == self.pace.frames

    def describe(self) -> dict[str, Any]:
        """What a page must know before the first frame."""
        data = self.learner.data
        return {
            "id": self.id,
            "frames": self.pace.frames,
            "steps": self.pace.steps,
            "samples": self.pace.samples,
            "places": self.pace.places,
            "extent": list(EXTENT),
            "points": [[round(value, 3) for value in point] for point in data.inputs[:SHOWN].tolist()],
            "labels": data.labels[:SHOWN].tolist(),
        }

    def pause(self) -> None:
        self._set(paused=True)

    def resume(self) -> None:
        self._set(paused=False)

    def watch(self, change: int) -> None:
        """Count those who look on: without any, nothing is learned."""
        with self._changed:
            self.watchers += change
            self._changed.notify_all()

    def close(self) -> None:
        """Stop for ever, and wait for it."""
        self._set(closed=True)
        self._thread.join()

    def wait(self, known: int, seconds: float) -> list[dict[str, Any]]:
        """The facts of all frames beyond those known; none if no other comes in time."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.frames) > known or self.is_done, seconds)
            return [frame.facts for frame in self.frames[known:]]

    def picture(self, frame: int) -> bytes:
        """Outputs on the grid in half precision, ``(samples, places * places, 6)`` row by row from the bottom."""
        o = self._outputs(frame, self._grid, self.pace.samples)
        return o.clamp(-65_000, 65_000).half().numpy().tobytes()

    def at(self, frame: int, x: float, y: float) -> dict[str, list[list[float]]]:
        """Outputs of each head at one place, one row per network drawn."""
        o = self._outputs(frame, torch.tensor([[x, y]]), AT_CROSS)[:, 0]
        return {"softmax": o[:, :3].tolist(), "radial": o[:, 3:].tolist()}

    def _outputs(self, frame: int, x: torch.Tensor, samples: int) -> torch.Tensor:
        if not 0 <= frame < len(self.frames):
            raise RequestError(404, f"the run has the frames 0 to {len(self.frames) - 1} so far, got {frame}")
        with self._looking:
            return self._viewer.outputs(self.frames[frame].state, x, samples)

    def _work(self) -> None:
        try:
            while self._may_go_on():
                self._add(self.learner.advance())
        except Exception as error:
            log_event(LogLevel.ERROR, "spiral", error=f"{type(error).__name__}: {error}")
            self._set(problem="training failed; start again with other settings")

    def _may_go_on(self) -> bool:
        """Wait until there is something to do; whether there ever will be."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_done, REST)
            self._changed.wait_for(lambda: self.is_done or (self.watchers > 0 and not self.paused))
            return not self.is_done

    def _add(self, state: State) -> None:
        with self._looking:
            o = self._viewer.outputs(state, self._test.inputs, self.pace.samples)
        place = len(self.frames)
        accuracy = accuracies(o, self._test.labels, self.wishes)
        facts = {"frame": place, "step": place * self.pace.steps, "accuracy": accuracy}
        with self._changed:
            self.frames.append(Frame(state, facts))
            self._changed.notify_all()

    def _set(self, **values: Any) -> None:
        with self._changed:
            for name, value in values.items():
                setattr(self, name, value)
            self._changed.notify_all()


class Runs:
    """The runs of all open pages, by their names."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._changing = threading.Lock()

    def start(self, wishes: Wishes) -> Run:
        run = Run(wishes)
        with self._changing:
            self._runs[run.id] = run
            old = [self._runs.pop(name) for name in list(self._runs)[:-MOST]]
        for each in old:
            each.close()
        return run

    def find(self, name: str) -> Run:
        run = self._runs.get(name)
        if run is None:
            raise RequestError(404, "this run has ended; start it again")
        return run

    def end(self, name: str) -> None:
        with self._changing:
            run = self._runs.pop(name, None)
        if run is not None:
            run.close()

    def close(self) -> None:
        """End all of them."""
        for name in list(self._runs):
            self.end(name)


def grid(places: int, extent: Sequence[float]) -> Tensor:
    """A square grid, row by row from the bottom, ``(places * places, 2)``: the middles of the map's cells."""
    left, right, bottom, top = extent
    middles = (torch.arange(places) + 0.5) / places
    y, x = torch.meshgrid(bottom + (top - bottom) * middles, left + (right - left) * middles, indexing="ij")
    return torch.stack([x, y], -1).reshape(-1, 2)
