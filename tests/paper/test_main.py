import shutil
import sys

import pytest

from paper import IDS, __main__, fig1


@pytest.fixture
def command(monkeypatch, capsys):
    """Run ``python -m paper`` with a tiny figure 1 in quick mode: the exit code and the printed text."""
    monkeypatch.setitem(fig1.SETTINGS, "quick", fig1.SETTINGS["tiny"])

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["paper", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            __main__.main()
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out + printed.err

    return run


@pytest.fixture
def ilsvrc(tmp_path):
    """Class folders of two artifacts and two animals, and one that is not a class."""
    root = tmp_path / "ilsvrc"
    for part in ("train", "val"):
        for wnid in ("n02672831", "n02676566", "n01440764", "n01443537", "n99999999"):
            (root / part / wnid).mkdir(parents=True)
    return root


def test_the_list_names_every_experiment(command):
    code, text = command("list")
    assert code == 0
    assert [line.split()[0] for line in text.splitlines()[1:] if line[0] != " "] == list(IDS)


def test_an_experiment_is_run_and_its_files_are_named(command, tmp_path):
    out = tmp_path / "out"
    code, text = command("run", "fig1", "--quick", "--out", out)
    assert code == 0, text
    assert "experiment 1 of 1: fig1, Softmax on the spiral" in text
    assert "claim 2: not run: needs fig3" in text
    assert f"written: {out}/report.md, {out}/report.html" in text
    assert all((out / name).stat().st_size > 1000 for name in ("fig1.json", "fig1.png", "fig1.svg", "report.html"))
    code, text = command("run", "fig1", "--quick", "--out", out)
    assert code == 1
    assert text == f"error: {out} already holds results; add --resume to continue or choose another folder\n"
    code, text = command("run", "fig1", "--quick", "--out", out, "--resume")
    assert code == 0, text
    assert "training" not in text


def test_all_runs_every_experiment(command, tmp_path, monkeypatch):
    received = []
    monkeypatch.setattr(__main__, "reproduce", lambda ids, plan, resume: received.append((ids, plan.size)) or [])
    assert command("all", "--quick", "--out", tmp_path)[0] == 0
    assert received == [(["all"], "quick")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fig11"], "there is no experiment 'fig11'; did you mean 'fig1'?"),
        (["fig1", "--jobs", "0"], "jobs must be at least 1, got 0"),
        (["fig1", "--seeds", "0"], "seeds must be at least 1, got 0"),
        (["fig1", "--tiny-imagenet", "/nowhere"], "there is no folder /nowhere; name the one with Tiny-ImageNet"),
    ],
)
def test_wrong_use_is_one_line_and_code_2(command, arguments, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert command("run", *arguments) == (2, f"error: {message}\n")
    assert list(tmp_path.iterdir()) == []


def test_run_needs_an_id(command):
    code, text = command("run")
    assert code == 2
    assert "ids" in text


def test_split_ilsvrc_writes_lists_and_links(command, ilsvrc, tmp_path):
    out = tmp_path / "split"
    code, text = command("split-ilsvrc", "--root", ilsvrc, "--known", "not:n00021939", "--out", out, "--links")
    assert code == 0
    assert f"2 known and 2 novel classes in {out}" in text
    assert (out / "known.txt").read_text().split() == ["n01440764", "n01443537"]
    assert (out / "novel" / "val" / "n02672831").resolve() == ilsvrc / "val" / "n02672831"


def test_a_random_split_of_ilsvrc_depends_on_the_seed_alone(command, ilsvrc, tmp_path):
    lists = []
    for seed in (0, 0, 1):
        command("split-ilsvrc", "--root", ilsvrc, "--known", "random:2", "--seed", seed, "--out", tmp_path / "split")
        lists.append((tmp_path / "split" / "known.txt").read_text())
        shutil.rmtree(tmp_path / "split")
    assert lists[0] == lists[1]
    assert len(lists[2].split()) == 2


def test_a_wrong_rule_for_known_classes_is_refused(command, ilsvrc, tmp_path):
    code, text = command("split-ilsvrc", "--root", ilsvrc, "--known", "some:2", "--out", tmp_path / "split")
    assert code == 2
    assert text.startswith("error: ")
    assert not (tmp_path / "split").exists()
