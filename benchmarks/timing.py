"""Time rivals against each other in one run: round by round, so that a slow moment of the machine hits all of them.

Within a round each rival is called once untimed and then several times: what the rival before it left in caches and in
the memory allocator is not its own.
"""

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Run = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """Seconds per call: median over rounds, the range that holds the middle half of them, and all rounds."""

    median: float
    low: float
    high: float
    samples: tuple[float, ...]

    def as_dict(self) -> dict[str, float]:
        return {
            "median_s": self.median,
            "quartile_1_s": self.low,
            "quartile_3_s": self.high,
            "fastest_s": self.fastest,
            "rounds": len(self.samples),
        }

    @property
    def fastest(self) -> float:
        """Seconds per call of the fastest round: what other programs disturb least."""
        return min(self.samples)


def duel(rivals: Mapping[str, Run], *, rounds: int, block_seconds: float = 0.02) -> dict[str, Timing]:
    """Time each rival ``rounds`` times, in turn; fast ones are repeated within a round."""
    repeats = {}
    for name, run in rivals.items():
        seconds = _seconds(run, 1)
        if seconds < 0.5:
            seconds = min(_seconds(run, 1) for _ in range(3))
        repeats[name] = max(3, min(500, round(block_seconds / max(seconds, 1e-6)))) if seconds < 0.5 else 1
    samples: dict[str, list[float]] = {name: [] for name in rivals}
    gc.disable()
    try:
        for _ in range(rounds):
            for name, run in rivals.items():
                if repeats[name] > 1:
                    run()
                samples[name].append(_seconds(run, repeats[name]) / repeats[name])
    finally:
        gc.enable()
    return {name: _timing(values) for name, values in samples.items()}


def _seconds(run: Run, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return time.perf_counter() - start


def _timing(values: list[float]) -> Timing:
    low, median, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return Timing(median, low, high, tuple(values))
