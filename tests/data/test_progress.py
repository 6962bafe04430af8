import io
import re
import sys
import time

import pytest

from openradial.data import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_is_shown_on_a_terminal(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    for unit in ("bytes", "images"):
        with progress.bar("reading", total=10, unit=unit) as advance:
            advance(10)
    shown = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", screen.getvalue())
    assert "reading" in shown
    assert "10/10 bytes" in shown
    assert "10/10 images" in shown


def test_nothing_is_printed_about_what_is_quick(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    with progress.bar("reading", total=10) as advance:
        advance(10)
    assert screen.getvalue() == ""


@pytest.mark.parametrize(
    ("total", "line"), [(10, r"reading: 4 of 10 images, \d+\.\d per second, \d:\d\d left"), (None, r"reading: \d:\d\d")]
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
