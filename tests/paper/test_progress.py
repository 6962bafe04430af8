import sys

from paper.progress import bar


def test_nothing_is_shown_without_a_terminal(capsys):
    with bar("counting", 3) as advance:
        advance(1)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_the_title(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with bar("counting", 2) as advance:
        advance(2)
    assert "counting" in capsys.readouterr().err
