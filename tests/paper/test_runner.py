import json
import os
import re
import signal
import sys
import threading
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from openradial.errors import MissingError, OptionError, TrainingError
from paper import IDS, Experiment, Plan, find, reproduce, runner
from paper.experiment import select
from paper.processes import _conclude, _NoTerminal, run_in_processes
from paper.report import draw_figure

PROGRAM = f"""
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from paper import Plan, reproduce

def listener(text):
    print(text, flush=True)
    if "noise" in text or "training" in text:
        trainings.append(text)
    if len(trainings) == 4 and sys.argv[2] == "die":
        os.kill(os.getpid(), signal.SIGKILL)

trainings = []
reproduce(["fig3"], Plan(Path(sys.argv[1]), "tiny", listener=listener), resume=sys.argv[2] == "resume")
"""


def test_a_killed_run_goes_on_where_it_stopped(tmp_path, programs):
    program, parts, whole = tmp_path / "program.py", tmp_path / "parts", tmp_path / "whole"
    program.write_text(PROGRAM)
    killed = programs.run(program, parts, "die")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (parts / "fig3.json").exists()
    resumed, undisturbed = programs.run(program, parts, "resume"), programs.run(program, whole, "once")
    assert resumed.returncode == undisturbed.returncode == 0, resumed.stderr + undisturbed.stderr
    notes = resumed.stdout.splitlines()
    assert len([note for note in notes if "training" in note]) == 10 - 3  # three were kept, the fourth was not
    found, expected = (json.loads((folder / "fig3.json").read_text())["numbers"] for folder in (parts, whole))
    assert found == expected


def test_a_finished_experiment_is_not_run_again(tmp_path, monkeypatch):
    plan = Plan(tmp_path, "tiny")
    monkeypatch.setattr(runner, "draw_figure", lambda *_: (tmp_path / "fig1.svg").write_text("<svg/>"))
    files = reproduce(["fig1"], plan)
    before = (tmp_path / "fig1.json").read_text()
    monkeypatch.setattr(runner, "run_one", lambda id, plan: pytest.fail(f"{id} was run again"))
    assert reproduce(["fig1"], plan, resume=True) == files == [tmp_path / "report.md", tmp_path / "report.html"]
    assert (tmp_path / "fig1.json").read_text() == before


def test_a_result_says_how_it_was_made(tiny_record):
    record = tiny_record("fig1")
    assert record["settings"] == {"epochs": 1, "seeds": 2, "cells": 12, "learning_rate": 0.0005}
    assert record["title"] == find("fig1").title
    assert record["seconds"] >= 0
    assert list(record["parts"]) == ["spiral-softmax-50x50x2-1-2-0.0005-2000-0.02-1-0.safetensors"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", record["finished"])
    assert set(record["versions"]) == {"openradial", "torch", "numpy", "python", "machine"}


def line(numbers):
    figure = Figure(figsize=(2, 1))
    figure.add_subplot().plot(numbers)
    return figure


LINE = Experiment("line", "A line", "It rises. It ends.", settings={}, run=lambda plan: {}, draw=line)


def test_the_same_numbers_give_the_same_pictures_and_no_rest_is_left(tmp_path):
    record, pictures = {"size": "quick", "settings": {"epochs": 1000}, "numbers": [1, 2]}, []
    for _ in range(2):
        draw_figure(LINE, record, tmp_path)
        pictures.append([(tmp_path / f"line.{kind}").read_bytes() for kind in ("png", "svg")])
    assert pictures[0] == pictures[1]
    assert {path.name for path in tmp_path.iterdir()} == {"line.png", "line.svg"}


def test_a_picture_states_its_size_unless_it_is_full(tmp_path, monkeypatch):
    drawn = []
    experiment = replace(LINE, draw=lambda numbers: drawn.append(line(numbers)) or drawn[-1])
    for size in ("quick", "full"):
        draw_figure(experiment, {"size": size, "settings": {"epochs": 1000, "seeds": 2}, "numbers": [1]}, tmp_path)
    quick, full = ([text.get_text() for text in figure.texts] for figure in drawn)
    assert quick == ["quick size, not the paper's settings: 1,000 epochs, 2 seeds"]
    assert full == []


def test_a_figure_that_cannot_be_drawn_leaves_the_old_picture(tmp_path):
    def fail(numbers):
        raise ZeroDivisionError

    (tmp_path / "line.png").write_text("old")
    with pytest.raises(ZeroDivisionError):
        draw_figure(replace(LINE, draw=fail), {"numbers": {}}, tmp_path)
    assert (tmp_path / "line.png").read_text() == "old"


def leaves(numbers, path=()):
    """The single numbers of a result, each with its path."""
    if isinstance(numbers, dict | list):
        for key, value in numbers.items() if isinstance(numbers, dict) else enumerate(numbers):
            yield from leaves(value, (*path, key))
    else:
        yield path, numbers


def is_close(one, other):
    return isinstance(one, float) and one == pytest.approx(other, rel=1e-3, abs=2e-3)


def assert_close(found, expected):
    """Processes with other numbers of threads found the same, up to a step of the three decimals that are kept."""
    pairs = list(zip(leaves(found), leaves(expected), strict=True))
    assert all(one[0] == other[0] for one, other in pairs)
    wrong = [(one, other) for one, other in pairs if one != other and not is_close(one[1], other[1])]
    assert wrong == []


def test_several_at_a_time_find_the_same_and_one_failure_stops_no_other(tmp_path, tiny_record):
    plan = Plan(tmp_path, "tiny", jobs=2, listener=(notes := []).append)
    settings = find("fig1").settings["tiny"]
    damaged = tmp_path / "parts" / f"spiral-softmax-50x50x2-1-{settings.seeds}-0.0005-2000-0.02-1-0.safetensors"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("half")
    message = f"1 of 2 experiments failed, the others are finished: fig1: {damaged} is damaged"
    with pytest.raises(TrainingError, match=f"^{re.escape(message)}"):
        reproduce(["fig1", "fig2"], plan)
    numbers = json.loads((tmp_path / "fig2.json").read_text())["numbers"]
    assert_close(numbers, tiny_record("fig2")["numbers"])
    assert "fig2" in (tmp_path / "report.md").read_text()
    assert "fig2: training 2 Bayesian softmax networks, 1 epochs" in notes
    assert "fig2: finished" in notes


def note_and_wait(id, plan):
    plan.note(str(os.getpid()))
    threading.Event().wait()


def test_a_worker_that_is_killed_is_told_with_the_way_out(tmp_path):
    done = Future()
    done.set_exception(BrokenProcessPool())
    message = (
        "a worker process was killed, perhaps for lack of memory; continue with --resume, perhaps with fewer --jobs"
    )
    with pytest.raises(TrainingError, match=f"^{re.escape(message)}$"):
        _conclude(done, "fig1", Plan(tmp_path, "tiny"))


@pytest.mark.usefixtures("interruptible")
def test_an_interruption_ends_the_workers_at_once(tmp_path):
    notes = []

    def listener(text):
        notes.append(text)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_in_processes(note_and_wait, ["fig1"], Plan(tmp_path, "tiny", listener=listener))
    with pytest.raises(ProcessLookupError):
        os.kill(int(notes[0].removeprefix("fig1: ")), 0)


def test_failures_are_told_at_the_end_also_where_nothing_else_was_run(tmp_path, monkeypatch):
    def run_one(id, plan):
        raise TrainingError(f"no {id} today")

    monkeypatch.setattr(runner, "run_one", run_one)
    message = "2 of 2 experiments failed, the others are finished: fig1: no fig1 today; fig2: no fig2 today"
    with pytest.raises(TrainingError, match=f"^{message}$"):
        reproduce(["fig1", "fig2"], Plan(tmp_path, "tiny"))


def test_experiments_come_in_the_papers_order_and_once():
    assert [each.id for each in select(["fig3", "fig1", "fig3"])] == ["fig1", "fig3"]
    assert [each.id for each in select(["fig3", "all"])] == list(IDS)


def test_an_unknown_experiment_is_named_with_the_nearest():
    with pytest.raises(OptionError, match=r"^there is no experiment 'fig33'; did you mean 'fig3'\?$"):
        select(["fig33"])
    with pytest.raises(OptionError, match=r"^there is no experiment 'x'; the ids are: all, fig1, fig2"):
        find("x")


def test_drawing_needs_matplotlib_and_says_so_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingError, match=r"drawing the figures needs the package matplotlib.*openradial\[plot\]"):
        reproduce(["fig1"], Plan(tmp_path / "out", "tiny"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("id", IDS)
def test_every_experiment_has_settings_of_every_size_and_a_title(id):
    experiment = find(id)
    assert experiment.id == id
    assert set(experiment.settings) == {"tiny", "quick", "full"}
    assert experiment.title
    assert not experiment.title.endswith(".")


def test_workers_show_no_bars_but_keep_their_error_stream(capsys):
    stream = _NoTerminal(sys.stderr)
    assert not stream.isatty()
    stream.write("a warning")
    assert capsys.readouterr().err == "a warning"
