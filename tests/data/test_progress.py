import io
import re
import sys
import time
from types import SimpleNamespace

import pytest

from openradial.data import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_is_shown_on_a_terminal(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    for unit, total in (("bytes", 10**7), ("images", 10)):
        with progress.bar("reading", total=total, unit=unit) as advance:
            advance(total)
    shown = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", screen.getvalue())
    assert "reading" in shown
    assert "10.0 of 10.0 MB" in shown
    assert "10 of 10 images" in shown


def test_nothing_is_printed_about_what_is_quick(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    with progress.bar("reading", total=10) as advance:
        advance(10)
    assert screen.getvalue() == ""


@pytest.mark.parametrize(
    ("total", "line"),
    [(10, r"reading: 4 of 10 images, [\d,]+\.\d per second, \d:\d\d left"), (None, r"reading: \d:\d\d")],
)
def test_lines_are_printed_without_a_terminal(monkeypatch, total, line):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "FIRST", 0.01)
    monkeypatch.setattr(progress, "PAUSE", 0.01)
    with progress.bar("reading", total=total, unit="images") as advance:
        advance(4)
        end = time.monotonic() + 300
        # a first line may tell of nothing done, if this thread waited for a core before it advanced
        while not re.search(rf"^{line}$", screen.getvalue(), re.MULTILINE) and time.monotonic() < end:
            time.sleep(0.01)
    assert re.match(rf"^{line}$", screen.getvalue().splitlines()[-1])
    shown = screen.getvalue()
    time.sleep(0.05)
    assert screen.getvalue() == shown  # nothing after the end


def test_a_stage_of_unknown_length_is_shown_on_a_terminal(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    with progress.bar("calibrating", total=None):
        pass
    assert "calibrating" in screen.getvalue()


@pytest.fixture
def now(monkeypatch):
    """The time in seconds, which a test changes."""
    times = [100.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: times[0]))
    return times


def test_the_time_left_is_that_of_the_stage_by_its_pace_and_of_later_stages(now):
    run = progress.RunProgress()
    assert run.left() is None
    run.begin(total=10, later=30)
    assert run.left() is None  # nothing is known about the pace
    now[0] += 8
    run.advance(4)  # two seconds each
    assert run.left() == pytest.approx(6 * 2 + 30)
    now[0] += 3
    assert run.left() == pytest.approx(6 * 2 - 3 + 30)


def test_an_expected_pace_is_shown_at_first_and_replaced_by_the_measured_one(now):
    run = progress.RunProgress()
    run.begin(total=100, pace=0.5)
    assert run.left() == pytest.approx(50)
    shown = []
    for _ in range(100):
        now[0] += 2.0
        run.advance(1)
        shown.append(run.left() / max(1, 2 * (100 - run.done)))
    assert shown[0] > 0.25
    assert shown[20] > 0.8
    assert shown[-2] == pytest.approx(1, abs=0.1)
    assert run.left() == 0


def test_a_step_that_takes_longer_than_expected_is_never_shown_as_finished(now):
    run = progress.RunProgress()
    run.begin(total=1, pace=10)
    shown = []
    for _ in range(40):
        now[0] += 1
        shown.append(run.left())
    assert shown[:5] == pytest.approx([9, 8, 7, 6, 5])
    assert min(shown) > 3
    assert shown[-1] > 10


def test_the_time_left_never_exceeds_the_deadline(now):
    run = progress.RunProgress()
    run.deadline = now[0] + 7
    run.begin(total=10, pace=10, later=100)
    assert run.left() == 7
    now[0] += 9
    assert run.left() == 0


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_bars_inside_a_run_show_the_time_left_of_the_whole_run(monkeypatch, kind):
    screen = kind()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(progress, "FIRST", 0.0)
    with progress.whole_run():
        progress.current().begin(100, pace=36, later=1800)
        with progress.whole_run(), progress.bar("fitting", None):  # a run inside a run is a part of it
            end = time.monotonic() + 300
            while "left in all" not in screen.getvalue() and time.monotonic() < end:
                time.sleep(0.01)
    assert re.search(r"fitting.*\b0:0\d, about 1:\d\d:\d\d left in all", screen.getvalue())
    assert progress.current().left() is None


def test_short_bars_of_a_long_run_share_the_pause_between_lines(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    with progress.whole_run():
        progress.current().due = 0.0  # the run is longer than the first pause
        for epoch in range(3):
            with progress.bar(f"epoch {epoch}", 10, unit="examples"):
                end = time.monotonic() + 300
                while not screen.getvalue() and time.monotonic() < end:
                    time.sleep(0.01)
    assert screen.getvalue() == "epoch 0: 0 of 10 examples\n"
