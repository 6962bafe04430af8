"""Runs that learn in a thread: who looks on, pausing, the end, and what is kept."""

import numpy as np
import pytest
import torch

from openradial.server.playground import learning, runs
from openradial.server.playground.learning import Pace, SpiralSettings
from openradial.server.playground.runs import EXTENT, Runs, SpiralRun
from openradial.server.requests import RequestError

QUICK = Pace(4, 1, 1, 8, learning.PLAIN.training)
QUICK_BAYESIAN = Pace(3, 1, 2, 6, learning.BAYESIAN.training)
LONG = 300.0  # seconds that nothing here takes on any machine


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(learning, "PLAIN", QUICK)
    monkeypatch.setattr(learning, "BAYESIAN", QUICK_BAYESIAN)
    monkeypatch.setattr(runs, "REST", 0.0)


@pytest.fixture
def run():
    made = SpiralRun(SpiralSettings())
    yield made
    made.close()


def watched_to_the_end(run):
    run.watch(+1)
    known = 0
    while known < run.pace.frames:
        known += len(run.wait(known, LONG))
    run.watch(-1)
    return run


def test_a_run_ends_with_all_its_frames(run):
    watched_to_the_end(run)
    assert run.is_done
    facts = [frame.facts for frame in run.frames]
    assert [each["frame"] for each in facts] == [0, 1, 2, 3]
    assert [each["step"] for each in facts] == [0, 1, 2, 3]
    assert all(0 <= each["accuracy"][head] <= 1 for each in facts for head in ("softmax", "radial"))


def test_nothing_is_learned_while_nobody_looks_on(run):
    assert run.wait(1, 0.05) == []
    assert len(run.frames) == 1


def test_a_paused_run_waits_and_goes_on(run):
    run.pause()
    run.watch(+1)
    assert run.wait(1, 0.05) == []
    run.pause(False)
    assert run.wait(1, LONG)


def test_a_picture_holds_the_outputs_on_the_grid_from_the_bottom(run):
    values = np.frombuffer(run.picture(0), np.float16).reshape(1, 8, 8, 6)
    left, right, bottom, _ = EXTENT
    step = (right - left) / 8
    for row, column in [(0, 0), (0, 7), (5, 2)]:
        place = run.at(0, left + (column + 0.5) * step, bottom + (row + 0.5) * step)
        expected = [*place["softmax"][0], *place["radial"][0]]
        np.testing.assert_allclose(values[0, row, column], expected, rtol=2e-3, atol=1e-3)


def test_a_bayesian_run_shows_its_samples():
    run = SpiralRun(SpiralSettings(bayesian=True))
    try:
        assert len(run.picture(0)) == 2 * 6 * 6 * 6 * 2  # samples, grid, outputs, bytes
        place = run.at(0, 0.0, 0.0)
        assert len(place["radial"]) == runs.AT_CROSS
        assert np.std(place["radial"], axis=0).min() > 0
    finally:
        run.close()


def test_an_earlier_frame_can_be_looked_at_again(run):
    first = run.at(0, 1.0, 1.0)
    watched_to_the_end(run)
    assert run.at(0, 1.0, 1.0) == first
    assert run.at(3, 1.0, 1.0) != first


def test_a_frame_that_is_not_there_is_refused(run):
    with pytest.raises(RequestError, match="the run has the frames 0 to 0 so far, got 7") as caught:
        run.picture(7)
    assert caught.value.status == 404


def test_outputs_beyond_half_precision_stay_finite(run, monkeypatch):
    monkeypatch.setattr(run, "_outputs", lambda *args: torch.full((1, 2, 6), 1e9))
    assert np.isfinite(np.frombuffer(run.picture(0), np.float16)).all()


def test_a_run_that_fails_says_so_and_ends(run, monkeypatch):
    def fail():
        raise RuntimeError("no")

    monkeypatch.setattr(run.learner, "advance", fail)
    run.watch(+1)
    run.wait(1, LONG)
    assert run.problem == "training failed; start again with other settings"
    assert run.is_done


def test_a_new_run_takes_the_place_of_the_oldest():
    kept = Runs()
    names = [kept.start(SpiralSettings()).id for _ in range(runs.MOST + 1)]
    with pytest.raises(RequestError, match="this run has ended; start it again"):
        kept.find(names[0])
    assert [kept.find(name).id for name in names[1:]] == names[1:]
    last = kept.find(names[-1])
    kept.close()
    assert last.closed
    with pytest.raises(RequestError):
        kept.find(names[-1])


def test_ending_a_run_twice_does_no_harm():
    kept = Runs()
    ended, other = (kept.start(SpiralSettings()) for _ in range(2))
    kept.end(ended.id)
    kept.end(ended.id)
    assert ended.closed
    assert kept.find(other.id) is other
    assert not other.closed
    kept.close()
