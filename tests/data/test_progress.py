import io
import re
import sys

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


def test_nothing_is_shown_where_nobody_watches(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    with progress.bar("reading", total=10) as advance:
        advance(10)
    assert screen.getvalue() == ""
