import sys

import pytest

from openradial import cli
from paper import IDS, fig1


@pytest.fixture
def reproduce(monkeypatch, capsys):
    """Run ``openradial reproduce`` with a tiny figure 1: its exit code and what it printed."""
    monkeypatch.setitem(fig1.SETTINGS, "quick", fig1.SETTINGS["tiny"])

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["openradial", "reproduce", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out + printed.err

    return run


def test_the_list_names_every_experiment(reproduce):
    code, said = reproduce("--list")
    assert code == 0
    assert [line.split()[0] for line in said.splitlines()[1:] if line[0] != " "] == list(IDS)


def test_an_experiment_is_run_and_its_files_are_named(reproduce, tmp_path):
    out = tmp_path / "out"
    code, said = reproduce("fig1", "--quick", "--out", out)
    assert code == 0, said
    assert "experiment 1 of 1: fig1, Softmax on the spiral" in said
    assert "claim 2: not run: needs fig3" in said
    assert f"written: {out}/report.md, {out}/report.html" in said
    assert all((out / name).stat().st_size > 1000 for name in ("fig1.json", "fig1.png", "fig1.svg", "report.html"))
    code, said = reproduce("fig1", "--quick", "--out", out)
    assert code == 1
    assert said == f"error: {out} holds results already; go on with them (--resume) or choose another folder\n"
    code, said = reproduce("fig1", "--quick", "--out", out, "--resume")
    assert code == 0, said
    assert "training" not in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name the experiments to run, or all; see them with: openradial reproduce --list"),
        (["fig11"], "there is no experiment 'fig11'; did you mean 'fig1'?"),
        (["fig1", "--jobs", "0"], "jobs must be a whole number of at least 1, got 0"),
        (["fig1", "--seeds", "0"], "seeds must be a whole number of at least 1, got 0"),
        (["fig1", "--tiny-imagenet", "/nowhere"], "there is no folder /nowhere; name the one with Tiny-ImageNet"),
    ],
)
def test_bad_use_is_one_line_and_code_2(reproduce, arguments, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert reproduce(*arguments) == (2, f"error: {message}\n")
    assert list(tmp_path.iterdir()) == []
